"""Attention on the device: the contract's numbers, through the registry and on its own."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

pytest.importorskip("torchyard_attention")

from torchyard import Platform, ReasonCode, probe_platform, registry, resolve
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionCall,
    AttentionRequest,
    MaskBlocks,
    MaskKind,
    ScoreKind,
)
from torchyard_simulated._attention_tiles import backward, forward
from torchyard_simulated.attention import NAME, supports, torchyard_implementations


def _blocks(visible: Tensor, rows: int, keys: int) -> MaskBlocks:
    """Build the contract's form of a mask, bool [Bm, Hm, Sq, Sk], one block at a time."""
    batch, heads, queries, length = visible.shape
    q_blocks, k_blocks = math.ceil(queries / rows), math.ceil(length / keys)
    shape = (batch, heads, q_blocks, k_blocks)
    counts = {kind: torch.zeros(shape[:3], dtype=torch.int32) for kind in ("partial", "full")}
    # Unlisted places hold anything: here, a block that is far out of range.
    indices = {kind: torch.full(shape, 999, dtype=torch.int32) for kind in ("partial", "full")}
    first = torch.zeros(shape[:3], dtype=torch.int64)
    bits: list[Tensor] = []
    weights = 2 ** torch.arange(8)
    for b, h, q in torch.cartesian_prod(*map(torch.arange, shape[:3])).tolist():
        first[b, h, q] = len(bits)
        for k in range(k_blocks):
            tile = visible[b, h, q * rows : (q + 1) * rows, k * keys : (k + 1) * keys]
            if not tile.any():
                continue
            kind = "full" if tile.all() else "partial"
            indices[kind][b, h, q, counts[kind][b, h, q]] = k
            counts[kind][b, h, q] += 1
            if kind == "partial":
                padded = torch.zeros(rows, math.ceil(keys / 8) * 8, dtype=torch.int64)
                padded[: tile.shape[0], : tile.shape[1]] = tile
                bits.append((padded.reshape(rows, -1, 8) * weights).sum(-1).to(torch.uint8))
    packed = torch.stack(bits) if bits else torch.zeros(0, rows, math.ceil(keys / 8)).byte()
    return MaskBlocks(
        (rows, keys),
        *(
            x.to("simulated")
            for x in (
                counts["partial"],
                indices["partial"],
                counts["full"],
                indices["full"],
                packed,
                first,
            )
        ),
    )


def _mask(kind: str, batch: int, heads: int, queries: int, keys: int) -> Tensor | None:
    if kind == "none":
        return None
    q, k = torch.arange(queries)[:, None], torch.arange(keys)
    if kind == "causal":
        return (q >= k)[None, None]
    if kind == "empty rows":
        return ((q >= k) & (q % 3 != 0))[None, None]
    generator = torch.Generator().manual_seed(1)
    return torch.rand(batch, heads, queries, keys, generator=generator) > 0.6


def _dense(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Compute out and lse the plain way."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.mT * scale
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    lse = scores.logsumexp(-1)
    weights = torch.where(lse[..., None] == -math.inf, 0.0, (scores - lse[..., None]).exp())
    return weights @ value, lse


def _call(
    inputs: Iterable[Tensor], mask: MaskBlocks | None, scale: float, *, max_scores: bool = False
) -> AttentionCall:
    query, key, value = (x.detach().to("simulated") for x in inputs)
    return AttentionCall(query, key, value, None, mask, scale, lse=True, max_scores=max_scores)


_SHAPES = {
    "plain": (2, 2, 2, 9, 9, 4, 4),
    "grouped": (1, 4, 2, 20, 33, 8, 5),
    "more queries than a tile": (1, 1, 1, 150, 140, 4, 4),
    "one query": (2, 4, 1, 1, 70, 8, 8),
}


@pytest.mark.parametrize("kind", ["none", "causal", "random", "empty rows"])
@pytest.mark.parametrize("shape", _SHAPES)
def test_outputs_and_gradients_are_those_of_dense_attention(shape: str, kind: str) -> None:
    batch, heads, kv_heads, queries, keys, head_dim, value_dim = _SHAPES[shape]
    generator = torch.Generator().manual_seed(0)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    query = draw(batch, heads, queries, head_dim)
    key = draw(batch, kv_heads, keys, head_dim)
    value = draw(batch, keys, kv_heads, value_dim).transpose(1, 2)
    visible = _mask(kind, batch, heads, queries, keys)
    inputs = [x.requires_grad_() for x in (query, key, value)]
    out, lse = _dense(query, key, value, visible, 0.3)
    grad_out = draw(*out.shape)
    grad_lse = torch.where(lse == -math.inf, 0.0, draw(*lse.shape))
    finite = torch.where(lse == -math.inf, 0.0, lse)
    expected = torch.autograd.grad(
        (out * grad_out).nansum() + (finite * grad_lse).sum(), inputs, allow_unused=True
    )

    mask = (
        None
        if visible is None
        else _blocks(visible, 16 if queries < 100 else 72, 24 if keys < 100 else 56)
    )
    call = _call(inputs, mask, 0.3, max_scores=True)
    result = forward(call)
    assert result.out.is_contiguous()
    assert result.lse is not None
    assert result.max_scores is not None
    torch.testing.assert_close(result.out.cpu(), out.detach())
    torch.testing.assert_close(result.lse.cpu(), lse.detach())
    gradients = backward(
        call, result.out, result.lse, grad_out.to("simulated"), grad_lse.to("simulated")
    )
    if kind == "empty rows":
        return  # the dense formula has no gradient there; see the test below
    for want, got in zip(expected, (gradients.query, gradients.key, gradients.value), strict=True):
        assert got.is_contiguous()
        assert want is not None
        torch.testing.assert_close(got.cpu(), want)


def test_without_keys_every_row_is_empty() -> None:
    q, k, v = torch.ones(1, 2, 5, 4), torch.ones(1, 2, 0, 4), torch.ones(1, 2, 0, 3)
    call = _call((q, k, v), None, 1.0)
    result = forward(call)
    assert result.lse is not None
    assert result.out.tolist() == torch.zeros(1, 2, 5, 3).tolist()
    assert (result.lse == -math.inf).all().item()
    gradients = backward(call, result.out, result.lse, torch.ones_like(result.out), None)
    assert gradients.query.count_nonzero().item() == 0
    assert gradients.key.shape == k.shape
    assert gradients.value.shape == v.shape


def test_rows_that_see_no_key_are_zero_and_have_no_gradient() -> None:
    visible = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    visible[0, 0, 2] = False
    q, k, v = torch.randn(3, 1, 1, 4, 8, device="simulated").unbind(0)
    call = AttentionCall(q, k, v, None, _blocks(visible, 2, 2), 1.0, lse=True, max_scores=True)
    result = forward(call)
    assert result.lse is not None
    assert result.max_scores is not None
    assert result.out[0, 0, 2].count_nonzero().item() == 0
    assert result.lse[0, 0, 2].item() == -math.inf
    assert result.max_scores[0, 0, 2].item() == -math.inf
    ones = torch.ones_like(result.out)
    gradients = backward(call, result.out, result.lse, ones, None)
    assert gradients.query[0, 0, 2].count_nonzero().item() == 0
    assert gradients.key.isfinite().all().item()
    assert gradients.value[0, 0].sum(0).tolist() == pytest.approx([3.0] * 8)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_hidden_keys_and_values_reach_nothing(poison: float) -> None:
    visible = torch.ones(1, 1, 6, 6, dtype=torch.bool).tril()
    q, k, v = torch.randn(3, 1, 1, 6, 4, dtype=torch.float64).unbind(0)
    clean = _call((q, k, v), _blocks(visible, 4, 4), 1.0)
    k, v = k.clone(), v.clone()
    k[..., 5, :], v[..., 5, :] = poison, poison  # seen by the last row only
    dirty = _call((q, k, v), _blocks(visible, 4, 4), 1.0)
    results = []
    for call in (clean, dirty):
        result = forward(call)
        assert result.lse is not None
        grad = torch.ones_like(result.out)
        grad[:, :, 5] = 0
        gradients = backward(call, result.out, result.lse, grad, None)
        results.append((result.out[:, :, :5].cpu(), gradients.query[:, :, :5].cpu()))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_a_visible_infinite_value_reaches_its_rows() -> None:
    visible = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    q, k, v = torch.randn(3, 1, 1, 4, 2, dtype=torch.float64).unbind(0)
    v = v.clone()
    v[0, 0, 1, 0], v[0, 0, 2, 1], v[0, 0, 3, 0] = math.inf, math.nan, -math.inf
    call = _call((q, k, v), _blocks(visible, 2, 2), 1.0)
    out = forward(call).out[0, 0].cpu()
    assert out[0].isfinite().all()
    assert out[1, 0] == math.inf
    assert out[1, 1].isfinite()
    assert out[2, 1].isnan()
    assert out[3].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_inputs_are_summed_in_float32(dtype: torch.dtype) -> None:
    q, k, v = torch.randn(3, 1, 2, 40, 8).to(dtype).unbind(0)
    call = _call((q, k, v), None, 0.5)
    result = forward(call)
    out, lse = _dense(q.double(), k.double(), v.double(), None, 0.5)
    assert result.out.dtype == dtype
    assert result.lse is not None
    assert result.lse.dtype == torch.float32
    assert result.max_scores is None
    torch.testing.assert_close(result.lse.cpu().double(), lse, rtol=1e-5, atol=1e-5)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(result.out.cpu().double(), out, rtol=eps, atol=eps / 8)


def test_forward_and_backward_are_captured_in_a_graph() -> None:
    visible = torch.ones(1, 1, 40, 40, dtype=torch.bool).tril()
    mask = _blocks(visible, 16, 16)
    q, k, v = torch.zeros(3, 1, 2, 40, 8, device="simulated").unbind(0)
    call = AttentionCall(q, k, v, None, mask, 0.5, lse=True, max_scores=False)
    graph = torch.accelerator.Graph()
    with torch.Stream("simulated"), graph:
        result = forward(call)
        assert result.lse is not None
        gradients = backward(call, result.out, result.lse, torch.ones_like(result.out), None)
    fresh = torch.randn(3, 1, 2, 40, 8)
    for target, source in zip((q, k, v), fresh, strict=True):
        target.copy_(source)
    graph.replay()
    leaves = fresh.double().requires_grad_()
    out, _ = _dense(leaves[0], leaves[1], leaves[2], visible, 0.5)
    (expected,) = torch.autograd.grad(out.sum(), leaves)
    torch.testing.assert_close(result.out.cpu().double(), out.detach(), rtol=1e-4, atol=1e-5)
    got = torch.stack([gradients.query, gradients.key, gradients.value]).cpu().double()
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def _request(**changes: object) -> AttentionRequest:
    fields: dict[str, object] = {
        "device": "simulated",
        "dtype": "float32",
        "batch": 1,
        "q_heads": 2,
        "kv_heads": 2,
        "q_length": 8,
        "kv_length": 8,
        "head_dim": 4,
        "value_dim": 4,
    }
    return AttentionRequest(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def platform() -> Platform:
    return probe_platform()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("mask", MaskKind)
def test_every_mask_and_floating_dtype_is_accepted(
    platform: Platform, dtype: str, mask: MaskKind
) -> None:
    block_size = (0, 0) if mask is MaskKind.NONE else (16, 16)
    assert supports(_request(dtype=dtype, mask=mask, block_size=block_size), platform).supported


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"device": "cpu"}, ReasonCode.DEVICE),
        ({"dtype": "int8"}, ReasonCode.DTYPE),
        ({"score": ScoreKind.POINTWISE}, ReasonCode.SCORE_MOD),
        ({"score": ScoreKind.GENERAL}, ReasonCode.SCORE_MOD),
    ],
)
def test_unsupported_requests_are_refused_with_a_code(
    platform: Platform, change: dict[str, object], code: ReasonCode
) -> None:
    verdict = supports(_request(**change), platform)
    assert verdict.code is code
    assert verdict.text


@pytest.mark.parametrize("contract", [FORWARD, BACKWARD])
def test_the_hook_offers_one_implementation_per_contract(contract: str) -> None:
    (implementation,) = torchyard_implementations(contract=contract)
    assert implementation.name == NAME
    assert implementation.contract == contract
    assert implementation.load() is (forward if contract == FORWARD else backward)


@pytest.mark.parametrize("contract", [FORWARD, BACKWARD])
def test_the_registry_chooses_it_on_its_device(contract: str) -> None:
    decision = registry().decide(contract, _request(grad=True, lse=True))
    assert decision.chosen is not None, decision.render()
    assert decision.chosen.name == NAME, decision.render()
    loaded = resolve(contract, _request(grad=True, lse=True))
    assert loaded is (forward if contract == FORWARD else backward)


def test_the_registry_passes_over_it_for_modified_scores() -> None:
    decision = registry().decide(FORWARD, _request(score=ScoreKind.POINTWISE))
    assert decision.chosen is not None
    assert decision.chosen.name != NAME
    assert ReasonCode.SCORE_MOD in decision.render()
