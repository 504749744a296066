"""Deprecation of hooks and of their arguments: a warning to the plugin's author, once."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Final

from torchyard._plugins.plugin import Plugin

if TYPE_CHECKING:
    import pluggy

_warned: Final[set[tuple[str, str, int, str]]] = set()


class PluginDeprecationWarning(DeprecationWarning):
    """A plugin implements a hook, or takes an argument of one, that will go.

    Its location is the plugin's function, so that the author's tests show it; a user finds it among
    the plugin's notes.
    """


def deprecation(what: str, *, since: str, remove_in: str, instead: str) -> PluginDeprecationWarning:
    """Return what a hook's specification holds: ``warn_on_impl=`` or ``warn_on_impl_args={name:``.

    Args:
        what: the hook or the argument, in words.
        since: the release that deprecates it.
        remove_in: the first release without it.
        instead: what the author should write, beginning with a verb.
    """
    return PluginDeprecationWarning(
        f"{what} is deprecated since torchyard {since} and goes in {remove_in}; {instead}"
    )


@contextlib.contextmanager
def noting_deprecations(
    manager: pluggy.PluginManager, plugin: Plugin, module: ModuleType
) -> Iterator[None]:
    """Keep what pluggy warns of while it registers a module; note it, and tell the author once."""
    hooks = [hook for hook in vars(manager.hook) if _deprecates(manager, hook)]
    # Collecting warnings is the whole process's affair, so it is done only where there is one.
    if not any(hook in vars(module) for hook in hooks):
        yield
        return
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for item in found:
        if not isinstance(item.message, PluginDeprecationWarning):
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)
            continue
        text = str(item.message)
        plugin.notes.append(f"module {module.__name__!r}: {text}")
        key = (plugin.name, item.filename, item.lineno, text)
        if key not in _warned:
            _warned.add(key)
            warnings.warn_explicit(
                f"plugin {plugin.name!r}: {text}", item.category, item.filename, item.lineno
            )


def _deprecates(manager: pluggy.PluginManager, hook: str) -> bool:
    spec = getattr(manager.hook, hook).spec
    return spec is not None and bool(spec.warn_on_impl or spec.warn_on_impl_args)
