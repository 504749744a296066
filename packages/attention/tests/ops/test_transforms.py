"""Derivatives and batches by torch.func and by autograd are those of the equations, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.utils.checkpoint import checkpoint

from torchyard_attention import (
    AuxRequest,
    create_block_mask,
    flex_attention,
    varlen_attention,
)

B, H, KV, S, D, V = 2, 4, 2, 7, 5, 3
F = Callable[..., Tensor]


def _normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


SHAPES = ((B, H, S, D), (B, KV, S, D), (B, KV, S, V), (H,), (B, S))
GIVEN = tuple(_normal(seed, *shape) for seed, shape in enumerate(SHAPES))
ALONG = tuple(_normal(seed + 10, *shape) for seed, shape in enumerate(SHAPES))
EVERY = tuple(range(5))
QUERIES = _normal(20, 3, *SHAPES[0])
KEYS = _normal(21, B, 3, *SHAPES[1][1:])
SLOPES = _normal(22, 3, H)
BIASES = _normal(23, B, S, 3)

# The first rows of the second batch see nothing.
MASK = create_block_mask(
    lambda b, h, q, k: (q >= k) & (k >= 2 * b), B, None, S, S, "cpu", BLOCK_SIZE=4
)
_PLACES = torch.arange(S)
VISIBLE = (_PLACES[:, None] >= _PLACES) & (2 * torch.arange(B).view(B, 1, 1, 1) <= _PLACES)


def _pointwise(slopes: Tensor, bias: Tensor) -> Callable[..., Any]:
    return lambda s, b, h, q, k: torch.tanh(s) * slopes[h] + bias[b, k] * s


def _general(slopes: Tensor, bias: Tensor) -> Callable[..., Any]:
    return lambda s, b, h, q, k: torch.tanh(s) * slopes.sum() + bias[b].sum() * s


def _ours(score: Callable[..., Any]) -> F:
    def attend(query: Tensor, key: Tensor, value: Tensor, slopes: Tensor, bias: Tensor) -> Tensor:
        mod = score(slopes, bias)
        out: Tensor = flex_attention(query, key, value, mod, MASK, enable_gqa=True)
        return out

    return attend


def _written_out(general: bool) -> F:
    def attend(query: Tensor, key: Tensor, value: Tensor, slopes: Tensor, bias: Tensor) -> Tensor:
        key, value = (part.repeat_interleave(H // KV, dim=1) for part in (key, value))
        s = query @ key.mT / D**0.5
        if general:
            s = torch.tanh(s) * slopes.sum() + bias.sum(-1)[:, None, None, None] * s
        else:
            s = torch.tanh(s) * slopes[:, None, None] + bias[:, None, None, :] * s
        # Not softmax, which is undefined for a row that sees nothing.
        weights = torch.exp(s) * VISIBLE
        total = weights.sum(-1, keepdim=True)
        return weights / torch.where(total == 0, 1.0, total) @ value

    return attend


def _square(f: F) -> F:
    return lambda *given: f(*given).square().sum()


def _leaves() -> list[Tensor]:
    return [tensor.clone().requires_grad_() for tensor in GIVEN]


def _twice(f: F, times: int = 2) -> Any:
    leaves = _leaves()
    found: Any = [f(*leaves)]
    for _ in range(times):
        total = sum(part.square().sum() for part in found)
        found = torch.autograd.grad(total, leaves, create_graph=True)
    return found


def _many_slopes(f: F) -> Any:
    leaves = _leaves()
    slopes = _normal(30, 3, B, H, S, V)
    return torch.autograd.grad(f(*leaves), leaves, slopes, is_grads_batched=True)


def _dual(f: F) -> Any:
    with forward_ad.dual_level():
        given = [forward_ad.make_dual(x, t) for x, t in zip(GIVEN, ALONG, strict=True)]
        return tuple(forward_ad.unpack_dual(f(*given)))


def _dual_gradient(f: F) -> Any:
    leaves = _leaves()
    with forward_ad.dual_level():
        given = [forward_ad.make_dual(x, t) for x, t in zip(leaves, ALONG, strict=True)]
        found = torch.autograd.grad(f(*given).square().sum(), leaves)
        return [tuple(forward_ad.unpack_dual(part)) for part in found]


def _checkpointed(f: F) -> Any:
    leaves = _leaves()
    return torch.autograd.grad(checkpoint(f, *leaves, use_reentrant=False).square().sum(), leaves)


class _Layer(torch.nn.Module):
    def __init__(self, f: F) -> None:
        super().__init__()
        self.f, self.slopes = f, torch.nn.Parameter(GIVEN[3].clone())

    def forward(self, query: Tensor) -> Tensor:
        return self.f(query, *GIVEN[1:3], self.slopes, GIVEN[4])


def _per_sample(f: F) -> Any:
    layer = _Layer(f)

    def loss(parameters: dict[str, Tensor], query: Tensor) -> Tensor:
        return functional_call(layer, parameters, (query,)).square().sum()

    return vmap(grad(loss), in_dims=(None, 0))(dict(layer.named_parameters()), QUERIES)


def _nested_forward(f: F) -> Any:
    q, k, v, slopes, bias = GIVEN

    def along_slopes(query: Tensor) -> Tensor:
        found: Tensor = jvp(lambda s: f(query, k, v, s, bias), (slopes,), (ALONG[3],))[1]
        return found

    return jvp(along_slopes, (q,), (ALONG[0],))


TRANSFORMS: dict[str, Callable[[F], Any]] = {
    "grad": lambda f: grad(_square(f), argnums=EVERY)(*GIVEN),
    "vjp": lambda f: vjp(f, *GIVEN)[1](_normal(31, B, H, S, V)),
    "jvp": lambda f: jvp(f, GIVEN, ALONG),
    "jvp of the query": lambda f: jvp(lambda q: f(q, *GIVEN[1:]), GIVEN[:1], ALONG[:1]),
    "jvp of a captured tensor": lambda f: jvp(lambda b: f(*GIVEN[:4], b), GIVEN[4:], ALONG[4:]),
    "jacfwd": lambda f: jacfwd(lambda *x: f(*x).sum((0, 2)), argnums=(3, 4))(*GIVEN),
    "jacrev": lambda f: jacrev(lambda *x: f(*x).sum((0, 2)), argnums=EVERY)(*GIVEN),
    "hessian": lambda f: hessian(_square(f), argnums=(3, 4))(*GIVEN),
    "jacfwd twice": lambda f: jacfwd(jacfwd(_square(lambda s: f(*GIVEN[:3], s, GIVEN[4]))))(
        GIVEN[3]
    ),
    "linearize": lambda f: linearize(f, *GIVEN)[1](*ALONG),
    "vmap over queries": lambda f: vmap(lambda q: f(q, *GIVEN[1:]))(QUERIES),
    "vmap over keys": lambda f: vmap(lambda k: f(GIVEN[0], k, *GIVEN[2:]), in_dims=1)(KEYS),
    "vmap over captured tensors": lambda f: vmap(lambda s, b: f(*GIVEN[:3], s, b), (0, 2))(
        SLOPES, BIASES
    ),
    "vmap over all": lambda f: vmap(
        lambda q, k, s, b: f(q, k, GIVEN[2], s, b), in_dims=(0, 1, 0, 2)
    )(QUERIES, KEYS, SLOPES, BIASES),
    "vmap twice": lambda f: vmap(lambda q: vmap(lambda s: f(q, *GIVEN[1:3], s, GIVEN[4]))(SLOPES))(
        QUERIES
    ),
    "vmap of grad": lambda f: vmap(
        grad(_square(f), argnums=EVERY), in_dims=(0, None, None, None, None)
    )(QUERIES, *GIVEN[1:]),
    "vmap of grad, captured mapped": lambda f: vmap(
        grad(_square(f), argnums=EVERY), in_dims=(0, None, None, 0, None)
    )(QUERIES, *GIVEN[1:3], SLOPES, GIVEN[4]),
    "grad of vmap": lambda f: grad(
        lambda q, s: vmap(lambda one: f(one, *GIVEN[1:3], s, GIVEN[4]))(q).square().sum(), (0, 1)
    )(QUERIES, GIVEN[3]),
    "jvp of vmap": lambda f: jvp(vmap(lambda q: f(q, *GIVEN[1:])), (QUERIES,), (QUERIES.flip(0),)),
    "vmap of jvp": lambda f: vmap(lambda q, t: jvp(lambda x: f(x, *GIVEN[1:]), (q,), (t,)))(
        QUERIES, QUERIES.flip(0)
    ),
    "vmap of hessian": lambda f: vmap(hessian(_square(lambda s: f(*GIVEN[:3], s, GIVEN[4]))))(
        SLOPES
    ),
    "jvp of jvp": _nested_forward,
    "jvp of grad": lambda f: jvp(grad(_square(f), argnums=EVERY), GIVEN, ALONG),
    "grad of jvp": lambda f: grad(
        lambda *x: jvp(lambda s: f(*x[:3], s, x[4]), (x[3],), (ALONG[3],))[1].square().sum(), EVERY
    )(*GIVEN),
    "dual tensors": _dual,
    "gradients of dual tensors": _dual_gradient,
    "is_grads_batched": _many_slopes,
    "checkpoint": _checkpointed,
    "functional_call": _per_sample,
    "create_graph": _twice,
    "create_graph twice": lambda f: _twice(f, 3)[3:],
}


def _same(found: Any, expected: Any) -> None:
    mine, theirs = (torch.utils._pytree.tree_leaves(tree) for tree in (found, expected))
    assert len(mine) == len(theirs) > 0
    for one, other in zip(mine, theirs, strict=True):
        assert one.shape == other.shape
        scale = float(other.detach().abs().max().clamp(min=1.0))
        torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=1e-11)
    assert any(float(other.abs().max()) > 1e-3 for other in theirs)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_gives_what_the_equations_give(name: str) -> None:
    transform = TRANSFORMS[name]
    _same(transform(_ours(_pointwise)), transform(_written_out(general=False)))


GENERAL = ("jvp", "grad", "vmap of grad, captured mapped", "is_grads_batched", "create_graph")


@pytest.mark.parametrize("name", GENERAL)
def test_a_transform_takes_scores_that_no_kernel_computes(name: str) -> None:
    transform = TRANSFORMS[name]
    _same(transform(_ours(_general)), transform(_written_out(general=True)))


def test_nothing_is_mapped_over() -> None:
    f = _ours(_pointwise)
    none = (QUERIES[:0], *GIVEN[1:3], SLOPES[:0], GIVEN[4])
    dims = (0, None, None, 0, None)
    assert vmap(f, in_dims=dims)(*none).shape == (0, B, H, S, V)
    found = vmap(grad(_square(f), argnums=(0, 3)), in_dims=dims)(*none)
    assert [part.shape for part in found] == [(0, B, H, S, D), (0, H)]


def test_gradcheck_in_every_mode() -> None:
    def both(query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
        out, aux = flex_attention(
            query,
            key,
            value,
            lambda s, b, h, q, k: s * slopes[h],
            return_aux=AuxRequest(lse=True),
        )
        return out, aux.lse

    shapes = ((1, 2, 3, 2), (1, 2, 3, 2), (1, 2, 3, 2), (2,))
    inputs = [_normal(seed, *shape).requires_grad_() for seed, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(
        both,
        inputs,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )
    assert torch.autograd.gradgradcheck(both, inputs, check_fwd_over_rev=True)


def test_low_precision_tangents_are_as_near_as_the_format_allows() -> None:
    query, key, value, *_ = (tensor.to(torch.bfloat16) for tensor in GIVEN)
    along = ALONG[0].to(torch.bfloat16)

    def tangent(q: Tensor, k: Tensor, v: Tensor, t: Tensor) -> Tensor:
        found: Tensor = jvp(
            lambda x: flex_attention(x, k, v, block_mask=MASK, enable_gqa=True), (q,), (t,)
        )[1]
        return found

    found = tangent(query, key, value, along)
    exact = tangent(*(tensor.double() for tensor in (query, key, value, along)))
    assert found.dtype == torch.bfloat16
    # Sums are float32; the output that the tangent is taken at, and the result, are rounded once.
    error = float((found.double() - exact).abs().max())
    assert error <= 4 * torch.finfo(torch.bfloat16).eps * float(exact.abs().max())


def test_tangents_of_many_rows_are_taken_some_rows_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torchyard_attention._ops._transforms import _tangents

    f = _ours(_pointwise)
    expected = jvp(f, GIVEN, ALONG)
    monkeypatch.setattr(_tangents, "_PAIRS", B * H * S * 4)
    parts: list[slice] = []
    rows = _tangents._rows

    def noted(call: Any) -> Iterator[Any]:
        for part in rows(call):
            parts.append(part[0])
            yield part

    monkeypatch.setattr(_tangents, "_rows", noted)
    _same(jvp(f, GIVEN, ALONG), expected)
    assert parts == [slice(0, 4), slice(4, 7)], "whole rows of blocks"


def test_what_is_hidden_reaches_no_tangent() -> None:
    query, key, value, *_ = (tensor.clone() for tensor in GIVEN)
    mask = create_block_mask(lambda b, h, q, k: k < 5, None, None, S, S, "cpu", BLOCK_SIZE=4)

    def tangent() -> Tensor:
        found: Tensor = jvp(
            lambda *x: flex_attention(*x, block_mask=mask, enable_gqa=True),
            (query, key, value),
            ALONG[:3],
        )[1]
        return found

    expected = tangent()
    key[:, :, 5:], value[:, :, 5:] = torch.nan, torch.inf
    _same(tangent(), expected)


STARTS = torch.tensor([0, 4, 4, 9])


def _varlen(x: Tensor) -> Tensor:
    out: Tensor = varlen_attention(
        x, x, x, STARTS, causal=True, score_mod=lambda s, b, h, q, k: s * (b + 1) + q - k
    )
    return out


def _varlen_written_out(x: Tensor) -> Tensor:
    parts = []
    for number, (first, last) in enumerate(((0, 4), (4, 4), (4, 9))):
        part = x[first:last].transpose(0, 1)
        places = torch.arange(last - first)
        scores = part @ part.mT / x.shape[2] ** 0.5 * (number + 1) + places[:, None] - places
        weights = torch.exp(scores) * (places[:, None] >= places)
        parts.append((weights / weights.sum(-1, keepdim=True) @ part).transpose(0, 1))
    return torch.cat(parts)


PACKED = _normal(40, 9, 2, 4)
VARLEN: dict[str, Callable[[F], Any]] = {
    "grad": lambda f: grad(_square(f))(PACKED),
    "jvp": lambda f: jvp(f, (PACKED,), (_normal(41, 9, 2, 4),)),
    "jacrev": lambda f: jacrev(lambda x: f(x).sum((1, 2)))(PACKED),
    "hessian": lambda f: hessian(lambda s: _square(f)(PACKED * s))(torch.ones(4).double()),
    "vmap": lambda f: vmap(f)(_normal(42, 3, 9, 2, 4)),
    "vmap of grad": lambda f: vmap(grad(_square(f)))(_normal(42, 3, 9, 2, 4)),
}


@pytest.mark.parametrize("name", VARLEN)
def test_packed_sequences_are_transformed_alike(name: str) -> None:
    _same(VARLEN[name](_varlen), VARLEN[name](_varlen_written_out))


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap over queries", "dual tensors"])
def test_an_exported_program_is_transformed_alike(name: str) -> None:
    class Attend(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, b: Tensor) -> Tensor:
            mod = _pointwise(s, b)
            out: Tensor = flex_attention(q, k, v, mod, enable_gqa=True)
            return out

    program = torch.export.export(Attend(), GIVEN).module()
    _same(TRANSFORMS[name](program), TRANSFORMS[name](Attend()))


def test_a_mask_made_inside_of_a_transform_is_the_same() -> None:
    limits = torch.arange(S).double()

    def attend(scale: Tensor, places: Tensor) -> Tensor:
        mask = create_block_mask(lambda b, h, q, k: places[q] >= places[k], None, None, S, S, "cpu")
        out: Tensor = flex_attention(
            GIVEN[0] * scale, GIVEN[1], GIVEN[2], block_mask=mask, enable_gqa=True
        )
        return out.square().sum()

    at, step = torch.tensor(1.5).double(), 1e-6
    found = grad(attend, argnums=(0, 1))(at, limits)
    slope = (attend(at + step, limits) - attend(at - step, limits)) / (2 * step)
    torch.testing.assert_close(found[0], slope, rtol=1e-6, atol=0)
    assert not found[1].any(), "a mask has no derivative"
