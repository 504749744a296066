"""Laws of gradients: gradcheck, gradients on demand only, and second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from torchyard import use
from torchyard_attention import DoubleBackwardError, flex_attention
from torchyard_attention.cases import Case
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import request_of
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._attention._rulers import cotangents
from torchyard_conformance._outcome import NotSupported, Violated

__all__ = ["captured_on_demand", "differentiates_twice_or_says_no", "gradients_are_differences"]

# Differences over 2e-6 lose about ten of float64's sixteen digits.
_ABSOLUTE: Final = 1e-6
_RELATIVE: Final = 1e-4


class _Attention(torch.autograd.Function):
    """A forward and the kernel's backward, so that gradcheck can compare them."""

    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, call: AttentionCall, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.kernel, ctx.call = kernel, _on_tensors(call, tensors)
        result = _forward_of(kernel, ctx.call)
        assert result.lse is not None
        ctx.save_for_backward(result.out, result.lse)
        return result.out, result.lse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        out, lse = ctx.saved_tensors
        found = ctx.kernel.gradients(ctx.call, out, lse, grads[0], grads[1])
        captured = found.captured or (None,) * len(_captured(ctx.call))
        return None, None, found.query, found.key, found.value, *captured


def gradients_are_differences(kernel: Kernel, case: Case) -> dict[str, float]:
    """Compare float64 gradients with differences of outputs, as torch.autograd.gradcheck does."""
    call = kernel.accept(case)
    if call.query.dtype != torch.float64:
        raise NotSupported("differences need float64")
    captured = tuple(t.double() if t.is_floating_point() else t for t in _captured(call))
    leaves = [
        tensor.detach().clone().requires_grad_(tensor.is_floating_point())
        for tensor in (call.query, call.key, call.value, *captured)
    ]

    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = _Attention.apply(kernel, call, *tensors)  # type: ignore[no-untyped-call]
        return result

    try:
        torch.autograd.gradcheck(function, leaves, atol=_ABSOLUTE, rtol=_RELATIVE)
    except GradcheckError as error:
        raise Violated(" ".join(str(error).split())[:400]) from error
    return {"inputs": float(len(leaves))}


def captured_on_demand(kernel: Kernel, case: Case) -> dict[str, float]:
    """Ask for each captured tensor's gradient alone, and for none."""
    call = kernel.accept(case)
    wanted = call.captured_grad
    if not any(wanted):
        raise NotSupported("nothing is captured that has a gradient")
    given = cotangents(case, True).to(kernel.device)
    for index in [i for i, flag in enumerate(wanted) if flag]:
        one = tuple(i == index for i in range(len(wanted)))
        got = kernel.gradients(replace(call, captured_grad=one), *given).captured
        if [grad is not None for grad in got] != list(one):
            raise Violated(f"captured: asked for {list(one)}, got {[g is not None for g in got]}")
    for none in ((), (False,) * len(wanted)):
        got = kernel.gradients(replace(call, captured_grad=none), *given).captured
        if any(grad is not None for grad in got):
            raise Violated(f"captured: asked for {list(none)}, got {len(got)} gradients")
    return {"captured": float(sum(wanted))}


def differentiates_twice_or_says_no(kernel: Kernel, case: Case) -> dict[str, float]:
    """Ask for gradients of gradients through flex_attention: right, or a typed error."""
    call = kernel.accept(case)
    inputs = (call.query, call.key, call.value)

    def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out: Tensor = flex_attention(query, key, value, scale=call.scale, enable_gqa=True)
        return out

    plain = partial(_plain_attention, call.scale)
    with use(attention_backward=kernel.name):
        try:
            found = _second_gradients(function, inputs)
        except DoubleBackwardError:
            return {}
    exact = _second_gradients(plain, [tensor.double() for tensor in inputs])
    worst = 0.0
    for mine, right, rounding in zip(found, exact, _second_rounding(plain, inputs), strict=True):
        if mine is None or right is None:
            raise Violated("gradients of gradients are lost without an error")
        unit = torch.finfo(call.query.dtype).eps * float(right.abs().max())
        allowed = 8 * rounding + 8 * unit
        worst = max(worst, float((mine.double() - right).abs().max()) / allowed)
    if not worst <= 1.0:
        raise Violated(f"gradients of gradients are {worst:.1f} times as far off as is allowed")
    return {"second_order": worst}


def _second_rounding(plain: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[float]:
    """Return the greatest error of each second gradient that a naive computation rounds to.

    Nothing is wider than float64, so its errors are those of float32 in proportion to the units.
    """
    dtype = inputs[0].dtype
    low = torch.float32 if dtype == torch.float64 else dtype
    rounded = [tensor.to(low) for tensor in inputs]
    naive = _second_gradients(plain, rounded)
    exact = _second_gradients(plain, [tensor.double() for tensor in rounded])
    scale = torch.finfo(dtype).eps / torch.finfo(low).eps
    return [
        0.0 if rough is None or right is None else scale * float((rough - right).abs().max())
        for rough, right in zip(naive, exact, strict=True)
    ]


def _second_gradients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Return the gradients, of every input, of the gradients' sum of squares."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    try:
        first = torch.autograd.grad(function(*leaves).square().sum(), leaves, create_graph=True)
        total = sum(
            (grad.square().sum() for grad in first), torch.zeros((), device=first[0].device)
        )
        if not total.requires_grad:
            return (None,) * len(leaves)
        return torch.autograd.grad(total, leaves, allow_unused=True)
    except DoubleBackwardError:
        raise
    except Exception as error:
        raise Violated(f"demanded by name, a backward raises {error}"[:600]) from error


def _plain_attention(scale: float, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
    return (query @ key.mT * scale).softmax(dim=-1) @ value


def _forward_of(kernel: Kernel, call: AttentionCall) -> AttentionResult:
    """Compute out and lse by the same plugin's forward where it has one that accepts the call."""
    if kernel.forward_half is None:
        return reference_forward(call)
    half = Kernel(kernel.forward_half, kernel.device, kernel.platform)
    if not half.verdict(request_of(call, grad=True)).supported:
        return reference_forward(call)
    return half.run(call)


def _captured(call: AttentionCall) -> tuple[Tensor, ...]:
    return call.score_mod.captured if call.score_mod is not None else ()


def _on_tensors(call: AttentionCall, tensors: Sequence[Tensor]) -> AttentionCall:
    """Return the call on other tensors: query, key, value and what the score_mod captures."""
    mod: Any = call.score_mod
    if mod is not None:
        mod = replace(mod, captured=tuple(tensor.detach() for tensor in tensors[3:]))
    query, key, value = (tensor.detach() for tensor in tensors[:3])
    return replace(call, query=query, key=key, value=value, score_mod=mod)
