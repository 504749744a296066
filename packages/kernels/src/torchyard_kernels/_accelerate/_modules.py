"""What takes the place of a model's modules."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torchyard_kernels._accelerate._gate import Gate
from torchyard_kernels._linear._api import linear
from torchyard_kernels._linear._bound import decide, served
from torchyard_kernels._linear._packed_weight import PackedWeight

__all__ = ["GatedMlp", "PackedLinear", "Projection", "Projections"]


class PackedLinear(torch.nn.Module):
    """A linear layer over a packed weight.

    x of another dtype than the weight's is converted, and the result back.

    Attributes:
        in_features, out_features: K and N.
        packed: the weight.
        bias: the layer's own, [N]; None: none.
    """

    bias: Tensor | None

    def __init__(self, packed: PackedWeight, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = packed.shape
        self.packed = packed
        if bias is None:
            self.register_parameter("bias", None)
        elif isinstance(bias, torch.nn.Parameter):
            self.bias = bias
        else:
            self.register_buffer("bias", bias)

    @property
    def weight(self) -> Tensor:
        """The weight [N, K], unpacked anew at each access: for code that looks at its dtype."""
        return self.packed.unpack()

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., N] for x [..., K]."""
        packed, bias = self.packed, self.bias
        dtype = packed.dtype
        if x.dtype != dtype or (bias is not None and bias.dtype != dtype):
            near = None if bias is None else bias.to(dtype)
            return linear(x.to(dtype), packed, near).to(x.dtype)
        if torch.compiler.is_compiling():
            return linear(x, packed, bias)
        found = served(packed, x, bias)
        if found is None:
            found = linear(x, packed, bias)
            decide(packed, x, bias)
        return found

    def extra_repr(self) -> str:
        """Say in a model's listing what the layer is."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


class Projections(torch.nn.Module):
    """Several linear layers of one input, multiplied at once.

    The first of them that is given an input computes all, and the others take theirs from that if
    they are given the very same tensor, unchanged, before anything else. It is kept no longer than
    until the last took its own.

    Attributes:
        layer: the weights' rows, one layer's after another's.
    """

    def __init__(self, packed: PackedWeight, bias: Tensor | None, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = PackedLinear(packed, bias)
        self._sizes = sizes
        self._of: tuple[Tensor, int] | None = None
        self._outs: dict[int, Tensor] = {}

    def part(self, index: int, x: Tensor) -> Tensor:
        """Return the outputs of one layer."""
        version = -1 if x.is_inference() else x._version
        of = self._of
        if of is None or of[0] is not x or of[1] != version or index not in self._outs:
            self._outs = dict(enumerate(self.layer(x).split(self._sizes, -1)))
            self._of = (x, version)
        out = self._outs.pop(index)
        if not self._outs:
            self._of = None
        return out


class Projection(torch.nn.Module):
    """One of several layers that are multiplied at once.

    Where a graph is recorded it is a layer by itself, over its own rows of the common weight.

    Attributes:
        alone: this layer by itself; a view of the common weight.
    """

    def __init__(self, shared: Projections, index: int, alone: PackedLinear) -> None:
        super().__init__()
        # Not a submodule: the parts are the state, and what they are views of is not.
        self._shared: tuple[Projections, ...] = (shared,)
        self._index = index
        self.alone = alone
        self.in_features, self.out_features = alone.in_features, alone.out_features

    @property
    def weight(self) -> Tensor:
        """The weight [N, K], unpacked anew at each access."""
        return self.alone.weight

    @property
    def bias(self) -> Tensor | None:
        """The layer's bias [N], or None."""
        return self.alone.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., N] for x [..., K]."""
        if self._shared and not (torch.compiler.is_compiling() or torch.is_grad_enabled()):
            return self._shared[0].part(self._index, x)
        out: Tensor = self.alone(x)
        return out

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Projection:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._shared:
            whole = self._shared[0].layer.packed.tensors[0].untyped_storage()
            mine = self.alone.packed.tensors[0].untyped_storage()
            if mine.data_ptr() != whole.data_ptr():
                self._shared = ()
        return self


class GatedMlp(torch.nn.Module):
    """``down(act(gate(x)) * up(x))`` with gate and up multiplied at once.

    Attributes:
        gate_up: rows of gate, then of up.
        down_proj: the other layer.
        act_fn: the activation.
    """

    def __init__(
        self, gate_up: PackedLinear, down: torch.nn.Module, act: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.gate_up = gate_up
        self.down_proj = down
        self.act_fn = act
        self._gate = Gate()

    def forward(self, x: Tensor) -> Tensor:
        """Return the shape of x."""
        layer, gated = self.gate_up, None
        if type(layer) is PackedLinear and not (
            torch.compiler.is_compiling() or torch.is_grad_enabled()
        ):
            gated = self._gate.product(layer, self.act_fn, x)
        if gated is None:
            gate, up = layer(x).chunk(2, -1)
            gated = self.act_fn(gate) * up
        out: Tensor = self.down_proj(gated)
        return out
