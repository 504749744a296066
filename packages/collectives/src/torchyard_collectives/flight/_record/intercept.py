"""Interception of calls: torch's c10d operators, and the methods of process groups made in Python.

Every collective of a group that C++ implements goes through an operator of ``torch.ops.c10d``, who
ever issues it: ``torch.distributed``, a functional or compiled collective, DDP's reducer. A kernel
for the key BackendSelect sits in front of all devices' kernels, also in inference mode and in
autograd's threads, and hands on to the one below. A group made in Python has methods instead, which
torch calls on the object, from C++ too; they are covered by attributes of the object.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist

from torchyard_collectives._torch_compat import (
    GROUP_REGISTRATION,
    DispatchKeySet,
    below_backend_select,
    has_no_values,
    own_groups,
    unregister,
)
from torchyard_collectives.flight._record.calls import METHODS, OPERATORS, Layout
from torchyard_collectives.flight._record.creations import Creations
from torchyard_collectives.flight._record.recorder import Recorder

__all__ = ["Interception"]

_KEY: Final = "BackendSelect"
_MARK: Final = "_torchyard_flight"


class Interception:
    """The recorder's hold on torch; :meth:`remove` gives it back."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        # A group made in Python may call others inside: the user made one call.
        self._inside = threading.local()
        library: Any = torch.library.Library
        self._library = library("c10d", "IMPL")
        below = below_backend_select()
        for name, layout in OPERATORS.items():
            operator = getattr(torch.ops.c10d, name).default
            kernel = self._kernel(operator, layout, below)
            self._library.impl(name, kernel, _KEY, with_keyset=True)
        self._covered: list[tuple[dist.ProcessGroup, list[str]]] = []
        there = own_groups()
        recorder.mark_late(there)
        for group in there:
            self._cover(group)
        self.creations = recorder.creations = Creations()
        self._register = GROUP_REGISTRATION.current()
        if self._register is not None:
            GROUP_REGISTRATION.replace(self._registered)

    def remove(self) -> None:
        """Undo everything."""
        unregister(self._library)
        self.creations.remove()
        if self._register is not None and GROUP_REGISTRATION.current() == self._registered:
            GROUP_REGISTRATION.replace(self._register)
        for group, names in self._covered:
            for name in names:
                delattr(group, name)
        self._covered.clear()

    def _registered(self, name: Any, group: dist.ProcessGroup) -> None:
        """Stand for torch's function that every new group passes through."""
        assert self._register is not None
        self._register(name, group)
        self.creations.made(str(name))
        self._cover(group)

    def _kernel(self, operator: Any, layout: Layout, below: DispatchKeySet) -> Callable[..., Any]:
        recorder, inside = self._recorder, self._inside
        unbox_group, unbox_work = dist.ProcessGroup.unbox, dist.Work.unbox
        redispatch, where = operator.redispatch, layout.group

        def kernel(keys: DispatchKeySet, *arguments: Any) -> Any:
            if getattr(inside, "depth", 0) or has_no_values(keys):
                return redispatch(keys & below, *arguments)
            try:
                entry = recorder.begin(unbox_group(arguments[where]), layout, arguments)
            except Exception as error:
                _excuse(layout, error)
                return redispatch(keys & below, *arguments)
            try:
                result = redispatch(keys & below, *arguments)
            except BaseException as error:
                recorder.fail(entry, error)
                raise
            work = result[-1] if isinstance(result, tuple) else result
            recorder.end(entry, None if work is None else unbox_work(work))
            return result

        return kernel

    def _cover(self, group: dist.ProcessGroup) -> None:
        """Put the recorder before the methods that a group's own Python class has."""
        if getattr(group, _MARK, False):
            return
        names = [
            name
            for name in METHODS
            if getattr(type(group), name, None) is not getattr(dist.ProcessGroup, name, None)
        ]
        for name in names:
            setattr(group, name, self._method(group, getattr(group, name), METHODS[name]))
        if names:
            setattr(group, _MARK, True)
            self._covered.append((group, [*names, _MARK]))

    def _method(
        self, group: dist.ProcessGroup, method: Callable[..., Any], layout: Layout
    ) -> Callable[..., Any]:
        recorder, inside = self._recorder, self._inside
        # A group of ours says what a call in another form than torch.distributed's means.
        bind: Any = getattr(method, "bind", lambda arguments, named: (*arguments, *named.values()))

        def recorded(*arguments: Any, **named: Any) -> Any:
            if getattr(inside, "depth", 0):
                return method(*arguments, **named)
            try:
                entry = recorder.begin(group, layout, bind(arguments, named))
            except Exception as error:
                _excuse(layout, error)
                return method(*arguments, **named)
            inside.depth = 1
            try:
                work = method(*arguments, **named)
            except BaseException as error:
                recorder.fail(entry, error)
                raise
            finally:
                inside.depth = 0
            recorder.end(entry, work)
            return work

        return recorded


def _excuse(layout: Layout, error: Exception) -> None:
    """Say that a call is not recorded, which must not keep it from being made."""
    warnings.warn(
        f"the flight recorder could not record a call of {layout.op}: {error!r}; report it",
        RuntimeWarning,
        stacklevel=3,
    )
