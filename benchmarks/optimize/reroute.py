"""Reroutes twenty models of transformers: ``python -m benchmarks.optimize.reroute [MODEL ...]``.

Each row is of one run, in turns: the model as it is, compiled by torch, and rerouted. Errors are
against the model in float64; tokens of ``generate`` are compared where it has it. Then the call
sites that were left alone, with the reasons; and what rerouting costs a model without any.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
import transformers
from rich.progress import track
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchmarks.optimize._turns import milliseconds
from torchyard_compile import CallSite, reroute

_TEXT: Final = (
    *("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"),
    *("GemmaForCausalLM", "Gemma3ForCausalLM", "Phi3ForCausalLM", "OlmoForCausalLM"),
    *("CohereForCausalLM", "StableLmForCausalLM", "GPT2LMHeadModel", "GPTNeoXForCausalLM"),
    *("OPTForCausalLM", "BertModel", "RobertaModel", "DistilBertModel", "BartModel"),
)
_SEEN: Final[Mapping[str, Mapping[str, tuple[int, ...]]]] = {
    "ViTModel": {"pixel_values": (1, 3, 224, 224)},
    "CLIPVisionModel": {"pixel_values": (1, 3, 224, 224)},
    "HubertModel": {"input_values": (1, 16000)},
}
NAMES: Final = (*_TEXT, *_SEEN)


def main() -> int:
    """Run the command; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(prog="benchmarks.optimize.reroute", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(NAMES), help="names; all of them")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows, good = [], True
    left: dict[tuple[str, str], int] = {}
    with torch.no_grad():
        for name in track(options.models, "models", transient=True):
            row, right = _row(name, options.layers, options.turns, left)
            rows.append(row)
            good = good and right
        least, share = _overhead(15 * options.turns)
    columns = ("model", "eager, ms", "compiled", "rerouted", "over eager", "error", "eager's")
    print("|", " | ".join((*columns, "tokens", "calls rerouted", "left")), "|")
    print("| --- " * (len(columns) + 3) + "|")
    print(*rows, sep="\n")
    for (function, reason), count in sorted(left.items(), key=lambda item: -item[1]):
        print(f"left alone: {function}: {reason} ({count} calls)")
    print(
        f"a model without such a call takes {100 * (share - 1):+.1f} % with reroute, and "
        f"{100 * (least - 1):+.1f} % with a function mode of torch's that does nothing"
    )
    return 0 if good else 1


def _row(name: str, layers: int, turns: int, left: dict[tuple[str, str], int]) -> tuple[str, bool]:
    model, given = _built(name, layers)
    exact = _tensor(copy.deepcopy(model).double()(**_double(given)))
    compiled: Callable[..., Any] = torch.compile(copy.deepcopy(model))
    other = copy.deepcopy(model)
    rerouted = reroute(other)
    ways: dict[str, Callable[..., Any]] = {"eager": model, "compiled": compiled, "rerouted": other}
    errors = {way: _error(_tensor(run(**given)), exact) for way, run in ways.items()}
    taken = milliseconds({way: partial(run, **given) for way, run in ways.items()}, turns)
    sites = rerouted.explain()
    for site in sites:
        if not site.implementation:
            _note(left, site)
    same = _tokens(model, other, given)
    moved = sum(site.calls for site in sites if site.implementation)
    row = (
        f"| {name} | {taken['eager']:.1f} | {taken['compiled']:.1f} | {taken['rerouted']:.1f} | "
        f"{taken['eager'] / taken['rerouted']:.2f} | {errors['rerouted']:.1e} | "
        f"{errors['eager']:.1e} | {same} | {moved} | {sum(s.calls for s in sites) - moved} |"
    )
    return row, errors["rerouted"] <= 4 * errors["eager"] and same != "differ"


def _note(left: dict[tuple[str, str], int], site: CallSite) -> None:
    key = site.function, site.reason
    left[key] = left.get(key, 0) + site.calls


def _built(name: str, layers: int) -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    kind: Any = getattr(transformers, name)
    sizes = {
        "hidden_size": 512,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "intermediate_size": 2048,
    }
    if name in _SEEN:
        model = kind(kind.config_class(**sizes))
        given: dict[str, Any] = {key: torch.randn(*shape) for key, shape in _SEEN[name].items()}
    else:
        if hasattr(kind.config_class(), "num_key_value_heads"):
            sizes["num_key_value_heads"] = 4
        config = kind.config_class(**sizes, vocab_size=8000, pad_token_id=0)
        model, given = kind(config), {"input_ids": torch.randint(1, 8000, (1, 128))}
        if hasattr(model, "generate") and not getattr(config, "is_encoder_decoder", False):
            given["use_cache"] = False
    return model.eval(), given


def _tokens(model: Any, other: Any, given: Mapping[str, Any]) -> str:
    """Say whether both generate the same tokens."""
    if not hasattr(model, "generate"):
        return ""
    words = {"max_new_tokens": 16, "do_sample": False}
    prompt = given["input_ids"][:, :32]
    same = torch.equal(model.generate(prompt, **words), other.generate(prompt, **words))
    return "same" if same else "differ"


class _Nothing(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _overhead(turns: int) -> tuple[float, float]:
    """Return what a mode that does nothing, and rerouting, make of a time without a call."""
    torch.manual_seed(0)
    # ResNet-50.
    model = transformers.ResNetModel(transformers.ResNetConfig()).eval()
    other = copy.deepcopy(model)
    reroute(other)
    pixels = torch.randn(1, 3, 224, 224)

    def with_nothing() -> object:
        with _Nothing():
            return model(pixels)

    ways: dict[str, Callable[..., Any]] = {
        "as it is": partial(model, pixels),
        "nothing": with_nothing,
        "rerouted": partial(other, pixels),
    }
    taken = milliseconds(ways, turns)
    return taken["nothing"] / taken["as it is"], taken["rerouted"] / taken["as it is"]


def _double(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for key, value in given.items()
    }


def _tensor(output: Any) -> Tensor:
    found: Tensor = next(iter(output.values()))
    return found.double()


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


if __name__ == "__main__":
    sys.exit(main())
