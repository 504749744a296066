"""Generated kernels: their entry in C++, and their launch from the generated program."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, Final

import torch

from torchyard_simulated._inductor._torch_compat import CppCodeCache, LambdaFuture

__all__ = ["ENTRY", "LOADER", "Kernel", "entry_source", "load_kernel"]

ENTRY: Final = "run_on_stream"
LOADER: Final = "load_kernel"

_FLOAT: Final = "const float"


def entry_source(kernel: str, types: Sequence[str]) -> str:
    """Return C++ that calls a kernel with arguments from an array of 64-bit words.

    One signature for every kernel is what lets the device's library call it without knowing it.

    Args:
        kernel: the function's name.
        types: the C++ types of its parameters: pointers first, then integers and floats.
    """
    arguments = []
    for index, kind in enumerate(types):
        word = f"words[{index}]"
        if kind.endswith("*"):
            arguments.append(f"reinterpret_cast<{kind}>({word})")
        elif kind == _FLOAT:
            # The word holds the bits of a double.
            arguments.append(f"static_cast<float>(reinterpret_cast<const double&>({word}))")
        else:
            arguments.append(word)
    call = f"{kernel}({', '.join(arguments)});"
    return f'\nextern "C" void {ENTRY}(const int64_t* words) {{ {call} }}\n'


class _Libraries(CppCodeCache):
    """Inductor's cache of libraries, that has the compiler read the header of kernels once."""

    cache: dict[str, Any] = {}  # noqa: RUF012 - as the class above declares it

    @classmethod
    def _get_uncompiled_header(cls, device: str) -> str | None:
        return "torch/csrc/inductor/cpp_prefix.h"


class Kernel:
    """A loaded kernel; calling it launches it on the current stream of its tensors' device."""

    def __init__(self, name: str, types: Sequence[str], library: Any) -> None:
        self._name: Final = name
        self._types: Final = tuple(types)
        self._library: Final = library  # loaded as long as work of a stream may call it
        self._entry: Final = ctypes.cast(getattr(library, ENTRY), ctypes.c_void_p).value
        self._tensors: Final = sum(kind.endswith("*") for kind in types)
        self._written: Final = [
            int(not kind.startswith("const ")) for kind in types if kind.endswith("*")
        ]

    def __call__(self, *arguments: Any) -> None:
        """Launch it.

        Args:
            arguments: one for each parameter: tensors of the device, or 0-dimensional CPU tensors
                that are only read; then numbers.
        """
        scalars = [
            struct.unpack("<q", struct.pack("<d", float(value)))[0]
            if kind == _FLOAT
            else int(value)
            for kind, value in zip(
                self._types[self._tensors :], arguments[self._tensors :], strict=True
            )
        ]
        torch.ops.torchyard_simulated.launch_compiled(
            self._name, self._entry, list(arguments[: self._tensors]), self._written, scalars
        )


def load_kernel(name: str, async_compile: Any, types: Sequence[str], source: str) -> Any:
    """Compile a kernel's source, beside others where Inductor compiles in parallel.

    Generated programs call this. Returns a future of Inductor, whose result is a :class:`Kernel`.
    """
    load = _Libraries.load_async(source, submit_fn=async_compile.submit)
    return LambdaFuture(lambda: Kernel(name, types, load()))
