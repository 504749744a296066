"""Attention that a model writes out and sorts that are cut, in compiled graphs, by our ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import torchyard
from torchyard_compile import CallSite, GraphReroute, LinearFusion


def _drawn(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _compiled(
    function: Callable[..., Any], *args: Any, inner: Any = "eager"
) -> tuple[Any, tuple[CallSite, ...]]:
    torch.compiler.reset()
    reroute = GraphReroute(inner)
    return torch.compile(function, backend=reroute, fullgraph=True)(*args), reroute.explain()


def _queries(*batch: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    sizes = ((*batch, 20, 16), (*batch, 24, 16), (*batch, 24, 8))
    return [_drawn(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(sizes)]


_FOUR = _queries(2, 4)
_THREE = _queries(6)
_SEEN = _drawn(2, 1, 20, 24, seed=7) > -0.5
_ADDED = torch.zeros(2, 1, 20, 24).masked_fill(~_SEEN, torch.finfo(torch.float32).min)
_BIAS = _drawn(1, 4, 20, 24, seed=8)


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
    found, sites = _compiled(function, *tensors)
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
    out, sites = _compiled(attend, *_FOUR, bias)
    assert [site.implementation for site in sites] == ["cpu.native"]
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), bias), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_no_further_from_float64_than_what_was_written(dtype: torch.dtype) -> None:
    given = _queries(2, 4, dtype=dtype)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * 0.25 + _BIAS.to(q.dtype)
        return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v

    with torch.no_grad():
        exact = attend(*(tensor.double() for tensor in given))
        found, sites = _compiled(attend, *given)
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


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.sampled_from(range(len(_STEPS))), max_size=5),
    shape=st.sampled_from([(2, 4, 20, 24), (1, 4, 1, 24), (2, 1, 20, 1), (20, 24), (24,), (1, 1)]),
)
def test_any_elementwise_steps_between_are_computed(
    steps: Sequence[int], shape: tuple[int, ...]
) -> None:
    tensor = _drawn(*shape, seed=9)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT
        for step in steps:
            scores = _STEPS[step](scores, tensor.to(q.dtype))
        return scores.softmax(-1) @ v

    with torch.no_grad():
        found, sites = _compiled(attend, *_FOUR)
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
    "two dimensions": (lambda q, k, v: (q @ k.mT).softmax(-1) @ v, _queries(), "dimensions"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_something_else_is_left_with_the_reason(name: str) -> None:
    function, given, reason = LEFT[name]
    expected = function(*(tensor.clone() for tensor in given))
    found, sites = _compiled(function, *given)
    torch.testing.assert_close(found, expected)
    if reason:
        (site,) = sites
        assert (site.function, site.implementation) == ("attention", "")
        assert reason in site.reason


def test_dropout_in_training_is_torchs() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.dropout((q @ k.mT).softmax(-1), 0.5) @ v

    out, (site,) = _compiled(attend, *_FOUR)
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

    expected, (found, sites) = attend(*tensors), _compiled(attend, *tensors)
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
    found, sites = _compiled(layers, *_FOUR[:2], _SEEN, inner=inner)
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
    found, sites = _compiled(layers, *_FOUR[:2], _SEEN)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert sum(site.calls for site in sites if site.implementation) == 2


@pytest.mark.parametrize("inner", ["eager", "aot_eager", "inductor"])
def test_lengths_may_be_dynamic(inner: str) -> None:
    reroute = GraphReroute(inner)

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, shown: Tensor) -> Tensor:
        written = ((q @ k.mT) * 0.25 + bias).softmax(-1) @ v
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=shown)
        causal = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return written + seen + causal

    compiled = torch.compile(attend, backend=reroute, fullgraph=True)
    for rows, keys in ((20, 24), (33, 33), (7, 300)):
        q, k, v = (_drawn(2, 4, n, 16, seed=n) for n in (rows, keys, keys + 1))
        v = v[:, :, 1:]
        bias, shown = _drawn(2, 1, 1, keys), _drawn(2, 1, rows, keys) > -1
        torch.testing.assert_close(
            compiled(q, k, v, bias, shown), attend(q, k, v, bias, shown), rtol=1e-4, atol=1e-5
        )
    # For the first lengths, for others, and perhaps for more keys than a block of a mask has.
    assert sum(site.calls for site in reroute.explain()) in (6, 9)
    assert all(site.implementation for site in reroute.explain()), reroute.explain()


_X = torch.randint(-4, 5, (6, 5, 40), generator=torch.Generator().manual_seed(3)).float()
_X[0, 0, :3] = math.nan


def _distinct(x: Tensor) -> Tensor:
    return x.nan_to_num(9.0) + torch.linspace(0, 0.5, 40)


SELECTED: dict[str, Callable[[Tensor], Any]] = {
    "sort": lambda x: [part[..., :5] for part in torch.sort(x, dim=-1, stable=True)],
    "descending": lambda x: x.sort(-1, descending=True).values[..., :7],
    "parts of two lengths": lambda x: (
        x.sort(dim=-1, stable=True)[0][:, :, :2],
        x.sort(dim=-1, stable=True)[1][:, :, 0],
    ),
    "along columns": lambda x: torch.sort(x, 1, True).values[:, :3],
    "argsort": lambda x: torch.argsort(x, stable=True)[..., :4],
    "argsort method": lambda x: _distinct(x).argsort(-1, True)[..., 0:4],
    "narrow": lambda x: torch.sort(x, stable=True).indices.narrow(-1, 0, 3),
    "topk": lambda x: torch.topk(x, 6).values,
    "topk method": lambda x: x.topk(3, dim=1, largest=False).values,
}


@pytest.mark.parametrize("name", SELECTED)
def test_a_sort_that_is_cut_is_a_selection(name: str) -> None:
    function = SELECTED[name]
    found, sites = _compiled(function, _X)
    torch.testing.assert_close(found, function(_X), rtol=0, atol=0, equal_nan=True)
    assert {site.implementation for site in sites} == {"cpu.native"}


UNSELECTED: dict[str, Callable[[Tensor], Any]] = {
    "all": lambda x: torch.sort(x).values,
    "all indices": lambda x: (x.sort().values[..., :2], x.sort().indices),
    "the last": lambda x: torch.sort(x).values[..., -3:],
    "from the second on": lambda x: torch.sort(x).values[..., 1:4],
    "every other": lambda x: torch.sort(x).values[..., :6:2],
    "another dimension": lambda x: torch.sort(x).values[:, :2],
    "a product of it": lambda x: torch.sort(x).values * 2,
}


@pytest.mark.parametrize("name", UNSELECTED)
def test_a_sort_of_which_more_is_read_is_torchs(name: str) -> None:
    function = UNSELECTED[name]
    found, sites = _compiled(function, _drawn(3, 5, 12))
    torch.testing.assert_close(found, function(_drawn(3, 5, 12)))
    left = [site for site in sites if not site.implementation]
    assert left
    assert all("read at" in site.reason for site in left)


def test_a_checkpoints_block_is_looked_into() -> None:
    def block(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).softmax(-1) @ v

    def layers(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return checkpoint(block, q, k, v, use_reentrant=False)

    tensors = [tensor.clone().requires_grad_() for tensor in _FOUR]
    found, sites = _compiled(layers, *tensors, inner="aot_eager")
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


def test_products_are_fused_by_the_inner_backend() -> None:
    torch.manual_seed(0)
    model, x = _Block(), _drawn(2, 24, 32)
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

    found, (site,) = _compiled(attend, *_FOUR)
    torch.testing.assert_close(found, attend(*_FOUR))
    assert "dtypes differ" in site.reason


def test_what_is_demanded_to_be_torchs_is_left() -> None:
    with torchyard.use(attention="attention.tiled"):
        found, (site,) = _compiled(WRITTEN["plain"][0], *_FOUR)
    assert not site.implementation
    assert "attention.tiled by context" in site.reason
    torch.testing.assert_close(found, WRITTEN["plain"][0](*_FOUR))


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
    attend = WRITTEN["plain"][0]
    compiled = torch.compile(attend, backend=reroute, mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(compiled(*_FOUR), attend(*_FOUR), rtol=1e-4, atol=1e-5)
    torch.compiler.reset()
    wrong = torch.compile(attend, backend=GraphReroute(), options={"no_such_option": 1})
    with pytest.raises(Exception, match="no_such_option"):
        wrong(*_FOUR)
