"""What torch does not publish of Inductor and Dynamo, and a device has to extend.

Importing this module imports Inductor, which takes seconds: only :mod:`._registration` does, when
Inductor asks. All were tried on torch 2.13; where a torch lacks one, the import fails and the
registration says so. The probe is ``inductor`` in :mod:`torchyard_simulated._torch_compat`.
"""

from types import MappingProxyType
from typing import Final

from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
from torch._inductor.codecache import CppCodeCache, LambdaFuture
from torch._inductor.codegen.common import (
    DeviceOpOverrides,
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.wrapper import (
    PythonWrapperCodegen,
    SubgraphPythonWrapperCodegen,
)
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.scheduler import Scheduler
from torch._inductor.virtualized import V

__all__ = [
    "LOOP_CHANGES",
    "CppCodeCache",
    "CppScheduling",
    "CustomGraphModulePass",
    "DeviceInterface",
    "DeviceOpOverrides",
    "LambdaFuture",
    "PythonWrapperCodegen",
    "SubgraphPythonWrapperCodegen",
    "V",
    "register_backend_for_device",
    "register_device_op_overrides",
    "register_interface_for_device",
]

# Methods of Inductor's Scheduler that change loops of two nodes before it fuses them, each with
# what it returns where it changes none. None of them is tried for the CPU's nodes.
LOOP_CHANGES: Final = MappingProxyType(
    {
        "_try_reindex_pointwise_for_reduction": False,
        "shared_data_after_inverting_indexing": -1,
        "shared_data_after_reordering_loop": -1,
    }
)
for _name in LOOP_CHANGES:
    if not callable(getattr(Scheduler, _name, None)):
        raise ImportError(f"torch._inductor.scheduler.Scheduler has no method {_name}")
