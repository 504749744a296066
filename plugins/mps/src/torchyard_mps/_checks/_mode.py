"""``checked``: torch's own operators, with their indices checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torchyard_mps._checks._faults import check, raise_pending
from torchyard_mps._checks._operators import CHECKS
from torchyard_mps._runner import is_run_on
from torchyard_mps._torch_compat import DispatchMode

__all__ = ["checked"]


@contextmanager
def checked() -> Iterator[None]:
    """Check the indices of torch's own operators on an Apple GPU, in this thread.

    Of ``gather``, ``scatter``, ``index_select``, ``index_copy``, ``index_add``, ``index_fill``,
    ``index_reduce``, ``take``, ``put``, ``embedding``, ``max_unpool``, indexing with tensors, and
    their gradients: a kernel compares each index with its dimension and gives the operator 0 for
    one outside, so that nothing outside of a tensor is read or written. The fault is raised at the
    next synchronisation, or at once in ``torchyard_mps.errors(sync=True)``. The result of such a
    call is then not to be used. Each check reads and writes the indices once.

    Raises:
        IndexRangeError: when the block ends, for faults in it that nobody has read.
    """
    mode: Any = _Checking
    # What is compiled and called in such a mode runs uncompiled from then on, until torch 2.13.
    with torch.compiler.set_stance("force_eager"), mode():
        yield
    raise_pending()


class _Checking(DispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        keywords = kwargs or {}
        on_device = any(isinstance(arg, Tensor) and is_run_on(arg) for arg in args)
        found = CHECKS.get(name) if on_device and func.namespace == "aten" else None
        if found is not None:
            args = found(name, args, check)
        elif on_device and _is_read(name, args, keywords):
            raise_pending()
        return func(*args, **keywords)


def _is_read(name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Return whether an operator brings values of the device to another one."""
    if name == "_local_scalar_dense":
        return True
    if name == "_to_copy":
        device = keywords.get("device")
        return device is not None and torch.device(device).type != args[0].device.type
    return name == "copy_" and bool(args[0].device.type != args[1].device.type)
