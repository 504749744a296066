"""Laws of masked keys: whatever they hold, they do not affect a row that does not see them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from torchyard_attention.cases import Case
from torchyard_attention.contract import AttentionCall, AttentionGradients, AttentionResult
from torchyard_attention.visibility import dense_visibility
from torchyard_conformance._attention._judges._outputs import computes, tensors_of
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._attention._rulers import (
    compare,
    compare_gradients,
    cotangents,
    exact,
    on_cpu,
)
from torchyard_conformance._outcome import NotSupported, Violated

__all__ = [
    "bad_row_stays_alone",
    "empty_rows_are_empty",
    "hidden_stays_out",
    "hidden_stays_out_of_gradients",
    "seen_nan_is_shown",
]

_POISONS: Final = (math.nan, math.inf, -math.inf)


def hidden_stays_out(kernel: Kernel, case: Case) -> dict[str, float]:
    """Write NaN and infinities to keys and values; rows that do not see them stay as they were."""
    call = kernel.accept(case)
    visible = _visible(call)
    places = _poisoned(visible)
    clean = (~visible[..., places]).all(dim=-1)
    figures: dict[str, float] = {}
    for target in ("key", "value"):
        for poison in _POISONS:
            result = on_cpu(kernel.run(_with(call, target, places, poison)))
            try:
                found = compare(case, _only(clean, result, exact(case)))
            except Violated as broken:
                raise Violated(f"{poison} in a hidden {target}: {broken}") from broken
            figures = {name: max(x, figures.get(name, 0.0)) for name, x in found.items()}
    return figures


def seen_nan_is_shown(kernel: Kernel, case: Case) -> dict[str, float]:
    """Write NaN to one value: every row that sees it holds NaN, so that no error is hidden."""
    call = kernel.accept(case)
    visible = _visible(call)
    seen = visible[..., call.key.shape[2] // 3]
    if not seen.any():
        raise NotSupported("no row sees the value")
    poisoned = _with(call, "value", torch.tensor([call.key.shape[2] // 3]), math.nan)
    out = kernel.run(poisoned).out.cpu()
    lost = seen & ~out.isnan().all(dim=-1)
    # A weight that is exactly 0 times NaN is NaN too, but score_mods may hide a seen key.
    if case.score_mod == "" and lost.any():
        raise Violated(f"{int(lost.sum())} rows see a value that is NaN and do not hold NaN")
    return {}


def hidden_stays_out_of_gradients(kernel: Kernel, case: Case) -> dict[str, float]:
    """Write NaN and infinities to keys and values that no row sees; no gradient changes."""
    call = kernel.accept(case)
    visible = _visible(call)
    unseen = (~visible).flatten(0, 2).all(dim=0).nonzero().flatten()
    if not unseen.numel():
        raise NotSupported("every key is seen by some row")
    figures: dict[str, float] = {}
    for target in ("key", "value"):
        for poison in _POISONS:
            poisoned = _with(call, target, unseen, poison)
            grads = kernel.gradients(poisoned, *cotangents(case, True).to(kernel.device))
            try:
                found = compare_gradients(case, True, grads)
            except Violated as broken:
                raise Violated(f"{poison} in an unseen {target}: {broken}") from broken
            figures = {name: max(x, figures.get(name, 0.0)) for name, x in found.items()}
    return figures


def bad_row_stays_alone(kernel: Kernel, case: Case) -> dict[str, float]:
    """Write NaN to one row; other rows, and gradients of keys that it does not see, stay."""
    call = kernel.accept(case)
    visible = _visible(call)
    rows = call.query.shape[2]
    bad = torch.zeros(visible.shape[:3], dtype=torch.bool)
    bad[:, :, rows // 2] = True
    bad |= ~visible.any(dim=-1)  # nor do rows that see nothing, such as padding, reach anything
    query = call.query.cpu().masked_fill(bad.unsqueeze(-1), math.nan).to(kernel.device)
    poisoned = replace(call, query=query)
    if not kernel.is_backward:
        result = on_cpu(kernel.run(poisoned))
        return compare(case, _only(~bad, result, exact(case)))
    given = cotangents(case, True)
    assert given.grad_lse is not None
    spoiled = replace(
        given,
        out=given.out.masked_fill((bad & visible.any(dim=-1)).unsqueeze(-1), math.nan),
        lse=given.lse.masked_fill(bad & visible.any(dim=-1), math.nan),
        grad_out=given.grad_out.masked_fill(bad.unsqueeze(-1), math.nan),
        grad_lse=given.grad_lse.masked_fill(bad, math.nan),
    )
    clean = kernel.gradients(call, *given.to(kernel.device))
    grads = kernel.gradients(poisoned, *spoiled.to(kernel.device))
    group = call.query.shape[1] // call.key.shape[1]
    touched = (visible & bad.unsqueeze(-1)).any(dim=2)
    shape = (touched.shape[0], call.key.shape[1], group, touched.shape[2])
    keys = touched.reshape(shape).any(dim=2).unsqueeze(-1)

    def choose(where: Tensor, one: Tensor, other: Tensor) -> Tensor:
        return torch.where(where, one.cpu(), other.cpu())

    return compare_gradients(
        case,
        True,
        AttentionGradients(
            choose((bad & visible.any(dim=-1)).unsqueeze(-1), clean.query, grads.query),
            choose(keys, clean.key, grads.key),
            choose(keys, clean.value, grads.value),
            # A captured tensor's gradient is a sum over all rows.
            clean.captured,
        ),
    )


def empty_rows_are_empty(kernel: Kernel, case: Case) -> dict[str, float]:
    """Look at rows that see no key: exactly 0 and -inf, and gradients of exactly 0."""
    call = kernel.accept(case)
    empty = ~_visible(call).any(dim=-1)
    if not empty.any():
        raise NotSupported("every row sees a key")
    result = computes(kernel, case, call)
    found = {name: tensor.cpu() for name, tensor in tensors_of(result).items()}
    wanted = {"lse": -math.inf, "max_scores": -math.inf, "out": 0.0, "grad_query": 0.0}
    for name, value in wanted.items():
        if name in found and not (found[name][empty] == value).all():
            got = float(found[name][empty].flatten()[0])
            raise Violated(f"{name}: expected {value} in a row that sees nothing, got {got}")
    if isinstance(result, AttentionGradients):
        broken = [name for name, tensor in found.items() if not tensor.isfinite().all()]
        if broken:
            raise Violated(f"{', '.join(broken)}: not finite where some rows see nothing")
    return {"empty_rows": float(empty.sum())}


def _visible(call: AttentionCall) -> Tensor:
    """Return bool [B, Hq, Sq, Sk] on the cpu."""
    batch, heads, rows = call.query.shape[:3]
    keys = call.key.shape[2]
    if call.mask is None:
        return torch.ones((batch, heads, rows, keys), dtype=torch.bool)
    return dense_visibility(call.mask, rows, keys).cpu().expand(batch, heads, rows, keys)


def _poisoned(visible: Tensor) -> Tensor:
    """Return the keys that no row sees, and one that some see and others do not."""
    per_key = visible.flatten(0, 2)
    chosen = ~per_key.any(dim=0)
    mixed = (per_key.any(dim=0) & ~per_key.all(dim=0)).nonzero().flatten()
    if mixed.numel():
        chosen[mixed[mixed.numel() // 2]] = True
    if not chosen.any():
        raise NotSupported("every row sees every key")
    return chosen.nonzero().flatten()


def _with(call: AttentionCall, target: str, keys: Tensor, poison: float) -> AttentionCall:
    tensor = getattr(call, target).cpu().clone()
    tensor[:, :, keys] = poison
    moved = tensor.to(call.query.device)
    return replace(call, key=moved) if target == "key" else replace(call, value=moved)


def _only(rows: Tensor, got: AttentionResult, exact: AttentionResult) -> AttentionResult:
    """Return what was got in these rows, and what is exact in the others."""

    def choose(one: Tensor | None, other: Tensor | None) -> Tensor | None:
        if one is None or other is None:
            return one
        return torch.where(rows if one.ndim == 3 else rows.unsqueeze(-1), one, other)

    out = choose(got.out, exact.out)
    assert out is not None
    return AttentionResult(
        out, choose(got.lse, exact.lse), choose(got.max_scores, exact.max_scores)
    )
