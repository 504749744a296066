"""What a twin takes over from a torch module, and what it cannot."""

from __future__ import annotations

from typing import Final

import torch
from torch.nn.utils import parametrize

__all__ = ["refuse_own_code", "take_over"]

# Where torch.nn.Module keeps the hooks of a call, of its gradient and of its state.
_HOOKS: Final = tuple(
    name
    for name, value in vars(torch.nn.Module()).items()
    if "hook" in name and name not in ("_is_full_backward_hook",)
)
# What a subclass may define: none of it says what a call computes.
_HARMLESS: Final = frozenset(
    (
        "__annotations__ __constants__ __deepcopy__ __dict__ __doc__ __firstlineno__ __getstate__ "
        "__init__ __jit_unused_properties__ __module__ __orig_bases__ __parameters__ __qualname__ "
        "__repr__ __setstate__ __slots__ __static_attributes__ __weakref__ extra_repr "
        "reset_parameters"
    ).split()
)


def refuse_own_code(module: torch.nn.Module, theirs: type[torch.nn.Module]) -> None:
    """Raise TypeError where a module may compute something else than torch's class does.

    Args:
        module: an instance of a subclass, or of the class itself.
        theirs: torch's class.
    """
    name, remedy = type(module).__name__, "call from_torch on a plain module inside of it"
    if "forward" in vars(module):
        raise TypeError(
            f"module: expected torch.nn.{theirs.__name__}'s own forward, got {name} with a forward "
            f"that was assigned to it; take it off first"
        )
    for cls in type(module).__mro__:
        if cls is theirs:
            return
        own = [
            key
            for key in vars(cls)
            if key not in _HARMLESS
            and hasattr(theirs, key)
            and not parametrize.is_parametrized(module, key)
        ]
        if own:
            raise TypeError(
                f"module: expected torch.nn.{theirs.__name__}'s own code, got {cls.__name__}, "
                f"which has its own {', '.join(sorted(own))}; {remedy}"
            )


def take_over(like: torch.nn.Module, twin: torch.nn.Module) -> None:
    """Let a twin share parameters, buffers, submodules and hooks of a module."""
    for name, parameter in like._parameters.items():
        twin.register_parameter(name, parameter)
    persistent = like._non_persistent_buffers_set
    for name, buffer in like.named_buffers(recurse=False):
        twin.register_buffer(name, buffer, persistent=name not in persistent)
    for name, child in like.named_children():
        twin.add_module(name, child)
    for name in _HOOKS:
        # The same dictionary: a hook's handle removes it from both.
        setattr(twin, name, getattr(like, name))
    twin._is_full_backward_hook = like._is_full_backward_hook
