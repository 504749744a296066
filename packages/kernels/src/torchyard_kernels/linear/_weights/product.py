"""The product of a layer with a packed weight."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.linear._api import linear
from torchyard_kernels.linear._weights.packed_weight import PackedWeight
from torchyard_kernels.linear._weights.storage import Joint, Part

__all__ = ["packed_linear", "packed_product"]

# After so many products of which not all parts were used, the parts are multiplied separately.
_MOST_WASTED = 4


def packed_linear(x: Tensor, packed: PackedWeight, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight.T + bias``; x of another dtype is converted, and the result back.

    Args:
        x: [..., K]. packed: [N, K]. bias: [N], or None.
    """
    dtype = packed.dtype
    if x.dtype != dtype or (bias is not None and bias.dtype != dtype):
        near = None if bias is None else bias.to(dtype)
        return linear(x.to(dtype), packed, near).to(x.dtype)
    return linear(x, packed, bias)


def packed_product(x: Tensor, part: Part, bias: Tensor | None) -> Tensor:
    """Return the product with a weight that may be a part of several.

    Without gradients the first part that is given an input multiplies by all, and the others take
    theirs if this thread gives them the very same tensor, unchanged, before anything else.
    """
    joint = part.joint
    if (
        joint is None
        or joint.wasted >= _MOST_WASTED
        or torch.is_grad_enabled()
        or torch.compiler.is_compiling()
    ):
        return packed_linear(x, part.packed, bias)
    out = _LAST.part(joint, part.index, x)
    if bias is None:
        return out
    return out + bias if bias.dtype == out.dtype else (out + bias).to(out.dtype)


class _Last(threading.local):
    """The outputs that this thread's last product of a joint left for the parts to take.

    They are kept no longer than until the last part took its own.
    """

    joint: Joint | None = None
    x: Tensor | None = None
    version = 0, 0
    outs: dict[int, Tensor] = {}  # noqa: RUF012 - replaced, never changed, before it is filled

    def part(self, joint: Joint, index: int, x: Tensor) -> Tensor:
        """Return the outputs of one part, without a bias."""
        # Not only x may change in place between two parts, the weights may too.
        version = (-1 if x.is_inference() else x._version), joint.writes
        known = self.joint is joint and self.x is x and self.version == version
        if not known or index not in self.outs:
            if self.joint is not None and self.outs:
                self.joint.wasted += 1
            whole: Any = packed_linear(x, joint.whole, None)
            self.outs = dict(enumerate(whole.split(joint.sizes, -1)))
            self.joint, self.x, self.version = joint, x, version
        out = self.outs.pop(index)
        if not self.outs:
            self.joint = self.x = None
        return out


_LAST = _Last()
