"""From the tensors of a product with a quantised weight to the native kernel's addresses."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import torch
from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._addresses import address
from torchyard_cpu._chains import QUANTISED, native_chain
from torchyard_cpu._packed_addresses import packed_addresses, packed_bytes
from torchyard_cpu._tensor_reader import NativePath, reads_tensors
from torchyard_cpu.quantised import DTYPES, features_of
from torchyard_kernels.linear.contract import LinearCall, LinearRequest, Packed, WeightSpec
from torchyard_kernels.linear.contract.chain import Chain
from torchyard_kernels.linear.contract.quantised import BITS

__all__ = ["NativeQuantised"]

_ELEMENTS: Final = {getattr(torch, name): number for number, name in enumerate(DTYPES)}


class _Sizes(NamedTuple):
    outputs: int
    depth: int
    element: int
    bits: int
    group: int
    activation: int


def _spec(request: LinearRequest) -> WeightSpec:
    return WeightSpec(
        request.weight, request.dtype, request.outputs, request.depth, request.weight_options
    )


class _QuantisedPath(NativePath):
    """Calls with weights of one spec."""

    __slots__ = ("_spec",)

    def __init__(self, functions: _native.PathFunctions, spec: WeightSpec) -> None:
        super().__init__(functions)
        self._spec = spec

    def enable(self, request: LinearRequest) -> bool:
        if _spec(request) != self._spec:
            return False
        self._enable((request.rows, int(request.bias)))
        return True


class NativeQuantised:
    """``linear/1`` for quantised weights, with the kernel of an instruction set.

    Args:
        isa: the instruction set to stay within; empty: all that the processor has.
    """

    def __init__(self, isa: str) -> None:
        features = features_of(isa, frozenset(_native.cpu_features()))
        self.kernel: Final = _native.select_quantised(features)
        self._programs: Final = _native.select_program(features)

    def __call__(self, call: LinearCall) -> Tensor:
        """Compute the outputs; working memory is a copy of x."""
        x, weight = call.x, call.weight
        assert isinstance(weight, Packed), "supports() accepts packed weights alone"
        sizes = _sizes(weight.spec)
        outputs, depth = sizes[:2]
        out = x.new_empty((*x.shape[:-1], outputs))
        if depth == 0:
            return out.zero_() if call.bias is None else out.copy_(call.bias)
        if x.ndim != 2 or (x.stride(1) != 1 and depth != 1):
            x = x.reshape(-1, depth).contiguous()
        tensors = tuple(tensor.contiguous() for tensor in weight.tensors)
        bias = None if call.bias is None else call.bias.contiguous()
        _native.quantised_linear(
            self.kernel,
            (x.shape[0], *sizes),
            (address(x, "x"), x.stride(0)),
            (
                *packed_addresses(weight.spec, tensors),
                0 if bias is None else address(bias, "bias", outputs * bias.element_size()),
            ),
            (address(out, "out"), outputs),
            torch.get_num_threads(),
        )
        return out

    def fast_path(self, request: LinearRequest) -> NativePath | None:
        """Return a path with nothing enabled; see ``torchyard.dispatch.OffersFastPath``."""
        if request.prologue or request.epilogue or not request.depth or not reads_tensors():
            return None
        spec = _spec(request)
        sizes = (1, *_sizes(spec))
        read = tuple([least for _, least in packed_bytes(spec)])
        return _QuantisedPath(_native.quantised_fast_path(self.kernel, sizes, read), spec)

    def chain(self, chain: Chain) -> Callable[..., Tensor | None] | None:
        """Return what runs a chain; see ``torchyard_kernels.linear.contract.chain``."""
        return native_chain(chain, self._programs, self._product)

    def _product(self, weight: Packed) -> tuple[int, str, tuple[int, ...]] | None:
        if weight.spec.format not in BITS or weight.spec.columns == 0:
            return None
        if not weight.tensors[0].is_cpu:
            return None
        places = packed_addresses(weight.spec, weight.tensors)
        return QUANTISED, self.kernel, (*_sizes(weight.spec), *places)


@lru_cache(maxsize=1024)
def _sizes(spec: WeightSpec) -> _Sizes:
    options = dict(spec.options)
    return _Sizes(
        spec.rows,
        spec.columns,
        _ELEMENTS[getattr(torch, spec.dtype)],
        BITS[spec.format],
        options["group"],
        options["activation"],
    )
