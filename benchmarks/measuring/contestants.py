"""Who computes a case: this project, and the ways that stock torch offers for the same call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as stock
from torch.nn.functional import scaled_dot_product_attention as sdpa

import torchyard_attention
from benchmarks.attention.paged import decodes, paged
from benchmarks.measuring.cases import Case, Part, Rival

__all__ = ["OURS", "Attention", "Contestant", "contestants", "ruler"]

# (query, key, value, *parameters) -> out
Attention = Callable[..., Tensor]
OURS = "torchyard"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to compute a case.

    Attributes:
        name: who.
        attend: the computation.
        computed_by: its implementation.
    """

    name: str
    attend: Attention
    computed_by: str


def contestants(case: Case, demand: str | None) -> list[Contestant]:
    """Return the contestants, ours first; masks and compilation are prepared outside the timing.

    Args:
        case: the call.
        demand: the implementation that ours must be; None: the one that the registry chooses.
    """
    found = [_ours(case, demand)]
    if decodes(case):
        ways = paged(demand)
        found += [Contestant(name, way, "pages of a cache") for name, way in ways.items()]
    additive = case.score is None or _is_additive(case)
    if additive:
        rivals = _sdpa(case)
        found += [Contestant(f"{Rival.SDPA}{name}", way, "torch") for name, way in rivals.items()]
    # Compiled flex_attention has no backward pass on the CPU.
    if case.compiled_flex and not case.training:
        # Eight earlier cases would otherwise push this one to torch's uncompiled path.
        torch._dynamo.reset()
        compiled = torch.compile(_flex(case, stock, {}), dynamic=False)
        found.append(Contestant(f"{Rival.FLEX}, compiled", compiled, "torch"))
    return found


def ruler(case: Case) -> Attention:
    """Return attention written out over all pairs, in float64."""
    _, q_heads, kv_heads, *_, head_dim = case.shape
    group = q_heads // kv_heads

    def attend(query: Tensor, key: Tensor, value: Tensor, *parameters: Tensor) -> Tensor:
        batches, _, q_length, _ = query.shape
        row, column = torch.arange(q_length)[:, None], torch.arange(key.shape[2])
        score_mod = case.score_mod(parameters)
        outs = []
        # One head at a time: a long cache in float64 would not fit.
        for batch in range(batches):
            for head in range(q_heads):
                keys, values = (x[batch, head // group].double() for x in (key, value))
                scores = query[batch, head].double() @ keys.T / math.sqrt(head_dim)
                if score_mod is not None:
                    scores = score_mod(scores, batch, head, row, column)
                if case.mask_mod is not None:
                    hidden = ~case.mask_mod(batch, head, row, column)
                    scores = scores.masked_fill(hidden, -math.inf)
                outs.append(torch.softmax(scores, dim=-1) @ values)
        return torch.stack(outs).view(batches, q_heads, q_length, head_dim)

    return attend


def _ours(case: Case, demand: str | None) -> Contestant:
    options: dict[str, Any] = {} if demand is None else {"implementation": demand}
    attend = _flex(case, torchyard_attention, options)
    query, key, value, *parameters = case.inputs(case.dtype, grad=case.training)
    asked = _arguments(case, torchyard_attention)
    parts = [case.part is Part.BACKWARD] if case.part is not Part.BOTH else [False, True]
    computed_by = [
        torchyard_attention.explain(
            query,
            key,
            value,
            score_mod=case.score_mod(tuple(parameters)),
            backward=part,
            **asked,
            **({} if part else options),
        ).name
        for part in parts
    ]
    return Contestant(OURS, attend, ", ".join(dict.fromkeys(computed_by)))


def _sdpa(case: Case) -> dict[str, Attention]:
    """Return every exact way to say the case to scaled_dot_product_attention.

    Which is fastest differs by shape and dtype (grouped heads computed by ``enable_gqa`` can take
    nine times as long as the same heads folded into rows), so all of them compete.
    """
    _, q_heads, kv_heads, *_ = case.shape
    group = q_heads // kv_heads
    options: dict[str, Any] = {}
    if case.score is None and case.causal:
        options = {"is_causal": True}
    elif case.score is not None or case.mask_mod is not None:
        options = {"attn_mask": _dense_mask(case, case.parameters)}

    def plain(query: Tensor, key: Tensor, value: Tensor, *parameters: Tensor) -> Tensor:
        if parameters:
            return sdpa(query, key, value, attn_mask=_dense_mask(case, parameters))
        return sdpa(query, key, value, **options)

    def flagged(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return sdpa(query, key, value, enable_gqa=True, **options)

    def repeated(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        return sdpa(query, key, value, **options)

    def folded(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        batch, _, length, head_dim = query.shape
        rows = query.reshape(batch, kv_heads, group * length, head_dim)
        return sdpa(rows, key, value).view(batch, q_heads, length, -1)

    if group == 1:
        return {"": plain}
    found: dict[str, Attention] = {", enable_gqa": flagged}
    # For one query the copy takes ten times as long as the call.
    if not case.decoding:
        found[", repeated kv"] = repeated
    if not options:
        found[", folded rows"] = folded
    return found


def _arguments(case: Case, module: Any) -> dict[str, Any]:
    _, q_heads, kv_heads, q_length, kv_length, _ = case.shape
    mask = None
    if case.mask_mod is not None:
        mask = module.create_block_mask(
            case.mask_mod, None, None, q_length, kv_length, device="cpu"
        )
    return {"block_mask": mask, "enable_gqa": q_heads != kv_heads}


def _flex(case: Case, module: Any, options: dict[str, Any]) -> Attention:
    asked = _arguments(case, module) | options

    def attend(query: Tensor, key: Tensor, value: Tensor, *parameters: Tensor) -> Tensor:
        score_mod = case.score_mod(parameters)
        out = module.flex_attention(query, key, value, score_mod=score_mod, **asked)
        assert isinstance(out, Tensor)
        return out

    return attend


def _is_additive(case: Case) -> bool:
    """Return whether adding a bias is all that the score_mod does."""
    score_mod = case.score_mod(case.parameters)
    assert score_mod is not None
    at, moved = (score_mod(torch.tensor(x), 0, *_indices(case)) for x in (0.0, 8.0))
    return torch.allclose(moved - at, torch.tensor(8.0), atol=1e-3)


def _dense_mask(case: Case, parameters: tuple[Tensor, ...]) -> Tensor:
    """Return the mask as bool [1, Sq, Sk], or the bias with what is hidden as [Hq, Sq, Sk]."""
    head, row, column = _indices(case)
    visible = torch.ones((), dtype=torch.bool)
    if case.mask_mod is not None:
        visible = case.mask_mod(0, head, row, column)
    score_mod = case.score_mod(parameters)
    if score_mod is None:
        return visible.expand(1, row.shape[0], column.shape[0])
    bias = score_mod(torch.tensor(0.0), 0, head, row, column)
    bias = bias.expand(case.shape[1], row.shape[0], column.shape[0])
    masked: Tensor = bias.masked_fill(~visible, -math.inf).to(case.dtype)
    return masked


def _indices(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    _, q_heads, _, q_length, kv_length, _ = case.shape
    return (
        torch.arange(q_heads)[:, None, None],
        torch.arange(q_length)[:, None],
        torch.arange(kv_length),
    )
