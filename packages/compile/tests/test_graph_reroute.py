"""Attention in compiled graphs, written out or torch's, by ours or left with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.nn import functional

from torchyard_compile import GraphReroute

from .rerouted_graphs import compiled, drawn, queries


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch.compiler.reset()
    yield
    torch.compiler.reset()


_FOUR = queries(2, 4)
_THREE = queries(6)
_SEEN = drawn(2, 1, 20, 24, seed=7) > -0.5
_ADDED = torch.zeros(2, 1, 20, 24).masked_fill(~_SEEN, torch.finfo(torch.float32).min)
_BIAS = drawn(1, 4, 20, 24, seed=8)


def _softcapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = 5.0 * torch.tanh(q @ k.mT / 4.0 / 5.0)
    return scores.softmax(-1) @ v


def _eager_of_transformers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.matmul(q, k.transpose(2, 3)) * 0.25
    weights = weights + _ADDED
    weights = functional.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    weights = functional.dropout(weights, p=0.1, training=False)
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


def _biased_twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(3, 2))
    bias = _BIAS + _ADDED
    scores += bias
    return torch.matmul(functional.softmax(scores.float(), dim=-1).type_as(scores), v)


def _filled_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.bmm(q, k.transpose(1, 2))
    scores.mul_(0.5).masked_fill_(_SEEN[0].logical_not(), -1e4)
    return torch.bmm(torch.softmax(scores, dim=2), v)


def _written_statements(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q, k.mT)
    scores /= 4
    scores.masked_fill_(~_SEEN, -1e9)
    scores += _BIAS
    return torch.matmul(scores.softmax(-1), v)


def _added_in_the_product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.baddbmm(_BIAS[0, :1], q, k.transpose(1, 2), beta=0.5, alpha=0.25)
    return torch.bmm(scores.softmax(dim=-1), v)


def _not_added_in_the_product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    nothing = torch.full((1, 20, 24), math.nan)
    scores = torch.baddbmm(nothing, q, k.transpose(1, 2), beta=0, alpha=0.25)
    return torch.bmm(scores.softmax(dim=-1), v)


# One attention each; what a row may see is never nothing.
WRITTEN: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "plain": (lambda q, k, v: (q @ k.mT).softmax(-1) @ v, _FOUR),
    "scaled by a factor before": (lambda q, k, v: (0.3 * (q @ k.mT)).softmax(-1) @ v, _FOUR),
    "scaled queries": (lambda q, k, v: ((q / 4) @ k.mT).softmax(-1) @ v, _FOUR),
    "transformers": (_eager_of_transformers, _FOUR),
    "where": (
        lambda q, k, v: torch.where(_SEEN, q @ k.mT, -1e9).softmax(-1) @ v,
        _FOUR,
    ),
    "keys alone": (
        lambda q, k, v: ((q @ k.mT) / 4 + _ADDED[:, :, :1]).softmax(-1) @ v,
        _FOUR,
    ),
    "added by rank": (lambda q, k, v: ((q @ k.mT) + _BIAS[0, 0]).softmax(-1) @ v, _FOUR),
    "softcap": (_softcapped, _FOUR),
    "biased twice": (_biased_twice, _FOUR),
    "a scalar tensor": (
        lambda q, k, v: ((q @ k.mT) * torch.tensor(0.25)).softmax(-1) @ v,
        _FOUR,
    ),
    "in place": (_filled_in_place, _THREE),
    "statements": (_written_statements, _FOUR),
    "baddbmm": (_added_in_the_product, _THREE),
    "baddbmm without": (_not_added_in_the_product, _THREE),
    "three dimensions": (lambda q, k, v: (q @ k.mT).sub(1.5).neg().softmax(2) @ v, _THREE),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", WRITTEN)
def test_written_out_attention_is_one_call_of_ours(name: str, grad: bool) -> None:
    function, given = WRITTEN[name]
    tensors = [tensor.clone().requires_grad_(grad) for tensor in given]
    expected = function(*tensors)
    found, sites = compiled(function, *tensors)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found.stride() == expected.stride()
    (site,) = sites
    assert (site.function, site.implementation, site.calls) == ("attention", "cpu.native", 1)
    assert site.where.startswith("test_graph_reroute.py:")
    if grad:
        ours = torch.autograd.grad(found.square().sum(), tensors)
        theirs = torch.autograd.grad(expected.square().sum(), tensors)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_bias_that_is_learned_has_its_gradient() -> None:
    bias = _BIAS.clone().requires_grad_()

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return ((q @ k.mT) + bias).softmax(-1) @ v

    expected = torch.autograd.grad(attend(*_FOUR, bias).square().sum(), bias)
    out, sites = compiled(attend, *_FOUR, bias)
    assert [site.implementation for site in sites] == ["cpu.native"]
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), bias), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_no_further_from_float64_than_what_was_written(dtype: torch.dtype) -> None:
    given = queries(2, 4, dtype=dtype)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * 0.25 + _BIAS.to(q.dtype)
        return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v

    with torch.no_grad():
        exact = attend(*(tensor.double() for tensor in given))
        found, sites = compiled(attend, *given)
    assert [site.implementation for site in sites] == ["cpu.native"]
    assert found.dtype == dtype
    error, theirs = ((out - exact).norm() for out in (found, attend(*given)))
    assert error <= theirs


# What is done to scores: (words, function of the scores and of a tensor that broadcasts to them).
_STEPS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda s, t: s + t,
    lambda s, t: t - s,
    lambda s, t: s * 0.7,
    lambda s, t: s / 1.3,
    lambda s, t: torch.tanh(s),
    lambda s, t: s.masked_fill(t > 1, -3.0),
    lambda s, t: torch.where(t < 0.5, s, t),
    lambda s, t: torch.maximum(s, t),
    lambda s, t: s.clamp(-2.0, 2.0),
    lambda s, t: -s,
    lambda s, t: s + s * t,
    lambda s, t: s.type_as(t),
    lambda s, t: s.sigmoid(),
]


@pytest.mark.sweep
@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.sampled_from(range(len(_STEPS))), max_size=5),
    shape=st.sampled_from([(2, 4, 20, 24), (1, 4, 1, 24), (2, 1, 20, 1), (20, 24), (24,), (1, 1)]),
)
def test_any_elementwise_steps_between_are_computed(
    steps: Sequence[int], shape: tuple[int, ...]
) -> None:
    tensor = drawn(*shape, seed=9)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT
        for step in steps:
            scores = _STEPS[step](scores, tensor.to(q.dtype))
        return scores.softmax(-1) @ v

    with torch.no_grad():
        found, sites = compiled(attend, *_FOUR)
        expected = attend(*(each.double() for each in _FOUR))
    assert [site.implementation for site in sites] == ["cpu.native"]
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def _with_weights(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


def _with_scores(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT
    return (scores / 4).softmax(-1) @ v, scores


def _with_written_scores(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT
    before = scores.view(-1)
    scores.mul_(0.5)
    return scores.softmax(-1) @ v, before


def _with_written_bias(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    bias = _BIAS.clone()
    weights = ((q @ k.mT) + bias).softmax(-1)
    bias.zero_()
    return weights @ v + bias.sum()


def _with_written_copy(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.mT).float()
    return scores.mul_(3.0).softmax(-1) @ v


LEFT: dict[str, tuple[Callable[..., Any], list[Tensor], str]] = {
    "weights are returned": (_with_weights, _FOUR, "weights are read by 2 operations"),
    "scores are returned": (_with_scores, _FOUR, "scores are read at"),
    "scores are viewed and written": (_with_written_scores, _FOUR, "scores are read at"),
    "weights are multiplied": (
        lambda q, k, v: ((q @ k.mT).softmax(-1) * 0.5) @ v,
        _FOUR,
        "by no product with values",
    ),
    "another dimension": (lambda q, k, v: (q @ k.mT).softmax(2) @ v, _FOUR, "dimension 2"),
    "rounded to integers": (
        lambda q, k, v: (q @ k.mT).to(torch.int32).float().softmax(-1) @ v,
        _FOUR,
        "function of a product",
    ),
    "no product": (lambda q, k, v: _BIAS.softmax(-1) @ v, _FOUR, "function of a product"),
    "sums of scores": (
        lambda q, k, v: ((q @ k.mT) - (q @ k.mT).amax(-1, True)).softmax(-1) @ v,
        _FOUR,
        "",
    ),
    "values of another dtype": (
        lambda q, k, v: (q @ k.mT).softmax(-1).double() @ v.double(),
        _FOUR,
        "dtypes differ",
    ),
    "one head of keys": (
        lambda q, k, v: (q @ k[:, :1].mT).softmax(-1) @ v,
        _FOUR,
        "heads differ",
    ),
    "a bias is written afterwards": (_with_written_bias, _FOUR, "may be written to in between"),
    "a conversion is written": (_with_written_copy, _FOUR, "may be read elsewhere is written"),
    "two dimensions": (lambda q, k, v: (q @ k.mT).softmax(-1) @ v, queries(), "dimensions"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_something_else_is_left_with_the_reason(name: str) -> None:
    function, given, reason = LEFT[name]
    expected = function(*(tensor.clone() for tensor in given))
    found, sites = compiled(function, *given)
    torch.testing.assert_close(found, expected)
    if reason:
        (site,) = sites
        assert (site.function, site.implementation) == ("softmax", "")
        assert reason in site.reason


def test_dropout_in_training_is_torchs() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.dropout((q @ k.mT).softmax(-1), 0.5) @ v

    out, (site,) = compiled(attend, *_FOUR)
    assert not site.implementation
    assert "torch draws other weights" in site.reason
    assert (out - attend(*_FOUR)).abs().max() > 1e-3


_DOT_PRODUCTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "bool": {"attn_mask": _SEEN},
    "bool of rows": {"attn_mask": _SEEN[0, 0]},
    "bool of heads": {"attn_mask": _SEEN.expand(2, 4, -1, -1)},
    "added": {"attn_mask": _BIAS},
}


@pytest.mark.parametrize("three", [False, True])
@pytest.mark.parametrize("name", _DOT_PRODUCTS)
def test_torchs_function_is_a_call_of_ours(name: str, three: bool) -> None:
    words = _DOT_PRODUCTS[name]
    given = _THREE if three else _FOUR
    if three and isinstance(words.get("attn_mask"), Tensor):
        words = {"attn_mask": words["attn_mask"].flatten()[: 20 * 24].view(20, 24)}
    tensors = [tensor.clone().requires_grad_() for tensor in given]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, **words)

    expected, (found, sites) = attend(*tensors), compiled(attend, *tensors)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    (site,) = sites
    assert (site.function, site.implementation) == ("scaled_dot_product_attention", "cpu.native")
    ours = torch.autograd.grad(found.square().sum(), tensors)
    theirs = torch.autograd.grad(expected.square().sum(), tensors)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_layers_share_a_causal_mask_that_is_made_once() -> None:
    graphs: list[fx.GraphModule] = []

    def inner(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward  # type: ignore[no-any-return]

    def layers(q: Tensor, k: Tensor, shown: Tensor) -> Tensor:
        for _ in range(3):
            q = functional.scaled_dot_product_attention(q, k, k, attn_mask=shown)
            q = functional.scaled_dot_product_attention(q, k, k, is_causal=True)
        return q

    expected = layers(*_FOUR[:2], _SEEN)
    found, sites = compiled(layers, *_FOUR[:2], _SEEN, inner=inner)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert sum(site.calls for site in sites if site.implementation) == 6
    made = [node for node in graphs[0].graph.nodes if "block_mask" in str(node.target)]
    assert len(made) == 1


def test_a_mask_that_is_written_to_between_two_layers() -> None:
    def layers(q: Tensor, k: Tensor, shown: Tensor) -> Tensor:
        shown = shown.clone()
        q = functional.scaled_dot_product_attention(q, k, k, attn_mask=shown)
        shown.logical_or_(shown.flip(-1))
        return functional.scaled_dot_product_attention(q, k, k, attn_mask=shown)

    expected = layers(*_FOUR[:2], _SEEN)
    found, sites = compiled(layers, *_FOUR[:2], _SEEN)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert sum(site.calls for site in sites if site.implementation) == 2


@pytest.mark.sweep
@pytest.mark.parametrize("inner", ["eager", "aot_eager", None])
def test_lengths_may_be_dynamic(inner: str | None) -> None:
    reroute = GraphReroute(inner)

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, shown: Tensor) -> Tensor:
        written = ((q @ k.mT) * 0.25 + bias).softmax(-1) @ v
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=shown)
        causal = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return written + seen + causal

    compiled = torch.compile(attend, backend=reroute, fullgraph=True)
    for rows, keys in ((20, 24), (33, 33), (7, 300)):
        q, k, v = (drawn(2, 4, n, 16, seed=n) for n in (rows, keys, keys + 1))
        v = v[:, :, 1:]
        bias, shown = drawn(2, 1, 1, keys), drawn(2, 1, rows, keys) > -1
        torch.testing.assert_close(
            compiled(q, k, v, bias, shown), attend(q, k, v, bias, shown), rtol=1e-4, atol=1e-5
        )
    # For the first lengths, for others, and perhaps for more keys than a block of a mask has.
    assert sum(site.calls for site in reroute.explain()) in (6, 9)
    assert all(site.implementation for site in reroute.explain()), reroute.explain()
