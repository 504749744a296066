"""Whether a call keeps its inputs' tangents, by each API of forward-mode differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchyard import TransformError
from torchyard_conformance._outcome import Violated

__all__ = ["keeps_tangents"]

_Function = Callable[..., Sequence[Tensor]]

# Of a difference in float64: its square is what the difference leaves out, its inverse what is
# lost of the digits.
_STEP: Final = 1e-5
# What both cost together, of the greatest number.
_DIFFERENCE: Final = 1e-7
# Of the error of naive arithmetic, and of a rounding of the greatest number.
_FACTOR: Final = 8.0


def keeps_tangents(
    function: _Function,
    inputs: Sequence[Tensor],
    exact: _Function,
    naive: _Function | None,
    *,
    dual: bool = True,
) -> dict[str, float]:
    """Move all inputs at once, and compare how the outputs move with differences in float64.

    A typed refusal is as good as the right tangent: nothing is wrong in silence.

    Args:
        function: from the inputs to floating-point outputs, through the component's op.
        inputs: floating-point tensors on the device.
        exact: the same in float64 on the CPU, by the contract's reference.
        naive: the same on the CPU in the inputs' dtype by torch's operations, whose error in
            forward mode is the ruler; None: tangents are taken from inputs without arithmetic.
        dual: whether dual numbers of torch.autograd.forward_ad are tried beside torch.func.jvp.

    Returns:
        The greatest error over its bound, and how many of the ways in were refused.

    Raises:
        Violated: a tangent is missing, is zero where it is not, or is wrong.
    """
    generator = torch.Generator().manual_seed(19)
    here = [tensor.detach().cpu() for tensor in inputs]
    moves = [torch.randn(tensor.shape, generator=generator).to(tensor.dtype) for tensor in here]
    right = _differences(exact, here, moves)
    # Of the inputs' own dtype where nothing is computed, so that equal is equal.
    rough = [tensor.to(here[0].dtype) for tensor in right]
    if naive is not None:
        rough = [tangent for tangent in _by_transform(naive, here, moves) if tangent is not None]
    there = [move.to(tensor.device) for move, tensor in zip(moves, inputs, strict=True)]
    ways = {"torch.func.jvp": _by_transform, **({"dual numbers": _by_duals} if dual else {})}
    figures = {"tangent": 0.0, "refused": 0.0}
    for way, push in ways.items():
        try:
            found = push(function, inputs, there)
        except TransformError:
            figures["refused"] += 1.0
            continue
        except Violated:
            raise
        except Exception as error:
            line = (str(error).strip().splitlines() or ["no message"])[0][:300]
            raise Violated(
                f"{way}: expected a tangent or a TransformError, got {type(error).__name__}: {line}"
            ) from error
        if len(found) != len(right):
            raise Violated(f"{way}: expected {len(right)} outputs, got {len(found)}")
        for place, (mine, truth, other) in enumerate(zip(found, right, rough, strict=True)):
            ratio = _ratio(f"{way}: output {place}", mine, truth, other)
            figures["tangent"] = max(figures["tangent"], ratio)
    return figures


def _ratio(what: str, mine: Tensor | None, right: Tensor, rough: Tensor) -> float:
    size = float(right.abs().max()) if right.numel() else 0.0
    if mine is None or (size and not mine.any()):
        lost = "has no tangent" if mine is None else "has a tangent of zeros"
        if size:
            raise Violated(f"{what} {lost}, expected one of up to {size:.3g}")
        return 0.0
    if mine.shape != right.shape:
        raise Violated(f"{what}: expected {list(right.shape)}, got {list(mine.shape)}")
    if not size:
        return 0.0
    unit = (torch.finfo(rough.dtype).eps * _FACTOR + _DIFFERENCE) * size
    bound = _FACTOR * float((rough.double() - right).abs().max()) + unit
    error = float((mine.detach().cpu().double() - right).abs().max())
    if not error <= bound:
        raise Violated(
            f"{what}: the tangent is off by {error:.3g}, {error / bound:.3g} times the bound; it "
            f"is up to {size:.3g}"
        )
    return error / bound


def _differences(
    exact: _Function, inputs: Sequence[Tensor], moves: Sequence[Tensor]
) -> list[Tensor]:
    def moved(by: float) -> Sequence[Tensor]:
        pairs = zip(inputs, moves, strict=True)
        return exact(*[tensor.double() + by * move.double() for tensor, move in pairs])

    with torch.no_grad():
        pairs = zip(moved(_STEP), moved(-_STEP), strict=True)
        return [(ahead.double() - behind.double()) / (2 * _STEP) for ahead, behind in pairs]


def _by_transform(
    function: _Function, inputs: Sequence[Tensor], moves: Sequence[Tensor]
) -> list[Tensor | None]:
    _, found, *_ = torch.func.jvp(lambda *some: tuple(function(*some)), (*inputs,), (*moves,))
    return list(found)


def _by_duals(
    function: _Function, inputs: Sequence[Tensor], moves: Sequence[Tensor]
) -> list[Tensor | None]:
    # torch gives these no types.
    make: Any = forward_ad.make_dual
    unpack: Any = forward_ad.unpack_dual
    with forward_ad.dual_level():
        pairs = zip(inputs, moves, strict=True)
        outputs = function(*[make(tensor, move) for tensor, move in pairs])
        return [unpack(output).tangent for output in outputs]
