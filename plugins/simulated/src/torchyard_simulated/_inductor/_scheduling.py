"""Inductor's kernels for the device: its C++ ones, each with an entry that a stream can call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from torchyard_simulated._inductor._kernel import entry_source
from torchyard_simulated._inductor._torch_compat import LOOP_CHANGES, CppScheduling, V
from torchyard_simulated._inductor._wrapper import DeviceProgram
from torchyard_simulated._loading import DEVICE

__all__ = ["SimulatedScheduling"]

# Inductor's typed expressions follow the rules of Triton for every device that it does not know.
_HOST: Final = torch.device("cpu")


class SimulatedScheduling(CppScheduling):
    """Generates C++ as for the CPU, and names the kernels to the wrapper as the device's.

    Args:
        scheduler: of one graph; None where Inductor asks for features alone.
    """

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)  # type: ignore[no-untyped-call]
        if scheduler is not None:
            _keep_loops(scheduler)

    def codegen_node(self, node: Any) -> None:
        """Generate what computes a node, for the processor that runs it: the host's."""
        with V.graph.set_current_device(_HOST):
            super().codegen_node(node)

    def define_kernel(self, src_code: str, nodes: Any, kernel_args: Any = None) -> str:
        """Define a kernel with its entry.

        The entry makes the source another one than that of the same kernel for the CPU, which
        Inductor would otherwise reuse in a graph that has both.
        """
        arguments = self.kernel_group.args if kernel_args is None else kernel_args
        _, _, types = arguments.cpp_argdefs()
        source = src_code + entry_source("kernel", types)
        wrapper: Any = V.graph.wrapper_code
        if not isinstance(wrapper, DeviceProgram):
            raise NotImplementedError(
                f"torchyard-simulated: a kernel of the device needs a program in Python, got "
                f"{type(wrapper).__name__}; leave cpp_wrapper off"
            )
        with wrapper.device_kernels():
            name: str = super().define_kernel(source, nodes, kernel_args)  # type: ignore[no-untyped-call]
        return name


def _keep_loops(scheduler: Any) -> None:
    """Have one graph's scheduler change no loops of the device's kernels, as it does for the CPU.

    It changes those of every device but the CPU, in a form that the C++ generator does not know.
    """
    for name, refusal in LOOP_CHANGES.items():
        setattr(scheduler, name, _unless_of_the_device(getattr(scheduler, name), refusal))


def _unless_of_the_device(change: Callable[..., Any], refusal: Any) -> Callable[..., Any]:
    def changed(node1: Any, node2: Any) -> Any:
        devices = (node1.get_device(), node2.get_device())
        if any(device is not None and device.type == DEVICE for device in devices):
            return refusal
        return change(node1, node2)

    return changed
