"""Every architecture of transformers that builds from a small configuration, and what it outputs.

The sizes of a configuration are set by the names of its fields, since no two architectures have the
same ones. An architecture that cannot be built or called this way is counted, not tested.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Final

import torch
import transformers
from torch import Tensor
from transformers.models.auto import modeling_auto

from torchyard import TorchyardError
from torchyard_attention.transformers import UnusedAttentionWarning

__all__ = [
    *("BOUND", "Outcome", "Result", "architectures", "compare", "difference", "eager", "model_of"),
    "outputs_of",
]

_BATCH: Final = 2
_LENGTH: Final = 20
_PADDING: Final = 5
_VOCABULARY: Final = 256
# Of the largest value: 1e-6 is usual in float32, and a mask that is one key off changes 1e-2.
BOUND: Final = 1e-4
# A model of more parameters than this takes too long to be one of hundreds.
_MOST_PARAMETERS: Final = 100_000_000

# The part of a field's name -> its value in a small model; the first that fits counts.
_SMALL: Final[dict[str, int]] = {
    "vocab_size": _VOCABULARY,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layers": 2,
    "n_layer": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "depth": 2,
    "num_attention_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_heads": 4,
    "n_heads": 4,
    "n_head": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "d_model": 64,
    "n_embd": 64,
    "embed_dim": 64,
    "head_dim": 16,
    "d_kv": 16,
    "intermediate_size": 96,
    "ffn_dim": 96,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "d_ff": 96,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "image_size": 32,
    "patch_size": 8,
    "num_nextn_predict_layers": 0,
    "rotary_dim": 16,
    "emb_dim": 64,
    "entity_vocab_size": 16,
    "entity_emb_size": 16,
    "vocab_size_per_layer_input": _VOCABULARY,
    "ffn_hidden_size": 96,
    "expert_ffn_hidden_size": 96,
}
# Where the widths must fit one another in some other way.
_NO_HEADS: Final = {
    name: value for name, value in _SMALL.items() if name not in ("head_dim", "d_kv")
}
_LATENT: Final = _NO_HEADS | {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "qk_head_dim": 32,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_FEWER_LAYERS: Final = {
    name: value
    for name, value in _SMALL.items()
    if "layer" in name or "expert" in name or name in ("depth", "vocab_size")
}
_TOKENS: Final = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
_OUTPUTS_NO_ATTENTION: Final = ("attentions", "hidden_states", "past_key_values", "loss")


class Outcome(StrEnum):
    """What became of an architecture."""

    RIGHT = "right"
    REFUSED = "refused"
    TOLD = "told to be unused"
    NO_ATTENTION = "no attention"
    SILENT = "silently unused"
    WRONG = "wrong"
    UNCLEAR = "unclear"
    UNBUILT = "unbuilt"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an architecture, and why."""

    outcome: Outcome
    detail: str = ""


def architectures() -> Iterator[tuple[str, str]]:
    """Yield the type and the class of each architecture, a language model where there is one."""
    found: dict[str, str] = {}
    for mapping in (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_MAPPING_NAMES,
    ):
        for kind, name in mapping.items():
            found.setdefault(kind, name if isinstance(name, str) else name[0])
    yield from sorted(found.items())


def compare(name: str, attention: str) -> Result:
    """Compare a model's outputs under an attention with those under eager's.

    Args:
        name: of the model's class in transformers.
        attention: for ``attn_implementation``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = eager(name)
    if isinstance(built, Result):
        return built
    kind, config, inputs, wanted = built
    interface = transformers.AttentionInterface()
    ours, calls = interface[attention], 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return ours(*args, **kwargs)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        interface.register(attention, counted)
        try:
            model = model_of(kind, config, attention)
            found = outputs_of(model, inputs)
        except TorchyardError as error:
            return Result(Outcome.REFUSED, str(error))
        except Exception as error:
            return Result(Outcome.UNCLEAR, f"{type(error).__name__}: {error}".splitlines()[0])
        finally:
            interface.register(attention, ours)
    said = [str(entry.message) for entry in caught if entry.category is UnusedAttentionWarning]
    off = difference(found, wanted, inputs)
    if off > BOUND:
        # A query that sees no key gets 0 from "sdpa" and from ours, and a mean from "eager".
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = outputs_of(model_of(kind, config, "sdpa"), inputs)
        off = difference(found, wanted, inputs)
    if off > BOUND:
        return Result(Outcome.WRONG, f"differs by {off:.1e} of the largest value")
    if calls:
        return Result(Outcome.RIGHT, f"{off:.1e}")
    if said:
        return Result(Outcome.TOLD, said[0])
    # Linear attention and similar layers take no softmax, and have no place in the interface.
    kinds = {type(layer) for layer in model.modules() if "transformers" in type(layer).__module__}
    layers = {layer.__name__: inspect.getsource(layer) for layer in kinds}
    unused = sorted(
        name for name, text in layers.items() if "Attention" in name and "softmax" in text
    )
    if unused:
        return Result(Outcome.SILENT, f"has {', '.join(unused)}")
    return Result(Outcome.NO_ATTENTION)


def eager(name: str) -> tuple[Any, Any, dict[str, Any], dict[str, Tensor]] | Result:
    """Return a class, a small configuration that it takes, its inputs and its outputs."""
    try:
        kind: Any = getattr(transformers, name)
        config_class = getattr(kind, "config_class", None)
    # Of a class that is not there, or whose package is not.
    except (AttributeError, ImportError) as error:
        return Result(Outcome.UNBUILT, _first_line(error))
    if config_class is None:
        return Result(Outcome.UNBUILT, "no configuration")
    reason = ""
    for small in (_SMALL, _NO_HEADS, _LATENT, _FEWER_LAYERS):
        try:
            config = _configuration(config_class, small)
            with torch.device("meta"):
                size = sum(p.numel() for p in kind(copy.deepcopy(config)).parameters())
            if size > _MOST_PARAMETERS:
                reason = reason or f"{size:,} parameters"
                continue
            model = model_of(kind, config, "eager")
            inputs = _inputs(model)
            if isinstance(inputs, str):
                return Result(Outcome.UNBUILT, inputs)
        except Exception as error:
            reason = _first_line(error)
            continue
        for given in _layouts(inputs):
            try:
                return kind, config, given, outputs_of(model, given)
            except Exception as error:
                reason = _first_line(error)
    return Result(Outcome.UNBUILT, reason)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:120]


def _configuration(kind: Any, small: dict[str, int]) -> Any:
    config = kind(**_fields(kind(), small))
    config.return_dict = True
    return config


def _fields(config: Any, small: dict[str, int]) -> dict[str, Any]:
    """Return the fields of a configuration that a small one has otherwise."""
    fields: dict[str, Any] = {}
    parts = getattr(type(config), "sub_configs", {})
    layers = getattr(config, "num_hidden_layers", None)
    for name in parts:
        part = getattr(config, name, None)
        if part is not None:
            fields[name] = type(part)(**_fields(part, small))
    for name, value in vars(config).items():
        if name in small and isinstance(value, int) and not isinstance(value, bool):
            fields[name] = min(value, small[name])
        elif isinstance(value, list) and len(value) == layers and len(value) > 2:
            # What is listed by layer.
            fields[name] = value[:2]
        elif name == "rope_parameters" and isinstance(value, dict) and _has_sections(config):
            # Of half of a head: for time, for height and for width.
            half = int(16 * value.get("partial_rotary_factor", 1)) // 2
            fields[name] = value | {"mrope_section": [half // 2, half // 4, half // 4]}
        elif name in _TOKENS and isinstance(value, int) and value >= _VOCABULARY:
            fields[name] = _TOKENS.index(name)
    return fields


def _has_sections(config: Any) -> bool:
    """Return whether a model's code rotates parts of a head by several positions."""
    try:
        file = import_module(type(config).__module__.replace("configuration_", "modeling_"))
    except ImportError:
        return False
    return "mrope_section" in inspect.getsource(file)


def model_of(kind: Any, config: Any, attention: str) -> Any:
    torch.manual_seed(3)
    config = copy.deepcopy(config)
    model = kind._from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.is_floating_point():
                parameter.normal_(std=0.1)
    return model.eval()


def _inputs(model: Any) -> dict[str, Any] | str:
    """Return inputs that the model's signature asks for, or why there are none."""
    torch.manual_seed(4)
    taken = inspect.signature(model.forward).parameters
    config = model.config
    inputs: dict[str, Any] = {}
    if "input_ids" in taken:
        inputs["input_ids"] = torch.randint(5, 200, (_BATCH, _LENGTH))
        if "attention_mask" in taken:
            inputs["attention_mask"] = torch.ones(_BATCH, _LENGTH, dtype=torch.int64)
            inputs["attention_mask"][0, :_PADDING] = 0
    vision = getattr(config, "vision_config", config)
    grids = [name for name in ("grid_thw", "image_grid_thw") if _needed(taken, name)]
    if grids and "input_ids" not in taken:
        # Patches one after another, and how many of them lie over time, height and width.
        patches = "pixel_values" if "pixel_values" in taken else "hidden_states"
        inputs[patches] = _patches(vision)
        inputs[grids[0]] = torch.tensor([[1, 4, 4], [1, 4, 4]])
    elif "pixel_values" in taken and (
        "input_ids" not in taken
        or hasattr(config, "projection_dim")
        or _needed(taken, "pixel_values")
    ):
        inputs["pixel_values"] = _pixels(vision)
    if not inputs and "input_values" in taken:
        inputs["input_values"] = torch.randn(_BATCH, 4000)
    if not inputs and "input_features" in taken:
        inputs["input_features"] = _features(config)
    if not inputs:
        return f"takes {', '.join(list(taken)[:3])}"
    if "decoder_input_ids" in taken:
        inputs["decoder_input_ids"] = torch.randint(5, 200, (_BATCH, 9))
    if "use_cache" in taken:
        inputs["use_cache"] = False
    return inputs


def _needed(taken: Mapping[str, inspect.Parameter], name: str) -> bool:
    return name in taken and taken[name].default is inspect.Parameter.empty


def _layouts(inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the inputs in the order of dimensions of most models of sound, and in others'."""
    yield inputs
    if "input_values" in inputs:
        yield inputs | {"input_values": inputs["input_values"][:, None]}
    if "input_features" in inputs:
        yield inputs | {"input_features": inputs["input_features"].transpose(1, 2).contiguous()}


def _patches(config: Any) -> Tensor:
    size = getattr(config, "patch_size", 8)
    channels = getattr(config, "in_channels", None) or getattr(config, "num_channels", None) or 3
    times = getattr(config, "temporal_patch_size", None) or 1
    return torch.randn(2 * 16, channels * times * size * size)


def _pixels(config: Any) -> Tensor:
    size = getattr(config, "image_size", 32) or 32
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return torch.randn(_BATCH, getattr(config, "num_channels", 3) or 3, height, width)


def _features(config: Any) -> Tensor:
    bins: int = getattr(config, "num_mel_bins", 80) or 80
    return torch.randn(_BATCH, bins, 2 * getattr(config, "max_source_positions", 50))


def outputs_of(model: Any, inputs: dict[str, Any]) -> dict[str, Tensor]:
    torch.manual_seed(5)
    with torch.no_grad():
        outputs = model(**inputs)
    if isinstance(outputs, Tensor):
        return {"output": outputs}
    if not hasattr(outputs, "items"):
        outputs = {str(i): value for i, value in enumerate(outputs)}
    found = {
        name: value
        for name, value in outputs.items()
        if isinstance(value, Tensor)
        and value.is_floating_point()
        and name not in _OUTPUTS_NO_ATTENTION
    }
    if not found:
        raise ValueError("outputs: no tensor")
    if not all(value.isfinite().all() for value in found.values()):
        raise ValueError("outputs: not finite")
    return found


def difference(
    found: dict[str, Tensor], wanted: dict[str, Tensor], inputs: dict[str, Any]
) -> float:
    """Return the largest difference at tokens that are no padding, over the largest value."""
    if found.keys() != wanted.keys():
        return float("inf")
    largest = 0.0
    for name, value in wanted.items():
        if found[name].shape != value.shape:
            return float("inf")
        off = (found[name] - value).abs()
        if value.shape[:2] == (_BATCH, _LENGTH) and "attention_mask" in inputs:
            off = off[inputs["attention_mask"].bool()]
        largest = max(largest, float(off.max() / value.abs().max().clamp(min=1e-6)))
    return largest
