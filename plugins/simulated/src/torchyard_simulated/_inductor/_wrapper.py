"""The program that Inductor generates around the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from torchyard_simulated._inductor._kernel import LOADER
from torchyard_simulated._inductor._torch_compat import (
    PythonWrapperCodegen,
    SubgraphPythonWrapperCodegen,
)
from torchyard_simulated._loading import DEVICE

__all__ = ["DeviceProgram", "SimulatedWrapper"]

_CPU_LOADER: Final = "async_compile.cpp_pybinding("


class DeviceProgram:
    """What differs from the program for a CPU; mixed into Inductor's classes."""

    _defines_device_kernels = False

    @contextmanager
    def device_kernels(self) -> Iterator[None]:
        """Take the kernels that are defined inside for the device's, not the CPU's."""
        before, self._defines_device_kernels = self._defines_device_kernels, True
        try:
            yield
        finally:
            self._defines_device_kernels = before

    def define_kernel(
        self, kernel_name: str, kernel_body: str, *arguments: Any, **options: Any
    ) -> None:
        """Have the device load its kernels; those of the CPU are loaded as ever."""
        if self._defines_device_kernels:
            if not kernel_body.startswith(_CPU_LOADER):
                raise NotImplementedError(
                    f"torchyard-simulated: expected a kernel's definition to begin with "
                    f"{_CPU_LOADER!r}, got {kernel_body[:40]!r}; leave cpp_wrapper off"
                )
            loader = f"{LOADER}({kernel_name!r}, async_compile, "
            kernel_body = loader + kernel_body.removeprefix(_CPU_LOADER)
        super().define_kernel(kernel_name, kernel_body, *arguments, **options)  # type: ignore[misc]

    def make_allocation(self, name: str, device: Any, *arguments: Any, **options: Any) -> str:
        """Allocate on the device of the buffer, which may not be the current one."""
        line: str = super().make_allocation(name, device, *arguments, **options)  # type: ignore[misc]
        return line.replace(f"device='{DEVICE}'", f"device='{device}'")

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Any, *, device: Any = None, **options: Any
    ) -> None:
        if device is not None and device.type == DEVICE:
            # The kernel finds the device and its current stream by its tensors.
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))  # type: ignore[attr-defined]
            return
        super()._generate_kernel_call_helper(  # type: ignore[misc]
            kernel_name, call_args, device=device, **options
        )


class SimulatedWrapper(DeviceProgram, PythonWrapperCodegen):
    """The program of a graph whose tensors are of the device."""

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: Any,
        partition_signatures: Any = None,
    ) -> PythonWrapperCodegen:
        """Return the program of a graph, or of a graph inside of another, as Inductor asks."""
        if is_subgraph:
            assert subgraph_name is not None
            return _SubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return SimulatedWrapper()  # type: ignore[no-untyped-call]

    def write_header(self) -> None:
        """Import the loader of kernels."""
        super().write_header()
        self.imports.writeline(f"from torchyard_simulated._inductor._kernel import {LOADER}")


class _SubgraphWrapper(DeviceProgram, SubgraphPythonWrapperCodegen):
    """The program of a graph inside of another, such as the branch of a condition."""
