"""Activation: the one place where a plugin's code is imported and its hooks are called.

Whatever that code does - raise, exit, print, dawdle, return junk - ends as a state of its plugin.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import time
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from torchyard._plugin import Plugin, PluginState
from torchyard._verdict import ReasonCode

if TYPE_CHECKING:
    import pluggy

SLOW_IMPORT_SECONDS: Final = 0.5
_KEPT_OUTPUT: Final = 200

T = TypeVar("T")


class PluginCodeError(Exception):
    """A plugin's code did something that it may not; the plugin's state says what."""


class Activator:
    """Import plugin modules and call their hooks, each plugin on its own."""

    def __init__(self) -> None:
        self._manager: pluggy.PluginManager | None = None

    def call_for_sequence(
        self, plugin: Plugin, module: str, hook: str, kind: type[T], **arguments: object
    ) -> tuple[T, ...]:
        """Call a hook that returns a sequence of ``kind``; PluginCodeError if it does not."""
        answer = self._call(plugin, module, hook, arguments)
        if isinstance(answer, str) or not isinstance(answer, Sequence):
            raise _junk(plugin, hook, f"a sequence of {kind.__name__}", answer)
        for item in answer:
            if not isinstance(item, kind):
                raise _junk(plugin, hook, f"a sequence of {kind.__name__}", item)
        return tuple(answer)

    def call_for_one(
        self, plugin: Plugin, module: str, hook: str, kind: type[T], **arguments: object
    ) -> T:
        """Call a hook that returns one ``kind``; PluginCodeError if it does not."""
        answer = self._call(plugin, module, hook, arguments)
        if not isinstance(answer, kind):
            raise _junk(plugin, hook, f"a {kind.__name__}", answer)
        return answer

    def load_attribute(self, plugin: Plugin, module: str, attribute: str) -> Any:
        """Import a module of a plugin and return one of its attributes."""
        loaded = self._import(plugin, module)
        try:
            return getattr(loaded, attribute)
        except AttributeError:
            plugin.retire(
                PluginState.FAILED,
                ReasonCode.PLUGIN,
                f"module {module!r}: expected an attribute {attribute!r}, found none",
                _REPORT.format(plugin.source.distribution or plugin.name),
                traceback.format_exc(),
            )
            raise PluginCodeError(plugin.reason) from None

    def _call(self, plugin: Plugin, module: str, hook: str, arguments: dict[str, object]) -> object:
        loaded = self._import(plugin, module)
        manager = self._hooks()
        name = f"{plugin.name}:{module}"
        with self._contained(plugin, f"module {module!r}, hook {hook}"):
            if not manager.has_plugin(name):
                try:
                    manager.register(loaded, name=name)
                    manager.check_pending()
                except BaseException:
                    if manager.has_plugin(name):
                        manager.unregister(name=name)
                    raise
            others = [item for item in manager.get_plugins() if item is not loaded]
            answers = manager.subset_hook_caller(hook, remove_plugins=others)(**arguments)
            if len(answers) != 1:
                raise TypeError(
                    f"module {module!r} must implement the hook {hook} (decorated with "
                    f"torchyard.hookimpl) and must not return None"
                )
            return answers[0]

    def _import(self, plugin: Plugin, module: str) -> ModuleType:
        if not plugin.usable:
            raise PluginCodeError(plugin.reason)
        if module in plugin.import_seconds:
            return sys.modules[module]
        had_torch = "torch" in sys.modules
        start = time.perf_counter()
        with self._contained(plugin, f"import of module {module!r}"):
            loaded = importlib.import_module(module)
        seconds = time.perf_counter() - start
        plugin.import_seconds[module] = seconds
        if seconds > SLOW_IMPORT_SECONDS:
            torch_too = "" if had_torch or "torch" not in sys.modules else " (it imports torch)"
            plugin.notes.append(
                f"slow import: module {module!r} took {seconds:.1f} s{torch_too}; "
                f"budget {SLOW_IMPORT_SECONDS} s; heavy imports belong into load()"
            )
        plugin.state = PluginState.ACTIVE
        return loaded

    def _hooks(self) -> pluggy.PluginManager:
        if self._manager is None:
            import pluggy

            from torchyard import hookspecs

            self._manager = pluggy.PluginManager(hookspecs.PROJECT)
            self._manager.add_hookspecs(hookspecs)
        return self._manager

    @contextlib.contextmanager
    def _contained(self, plugin: Plugin, doing: str) -> Any:
        """Turn whatever a plugin's code raises into its state, and keep what it prints."""
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name is not None
            plugin.retire(
                PluginState.FAILED,
                ReasonCode.PLUGIN,
                f"{doing}: {type(error).__name__}: {error}",
                f"install {error.name!r}, or list it under requires.modules in the manifest"
                if missing and isinstance(error, ModuleNotFoundError)
                else _REPORT.format(plugin.source.distribution or plugin.name),
                traceback.format_exc(),
            )
            raise PluginCodeError(plugin.reason) from error
        finally:
            text = printed.getvalue().strip()
            if text:
                plugin.notes.append(f"{doing}: printed {text[:_KEPT_OUTPUT]!r}")


def _junk(plugin: Plugin, hook: str, expected: str, answer: object) -> PluginCodeError:
    plugin.retire(
        PluginState.FAILED,
        ReasonCode.PLUGIN,
        f"hook {hook}: expected {expected}, got {type(answer).__name__} {answer!r:.80}",
        _REPORT.format(plugin.source.distribution or plugin.name),
    )
    return PluginCodeError(plugin.reason)


_REPORT: Final = "report it to the author of {0!r}, or switch the plugin off in TORCHYARD_PLUGINS"
