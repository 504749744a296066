"""Models whose graphs are rerouted, and the backends that compile them then."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torchyard
from torchyard_compile import GraphReroute, LinearFusion

from .rerouted_graphs import compiled, drawn, queries

_FOUR = queries(2, 4)


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1) @ v


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_a_checkpoints_block_is_looked_into() -> None:
    def block(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).softmax(-1) @ v

    def layers(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return checkpoint(block, q, k, v, use_reentrant=False)

    tensors = [tensor.clone().requires_grad_() for tensor in _FOUR]
    found, sites = compiled(layers, *tensors, inner="aot_eager")
    assert [site.implementation for site in sites] == ["cpu.native"]
    ours = torch.autograd.grad(found.square().sum(), tensors)
    theirs = torch.autograd.grad(block(*tensors).square().sum(), tensors)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(32, 96)
        self.outward = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.inward(x).chunk(3, -1)
        )
        weights = (q @ k.transpose(-2, -1) / math.sqrt(8)).softmax(-1)
        return x + self.outward((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.sweep
def test_products_are_fused_by_the_inner_backend() -> None:
    torch.manual_seed(0)
    model, x = _Block(), drawn(2, 24, 32)
    fusion = LinearFusion()
    reroute = GraphReroute(fusion)
    compiled = torch.compile(model, backend=reroute)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert [site.implementation for site in reroute.explain()] == ["cpu.native"]
    assert sum(site.calls for site in fusion.explain() if site.implementation) >= 2
    ours = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
    theirs = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_autocast_is_left_where_it_changes_dtypes() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return (q @ k.mT).softmax(-1) @ v

    found, (site,) = compiled(attend, *_FOUR)
    torch.testing.assert_close(found, attend(*_FOUR))
    assert "dtypes differ" in site.reason


def test_what_is_demanded_to_be_torchs_is_left() -> None:
    with torchyard.use(attention="attention.tiled"):
        found, (site,) = compiled(_plain, *_FOUR)
    assert not site.implementation
    assert "attention.tiled by context" in site.reason
    torch.testing.assert_close(found, _plain(*_FOUR))


_SMALL: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
_TINY = {**_SMALL, "hidden_size": 32, "intermediate_size": 64}
MODELS: dict[str, tuple[Callable[[], Any], int]] = {
    "bert": (lambda: transformers.BertModel(transformers.BertConfig(**_TINY)), 2),
    "llama": (
        lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**_TINY)),
        2,
    ),
    "gpt2": (
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=99)
        ),
        2,
    ),
    "t5": (
        lambda: transformers.T5EncoderModel(
            transformers.T5Config(
                d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=99
            )
        ),
        2,
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers_that_write_attention_out(name: str) -> None:
    make, layers = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    model.set_attn_implementation("eager")
    words = {"input_ids": torch.randint(99, (2, 20)), "attention_mask": torch.ones(2, 20).long()}
    words["attention_mask"][0, -5:] = 0
    if name in ("llama", "gpt2"):
        words["use_cache"] = False  # type: ignore[assignment]
    reroute = GraphReroute()
    with torch.no_grad():
        expected = model(**words)[0]
        found = torch.compile(model, backend=reroute)(**words)[0]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    attended = [site for site in reroute.explain() if site.function == "attention"]
    assert sum(site.calls for site in attended if site.implementation) == layers, attended


def test_a_backend_is_a_name_or_a_function() -> None:
    with pytest.raises(TypeError, match="GraphReroute: inner"):
        GraphReroute(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="graph: expected a GraphModule"):
        GraphReroute()(nn.Linear(2, 2), [])  # type: ignore[arg-type]


def test_options_of_compile_reach_inductor() -> None:
    reroute = GraphReroute()
    attend = _plain
    compiled = torch.compile(attend, backend=reroute, mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(compiled(*_FOUR), attend(*_FOUR), rtol=1e-4, atol=1e-5)
    torch.compiler.reset()
    wrong = torch.compile(attend, backend=GraphReroute(), options={"no_such_option": 1})
    with pytest.raises(Exception, match="no_such_option"):
        wrong(*_FOUR)
