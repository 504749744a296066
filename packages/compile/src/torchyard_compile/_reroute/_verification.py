"""A rerouted call beside torch's own, and both beside float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import TorchyardError

__all__ = ["RerouteMismatchError", "compare", "verify"]

# How much further than torch's own result one may be from float64, and how far where torch's is
# exact: sums in another order.
_TIMES: Final = 4.0
_ROUNDINGS: Final = 16.0


class RerouteMismatchError(TorchyardError, ArithmeticError):
    """A rerouted call's result is further from float64 than torch's own result may be."""


def verify(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    found: Any,
) -> None:
    """Compare a result with torch's, by the distance of both from float64.

    Args:
        name, function, args, kwargs: the call.
        found: the result of the op of ours.

    Raises:
        RerouteMismatchError: names the call, and says both distances.
    """
    with torch.no_grad():
        own = list(_tensors(function(*args, **kwargs)))
        if name == "topk":
            # Of equal elements torch may return any, and in any order where none is asked for.
            dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
            theirs, ours = (values.sort(dim).values for values in (own[0], next(_tensors(found))))
            if not torch.equal(theirs, ours):
                raise RerouteMismatchError(f"reroute: {name}: other values than torch's")
            return
        wide = {name: _widened(value) for name, value in kwargs.items()}
        exact = _tensors(function(*_widened(args), **wide))
        for right, theirs, ours in zip(exact, own, _tensors(found), strict=True):
            compare(name, right, theirs, ours)


def compare(name: str, exact: Tensor, own: Tensor, found: Tensor) -> None:
    """Compare a tensor with torch's, by the distance of both from float64's.

    Raises:
        RerouteMismatchError: names the call, and says both distances.
    """
    if found.shape != own.shape or found.dtype != own.dtype:
        raise RerouteMismatchError(
            f"reroute: {name}: expected {list(own.shape)} in {own.dtype}, got "
            f"{list(found.shape)} in {found.dtype}"
        )
    rounding = torch.finfo(own.dtype).eps
    exact, own, found = (tensor.detach().cpu().double() for tensor in (exact, own, found))
    # torch's attention has NaN in rows that see no key, where ours has 0.
    there = exact.isfinite() & own.isfinite()
    if not there.any():
        return
    exact, own, found = exact[there], own[there], found[there]
    distance, ours = float((own - exact).abs().max()), float((found - exact).abs().max())
    allowed = max(_TIMES * distance, _ROUNDINGS * rounding * float(exact.abs().max()))
    if not ours <= allowed:
        raise RerouteMismatchError(
            f"reroute: {name}: expected a result within {allowed:.3g} of float64's, as torch's is "
            f"within {distance:.3g}; got one within {ours:.3g}"
        )


def _widened(value: Any) -> Any:
    """Return a tensor on the CPU, in float64 where it is floating-point."""
    if isinstance(value, (tuple, list)):
        return tuple(_widened(item) for item in value)
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return value.double() if value.is_floating_point() else value


def _tensors(result: Any) -> Iterator[Tensor]:
    """Yield the tensors of a result: itself, or those of a tuple."""
    if isinstance(result, Tensor):
        yield result
        return
    for item in result:
        yield from _tensors(item)
