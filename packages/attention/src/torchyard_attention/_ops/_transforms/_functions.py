"""Attention and its gradients as torch.autograd.Functions, in the form that torch.func takes.

A call that no transform takes part in is recorded by ``_autograd`` instead, which costs less.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchyard_attention._ops._arguments import COMMON, dropout_arguments, flattened, rebuilt
from torchyard_attention._ops._autograd import input_gradients
from torchyard_attention._ops._transforms._batching import Batch, one_by_one, refuse_mapped_mask
from torchyard_attention._ops._transforms._composed import (
    composed,
    composed_gradients,
    floating,
)
from torchyard_attention._ops._transforms._plan import Op, Plan, captured_of, tensors, with_captured
from torchyard_attention._ops._transforms._tangents import tangents
from torchyard_attention._torch_compat import forward_levels
from torchyard_programs import pullback, pushforward

__all__ = ["backward", "forward"]


def forward(op: Op, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Compute a call of the forward op that is differentiated or transformed."""
    common, (_, max_scores, grad, use, *dropout) = given[:COMMON], given[COMMON:]
    # Every derivative needs the lse.
    call = rebuilt(common, dropout, lse=True, max_scores=max_scores, grad=grad)
    refuse_mapped_mask(call)
    if forward_levels() > 1:
        # torch switches forward mode off in a Function's jvp, whose own tangent would be zero.
        return composed(call)
    found: tuple[Tensor, Tensor, Tensor] = _Attention.apply(  # type: ignore[no-untyped-call]
        Plan.of(op, call, use), *tensors(call)
    )
    return found


def backward(
    op: Op, grad_out: Tensor, grad_lse: Tensor | None, out: Tensor, lse: Tensor, *given: Any
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Compute a call of the backward op that is differentiated or transformed.

    ``out`` and ``lse`` are taken for what the other arguments give, so nothing is differentiated
    through them.
    """
    common, (wanted, *dropout) = given[:COMMON], given[COMMON:]
    call = rebuilt(common, dropout, lse=True, max_scores=False, grad=True, captured_grad=wanted)
    refuse_mapped_mask(call)
    if forward_levels() > 1:
        found = composed_gradients(call, grad_out, grad_lse)
    else:
        slopes = (grad_out, grad_lse, out.detach(), lse.detach())
        found = _Gradients.apply(  # type: ignore[no-untyped-call]
            Plan.of(op, call), *slopes, *tensors(call)
        )
    return found[0], found[1], found[2], list(found[3:])


class _Attention(torch.autograd.Function):
    """(plan, tensors) -> out, lse, max_scores; the last empty where it is not asked for."""

    @staticmethod
    def forward(plan: Plan, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        call = plan.call(given)
        found: tuple[Tensor, Tensor, Tensor] = plan.op(
            *flattened(call),
            call.lse,
            call.max_scores,
            call.grad,
            plan.use,
            *dropout_arguments(call),
        )
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.plan, *given = inputs
        ctx.save_for_backward(*output[:2], *given)
        ctx.save_for_forward(*output[:2], *given)
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, _: Any
    ) -> tuple[Any, ...]:
        out, lse, *given = ctx.saved_tensors
        wanted = tuple(ctx.needs_input_grad[4 : 4 + ctx.plan.counts[0]])
        found = input_gradients(ctx.plan.call(given), grad_out, grad_lse, out, lse, wanted)
        return None, *found[:3], *found.captured, *(None,) * ctx.plan.others

    @staticmethod
    def jvp(ctx: Any, _: None, *directions: Tensor | None) -> tuple[Tensor, Tensor, None]:
        out, lse, *given = ctx.saved_tensors
        used = directions[: 3 + ctx.plan.counts[0]]
        return *tangents(ctx.plan.call(given), out, lse, used), None

    @staticmethod
    def vmap(
        info: Any, dims: tuple[Any, ...], plan: Plan, *given: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        batch = Batch(plan, info.batch_size, given, dims[1:])
        if not batch.folds:
            found = one_by_one(
                lambda *some: _Attention.apply(plan, *some),  # type: ignore[no-untyped-call]
                info.batch_size,
                given,
                dims[1:],
            )
            return found, (0, 0, 0)
        whole = batch.folded()
        out, lse, greatest = _Attention.apply(  # type: ignore[no-untyped-call]
            Plan.of(plan.op, whole, plan.use), *tensors(whole)
        )
        greatest = (
            batch.unfold(greatest) if whole.max_scores else greatest.expand(info.batch_size, 0)
        )
        return (batch.unfold(out), batch.unfold(lse), greatest), (0, 0, 0)


class _Gradients(torch.autograd.Function):
    """(plan, grad_out, grad_lse or None, out, lse, tensors) -> gradients, one by one."""

    @staticmethod
    def forward(
        plan: Plan,
        grad_out: Tensor,
        grad_lse: Tensor | None,
        out: Tensor,
        lse: Tensor,
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        call = plan.call(given)
        *found, captured = plan.op(
            grad_out,
            grad_lse,
            out,
            lse,
            *flattened(call),
            list(call.captured_grad),
            *dropout_arguments(call),
        )
        return *found, *captured

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.plan, grad_out, grad_lse, _, _, *given = inputs
        ctx.save_for_backward(grad_out, grad_lse, *given)
        ctx.save_for_forward(grad_out, grad_lse, *given)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Any, ...]:
        primals, function, places = _as_function(ctx)
        found = pullback(function, primals, slopes)
        result: list[Any] = [None] * len(ctx.needs_input_grad)
        for place, gradient in zip(places, found, strict=True):
            result[place] = gradient
        return tuple(result)

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> tuple[Tensor, ...]:
        primals, function, places = _as_function(ctx)
        moved = tuple(
            torch.zeros_like(primal) if directions[place] is None else directions[place]
            for primal, place in zip(primals, places, strict=True)
        )
        return pushforward(function, primals, moved)[1]

    @staticmethod
    def vmap(
        info: Any,
        dims: tuple[Any, ...],
        plan: Plan,
        *rest: Any,
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        wanted = plan.skeleton.captured_grad
        slopes, given = rest[:4], rest[4:]
        batch = Batch(plan, info.batch_size, given, dims[5:])
        count = 3 + sum(wanted)
        if not batch.folds:
            found = one_by_one(
                lambda *some: _Gradients.apply(plan, *some),  # type: ignore[no-untyped-call]
                info.batch_size,
                rest,
                dims[1:],
            )
            return found, (0,) * count
        whole = batch.folded()
        folded = [
            None if slope is None else batch.fold(slope, dim)
            for slope, dim in zip(slopes, dims[1:5], strict=True)
        ]
        found = _Gradients.apply(  # type: ignore[no-untyped-call]
            Plan.of(plan.op, whole), *folded, *tensors(whole)
        )
        return (*(batch.unfold(part) for part in found[:3]), *found[3:]), (0,) * count


def _as_function(ctx: Any) -> tuple[tuple[Tensor, ...], Any, list[int]]:
    """Return the tensors that gradients depend on, gradients as a function of them, and the
    index of each of them among the inputs."""
    grad_out, grad_lse, *given = ctx.saved_tensors
    call = ctx.plan.call(given)
    captured = captured_of(call)
    floats = floating(captured)
    slopes = [grad_out] if grad_lse is None else [grad_out, grad_lse]

    def function(*primals: Tensor) -> tuple[Tensor, ...]:
        some = iter(primals)
        of_out = next(some)
        of_lse = None if grad_lse is None else next(some)
        query, key, value = next(some), next(some), next(some)
        moved = replace(call, query=query, key=key, value=value)
        moved = with_captured(moved, dict(zip(floats, some, strict=True)))
        return composed_gradients(moved, of_out, of_lse)

    primals = (*slopes, *given[:3], *(captured[place] for place in floats))
    places = [1, *([] if grad_lse is None else [2]), 5, 6, 7, *(8 + place for place in floats)]
    return primals, function, places
