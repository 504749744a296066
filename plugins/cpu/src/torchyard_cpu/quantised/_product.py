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
from torchyard_cpu._packed_addresses import packed_addresses
from torchyard_cpu.quantised import DTYPES, features_of
from torchyard_kernels.linear.contract import LinearCall, LinearRequest, Packed, WeightSpec
from torchyard_kernels.linear.contract.chain import Chain
from torchyard_kernels.linear.contract.quantised import BITS

__all__ = ["NativeQuantised"]

_PLAIN: Final = (Tensor, torch.nn.Parameter)
_ELEMENTS: Final = {getattr(torch, name): number for number, name in enumerate(DTYPES)}


class _Sizes(NamedTuple):
    outputs: int
    depth: int
    element: int
    bits: int
    group: int
    activation: int


class _QuantisedPath:
    """``torchyard.dispatch.KernelPath`` for weights of one spec.

    Args:
        kernel: the kernel's name.
        spec: the weights'.
    """

    def __init__(self, kernel: str, spec: WeightSpec) -> None:
        self._kernel, self._spec, self._sizes = kernel, spec, _sizes(spec)
        self._dtype: torch.dtype = getattr(torch, spec.dtype)
        self._requests: set[tuple[int, bool]] = set()

    def try_call(
        self, x: Tensor, weight: tuple[Tensor, ...], form: None, bias: Tensor | None
    ) -> Tensor | None:
        """Compute a call whose request was enabled; None for any other."""
        outputs, depth = self._sizes[:2]
        given = (x,) if bias is None else (x, bias)
        if not all(map(self._is_readable, given)) or x.shape[-1:] != (depth,):
            return None
        rows = x.numel() // depth
        if (rows, bias is not None) not in self._requests:
            return None
        if bias is not None and bias.shape != (outputs,):
            return None
        if not all(
            type(part) is Tensor and part.is_cpu and part.is_contiguous() for part in weight
        ):
            return None
        out = x.new_empty((*x.shape[:-1], outputs))
        _native.quantised_linear(
            self._kernel,
            (rows, *self._sizes),
            (address(x, "x"), depth),
            (
                *packed_addresses(self._spec, weight),
                0 if bias is None else address(bias, "bias"),
            ),
            (address(out, "out"), outputs),
            torch.get_num_threads(),
        )
        return out

    def _is_readable(self, tensor: Tensor) -> bool:
        return (
            type(tensor) in _PLAIN
            and tensor.dtype is self._dtype
            and tensor.is_cpu
            and tensor.is_contiguous()
            and not tensor.is_neg()
            and not (tensor.requires_grad and torch.is_grad_enabled())
        )

    def enable(self, request: LinearRequest) -> bool:
        """Compute calls that make this request from now on."""
        if _spec(request) != self._spec:
            return False
        self._requests.add((request.rows, request.bias))
        return True

    def clear(self) -> None:
        """Forget every request."""
        self._requests.clear()


def _spec(request: LinearRequest) -> WeightSpec:
    return WeightSpec(
        request.weight, request.dtype, request.outputs, request.depth, request.weight_options
    )


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
        assert isinstance(weight, Packed), "supports() admits packed weights alone"
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

    def fast_path(self, request: LinearRequest) -> _QuantisedPath | None:
        """Return a path with nothing enabled; see ``torchyard.dispatch.OffersFastPath``."""
        plain = not request.prologue and not request.epilogue
        return _QuantisedPath(self.kernel, _spec(request)) if plain and request.depth else None

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
