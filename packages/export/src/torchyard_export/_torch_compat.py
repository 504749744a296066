"""What torch does not publish and this package uses of it.

No other module of the package names a private part of torch. Each entry says what it is for and
what happens where torch lacks it; :data:`PROBES` has a check of each, and :func:`missing` runs
them. All were tried on torch 2.13. Parts that import the compiler do so when they are called.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn

# Ops in a program, told from Python's operators on sizes. Without it: an ImportError.
from torch._ops import OpOverload

# Tensors without values, in programs and while one is recorded. Without them: an ImportError.
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram

# The containers of a call's arguments and results, by torch.export's own rules. Without it: an
# ImportError.
from torch.utils import _pytree as pytree

# Whether a subclass says what tensors it is made of. Without it: an ImportError.
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = [
    "PACKAGE_LOGGER",
    "PROBES",
    "FakeTensor",
    "FakeTensorMode",
    "OpOverload",
    "check_condition",
    "compile_and_package",
    "flat_weight_names",
    "generates_code",
    "gru",
    "is_traceable_wrapper_subclass",
    "load_package",
    "lstm",
    "missing",
    "pack_padded_sequence",
    "pad_packed_sequence",
    "pytree",
    "register_rounding",
    "rnn_relu",
    "rnn_tanh",
    "scan",
    "takes_processor",
    "user_error",
    "version_of",
    "with_example_inputs",
    "with_module",
    "without_size_guards",
]

# The sequence functions that nn.LSTM, GRU and RNN and torch.nn.utils.rnn call: a call of one is
# recognised by the function's identity. Without them: an AttributeError when this is imported.
lstm: Final[Callable[..., Any]] = torch._VF.lstm
gru: Final[Callable[..., Any]] = torch._VF.gru
rnn_tanh: Final[Callable[..., Any]] = torch._VF.rnn_tanh
rnn_relu: Final[Callable[..., Any]] = torch._VF.rnn_relu
pack_padded_sequence: Final[Callable[..., Any]] = torch._VF._pack_padded_sequence
pad_packed_sequence: Final[Callable[..., Any]] = torch._VF._pad_packed_sequence

# A condition that torch.export may assume of a size. Without it: an AttributeError at import.
check_condition: Final[Callable[[Any], None]] = torch._check

# Who warns that a package was compiled for other vector instructions. Under another name: the
# warning is printed.
PACKAGE_LOGGER: Final = "torch.export.pt2_archive._package"


def flat_weight_names(module: nn.RNNBase) -> list[str]:
    """Return the names of a recurrent layer's weights, in the order of the sequence functions.

    The public ``all_weights`` may hold what the weights were before recording began. Without it: an
    AttributeError where a packed sequence is recorded.
    """
    return list(module._flat_weights_names)


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place; without it: an AttributeError in an audit."""
    return int(tensor._version)


def with_example_inputs(program: ExportedProgram, inputs: Any) -> ExportedProgram:
    """Return a program, over the same module, with other example inputs.

    torch.export.save pickles them, and AOTInductor asks for them. Where torch keeps them under
    another name, saved programs hold a pickle and are refused by this package's own reader.
    """
    found = copy.copy(program)
    found._example_inputs = inputs
    return found


def with_module(program: ExportedProgram, module: torch.fx.GraphModule) -> ExportedProgram:
    """Return a program with another graph of the same signature.

    Without it: an AttributeError in the target ``aten``.
    """
    found: ExportedProgram = program._update(module, program.graph_signature)
    return found


def user_error() -> type[Exception]:
    """Return what torch.export raises where the model or the call is at fault.

    Without it: an ImportError where a model is recorded.
    """
    from torch._dynamo.exc import UserError

    return UserError


def scan(
    combine: Callable[..., Any],
    init: Sequence[Tensor],
    xs: Sequence[Tensor],
    more: Sequence[Tensor],
) -> Any:
    """Put a loop over time into a program; without it: an ImportError in the targets with loops."""
    from torch._higher_order_ops.scan import scan_op

    return scan_op(combine, init, xs, more)


def compile_and_package(program: ExportedProgram, **options: Any) -> str:
    """Compile a program to a package; without it: an ImportError in the target aotinductor."""
    from torch._inductor import aoti_compile_and_package

    return str(aoti_compile_and_package(program, **options))


def takes_processor() -> bool:
    """Return whether AOTInductor can be told the processor to compile for."""
    from torch._inductor import config

    return hasattr(config.cpp, "march")


def generates_code(device: str) -> bool:
    """Return whether AOTInductor has a code generator for a torch device type.

    A device that torch does not build registers its own. Without it: an ImportError or an
    AttributeError in the target aotinductor.
    """
    from torch._inductor.codegen import common

    common.init_backend_registration()
    return common.get_wrapper_codegen_for_device(device, True) is not None


def load_package(path: str, **options: Any) -> Any:
    """Load a package; without it: an ImportError in the target aotinductor."""
    from torch._inductor import aoti_load_package

    return aoti_load_package(path, **options)


def register_rounding() -> None:
    """Register the operators of quantized programs; without it: an ImportError where one loads.

    torch defines them in Python and registers them for whoever imports this module.
    """
    import torch.ao.quantization.fx._decomposed  # noqa: F401


def _registers_rounding() -> bool:
    register_rounding()
    return hasattr(torch.ops.quantized_decomposed.quantize_per_tensor, "default")


def _updates() -> bool:
    program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    bare = with_example_inputs(program, None)
    updated = with_module(program, program.graph_module)
    return bare.example_inputs is None and updated.example_inputs is not None


def _counts_changes() -> bool:
    tensor = torch.zeros(1)
    before = version_of(tensor)
    tensor.add_(1)
    return version_of(tensor) == before + 1


def _has_scan() -> bool:
    from torch._higher_order_ops.scan import scan_op

    return callable(scan_op)


def _has_packages() -> bool:
    from torch import _inductor

    return {"aoti_compile_and_package", "aoti_load_package"} <= vars(_inductor).keys()


def without_size_guards() -> AbstractContextManager[None]:
    """Trace without asking whether sizes that may be equal are equal.

    A program of torch 2.15 would keep the answer for the example as a condition of its own, and
    refuse a batch as long as its sequences. Without the setting: as torch traces by itself.
    """
    from torch.fx.experimental import _config

    if not hasattr(_config, "backed_size_oblivious"):
        return nullcontext()
    patched: AbstractContextManager[None] = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    return patched


PROBES: Final = MappingProxyType[str, Callable[[], bool]](
    {
        "FakeTensor": lambda: issubclass(FakeTensor, Tensor) and FakeTensorMode() is not None,
        "OpOverload": lambda: isinstance(torch.ops.aten.add.Tensor, OpOverload),
        "check_condition": lambda: callable(check_condition),
        "compile_and_package": _has_packages,
        "flat_weight_names": lambda: flat_weight_names(nn.GRU(1, 1))[0] == "weight_ih_l0",
        "generates_code": lambda: generates_code("cpu") and not generates_code("meta"),
        "is_traceable_wrapper_subclass": lambda: not is_traceable_wrapper_subclass(torch.ones(1)),
        "package_logger": lambda: find_spec(PACKAGE_LOGGER) is not None,
        "pytree": lambda: pytree.tree_leaves([1, (2,)]) == [1, 2],
        "register_rounding": _registers_rounding,
        "scan": _has_scan,
        "user_error": lambda: issubclass(user_error(), Exception),
        "version_of": _counts_changes,
        "with_module": _updates,
        "without_size_guards": lambda: not isinstance(without_size_guards(), nullcontext),
    }
)


def missing() -> tuple[str, ...]:
    """Return the entries that this torch does not have, or answers in another way."""

    def holds(probe: Callable[[], bool]) -> bool:
        try:
            return probe()
        except Exception:  # whatever torch raises where a part is another one
            return False

    return tuple(name for name, probe in PROBES.items() if not holds(probe))
