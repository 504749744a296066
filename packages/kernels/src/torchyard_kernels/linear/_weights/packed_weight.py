"""PackedWeight: a linear layer's weight in a layout that kernels read sequentially."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_kernels._large_pages import in_large_pages
from torchyard_kernels.linear._formats.panels import PANELS
from torchyard_kernels.linear._formats.table import parse_format
from torchyard_kernels.linear.contract import Packed, WeightSpec

__all__ = ["CONVERTIBLE", "PackedWeight"]

_SPEC = "spec"
# Dtypes of weights that can be packed, in any format.
CONVERTIBLE: Final = (torch.float16, torch.bfloat16, torch.float32)


class PackedWeight(torch.nn.Module):
    """Hold a weight [N, K] in a layout that kernels read at the speed of memory.

    Takes the place of the weight of :func:`torchyard_kernels.linear`. It is a constant: a gradient
    reaches x and the bias through it, never the weight. Its state is its buffers, one of which
    (``spec``) holds format, dtype and shape as text. So ``state_dict``, safetensors, ``to(device)``
    and torch.compile and torch.export treat it as any module; the layout is the same on every
    processor, and a file is read without packing. A weight that is packed is stored in large pages
    of memory where the system has them, which are read faster; one made of a state keeps the
    state's memory.

    Args:
        weight: [N, K], float16, bfloat16 or float32, any strides; copied.
        format: the layout's name; ``panels`` keeps every number as it is.
        options: of the format, such as a group's size.

    Attributes:
        shape: (N, K). dtype: the weight's. format: the layout's name. options: of the format.

    Raises:
        TypeError: not a floating point tensor, or an option that the format does not have.
        ValueError: not two dimensions, or a format that does not exist.
    """

    def __init__(self, weight: Tensor, format: str = "panels", **options: int) -> None:
        super().__init__()
        arguments.tensor("PackedWeight", "weight", weight, dims=2, shape="[N, K]")
        layout = parse_format(format)
        options = {
            name: arguments.integer("PackedWeight", name, value) for name, value in options.items()
        }
        with torch.no_grad():
            tensors, kept = layout.pack(weight.detach(), options)
            tensors = in_large_pages(tensors)
        rows, columns = weight.shape
        self._hold(WeightSpec(format, str(weight.dtype)[6:], rows, columns, kept), tensors)

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> PackedWeight:
        """Make one from what ``state_dict()`` gave, such as a file's tensors; nothing is packed.

        Args:
            state: the tensors by name, without a prefix.

        Raises:
            TypeError: not a mapping of names to tensors.
            ValueError: a tensor is missing, is one too many, or does not fit the spec.
        """
        _check_state(state)
        if _SPEC not in state:
            raise ValueError(
                f"PackedWeight.from_state: expected a tensor 'spec', got {sorted(state)}; "
                f"strip the prefix that the file's names have"
            )
        spec = _read(state[_SPEC])
        layout = parse_format(spec.format)
        expected = {_SPEC, *layout.names}
        if set(state) != expected:
            raise ValueError(
                f"PackedWeight.from_state: expected the tensors {sorted(expected)} for '{spec}', "
                f"got {sorted(state)}"
            )
        tensors = tuple(state[name].detach().contiguous() for name in layout.names)
        layout.check(spec, tensors)
        return cls._of(spec, tensors)

    @classmethod
    def stacked(cls, weights: Sequence[PackedWeight]) -> PackedWeight:
        """Return the rows of several weights as one; all but the last have to fill their panels.

        Args:
            weights: of one format, dtype and K, on one device.
        """
        weights = arguments.sequence(
            "PackedWeight.stacked",
            "weights",
            weights,
            lambda of, name, one: arguments.instance(of, name, one, cls),
            least=1,
        )
        first, kind = weights[0], _kind(weights[0])
        for place, weight in enumerate(weights):
            if _kind(weight) != kind:
                raise ValueError(
                    f"PackedWeight.stacked: weights[{place}]: expected the format, dtype, columns "
                    f"and device of weights[0], {kind}, got {_kind(weight)}"
                )
        rows = sum(weight.shape[0] for weight in weights)
        spec = replace(first.weight_spec, rows=rows)
        parts = zip(*(weight.tensors for weight in weights), strict=True)
        return cls._of(spec, in_large_pages([torch.cat(tensors) for tensors in parts]))

    def converted(self, dtype: torch.dtype, device: torch.device) -> PackedWeight:
        """Return a copy in another dtype, on a device.

        Args:
            dtype: float16, bfloat16 or float32. Of rounded weights it is x's: the codes stay.
            device: the device of the copy.

        Raises:
            TypeError: another dtype, which cannot be packed.
        """
        layout = parse_format(self.format)
        of = "PackedWeight.converted"
        arguments.dtype(of, "dtype", dtype)
        if dtype not in CONVERTIBLE:
            known = ", ".join(str(one) for one in CONVERTIBLE)
            raise TypeError(
                f"{of}: dtype: expected one of {known}, got {dtype}; convert unpack() instead"
            )
        device = arguments.device(of, "device", device)
        spec = replace(self.weight_spec, dtype=str(dtype)[6:])
        if dtype != self.dtype and layout is PANELS:
            tensors, _ = layout.pack(self.unpack().to(device=device, dtype=dtype), {})
        else:
            tensors = tuple(tensor.to(device, copy=True) for tensor in self.tensors)
        return self._of(spec, in_large_pages(tensors))

    @classmethod
    def of_tensors(cls, spec: str, tensors: tuple[Tensor, ...]) -> PackedWeight:
        """Make one from the tensors of a format, in its order, unchecked."""
        return cls._of(WeightSpec.parse(spec), tensors)

    @classmethod
    def _of(cls, spec: WeightSpec, tensors: tuple[Tensor, ...]) -> PackedWeight:
        self = cls.__new__(cls)
        torch.nn.Module.__init__(self)
        self._hold(spec, tensors)
        return self

    def _hold(self, spec: WeightSpec, tensors: tuple[Tensor, ...]) -> None:
        self.shape = torch.Size((spec.rows, spec.columns))
        self.dtype: torch.dtype = getattr(torch, spec.dtype)
        self.format = spec.format
        self.options = dict(spec.options)
        self.weight_spec = spec
        self.spec_text = spec.text
        self.names = parse_format(spec.format).names
        device = tensors[0].device
        self.register_buffer(_SPEC, torch.tensor(list(str(spec).encode()), dtype=torch.uint8))
        for name, tensor in zip(self.names, tensors, strict=True):
            self.register_buffer(name, tensor)
        self.spec = self._buffers[_SPEC].to(device)  # type: ignore[union-attr]

    @property
    def packed(self) -> Packed:
        """The weight as a call of ``linear/1`` has it."""
        return Packed(self.weight_spec, tuple(self.tensors))

    @property
    def tensors(self) -> list[Tensor]:
        """The format's tensors, in its order."""
        return [self.get_buffer(name) for name in self.names]

    def unpack(self) -> Tensor:
        """Return the weight [N, K]: the original, or what the format kept of it."""
        return parse_format(self.format).unpack(self.weight_spec, tuple(self.tensors))

    def extra_repr(self) -> str:
        """Say in a model's listing what is held."""
        return self.spec_text

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PackedWeight:
        dtype = fn(torch.empty(0, dtype=self.dtype, device=self.spec.device)).dtype
        if dtype == self.dtype and all(fn(t[:0]).dtype == t.dtype for t in self.tensors):
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            return self
        # fn converts floating point tensors. Panels are packed again; scales keep their dtype.
        made = self.converted(dtype, fn(self.spec[:0]).device)
        self._hold(made.weight_spec, tuple(made.tensors))
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        given = state_dict.get(prefix + _SPEC)
        if given is not None and (found := str(_read(given))) != self.spec_text:
            raise ValueError(
                f"PackedWeight: {prefix}spec: expected '{self.spec_text}', got '{found}'; use "
                f"PackedWeight.from_state to take over another shape or format"
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _check_state(state: object) -> None:
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise TypeError(
            f"PackedWeight.from_state: state: expected tensors by name, got "
            f"{type(state).__name__}; pass what state_dict() returned"
        )


def _read(spec: Tensor) -> WeightSpec:
    try:
        text = bytes(spec.tolist()).decode("ascii")
    except (TypeError, ValueError):
        raise ValueError(
            f"PackedWeight: spec: expected uint8 text, got {spec.dtype} {list(spec.shape)}"
        ) from None
    return WeightSpec.parse(text)


def _kind(weight: PackedWeight) -> tuple[str, torch.dtype, int, torch.device]:
    return weight.format, weight.dtype, weight.shape[1], weight.tensors[0].device
