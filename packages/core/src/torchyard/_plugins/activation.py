"""Activation: the one place where a plugin's code is imported and its hooks are called.

If that code raises, exits, prints or returns something else, the plugin's state says so.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from torchyard._contracts.implementation import ReasonCode
from torchyard._failure import describe, show
from torchyard._plugins.capture import capture_prints
from torchyard._plugins.deprecation import noting_deprecations
from torchyard._plugins.plugin import Plugin, PluginState
from torchyard._version import __version__

if TYPE_CHECKING:
    import pluggy

    from torchyard._contracts.implementation import Implementation

SLOW_IMPORT_SECONDS: Final = 0.5
_KEPT_OUTPUT: Final = 200
_REPORT: Final = (
    "report it to the author of {0!r}, or switch the plugin off: TORCHYARD_PLUGINS=-{1}"
)

T = TypeVar("T")


class PluginCodeError(Exception):
    """A plugin's code failed or broke a hook's contract; the plugin's state says how."""


class LibraryImportError(PluginCodeError):
    """A library that one implementation needs cannot be imported; its plugin is still in use.

    Attributes:
        module: the module that was to be imported; empty where the error does not say.
    """

    def __init__(self, text: str, module: str) -> None:
        super().__init__(text)
        self.module = module


class _BrokenPromise(Exception):
    """A plugin's code ran and returned something else than the hook requires."""


class Activator:
    """Import plugin modules and call their hooks, each plugin on its own.

    Not safe for two threads at once: the registry holds its lock around every call.
    """

    def __init__(self) -> None:
        self._manager: pluggy.PluginManager | None = None
        self._importing: set[str] = set()

    def call_for_sequence(
        self,
        plugin: Plugin,
        module: str,
        hook: str,
        kind: type[T],
        *,
        retire: bool = True,
        **arguments: object,
    ) -> tuple[T, ...]:
        """Call a hook that returns a sequence of ``kind``.

        Args:
            plugin: whose hook.
            module: the module of the manifest that holds it.
            hook: the hook's name.
            kind: what the sequence must hold.
            retire: whether a failure takes the plugin out of use.
            arguments: the hook's own.

        Raises:
            PluginCodeError: the hook raised, or returned something else.
        """
        with self._contained(plugin, f"module {module!r}, hook {hook}", retire=retire):
            answer = self._call(plugin, module, hook, arguments, retire=retire)
            if isinstance(answer, str) or not isinstance(answer, Sequence):
                raise _BrokenPromise(f"expected a sequence of {kind.__name__}, got {show(answer)}")
            items = tuple(answer)
            for item in items:
                if not isinstance(item, kind):
                    raise _BrokenPromise(
                        f"expected a sequence of {kind.__name__}, got one with {show(item)}"
                    )
        return items

    def call_for_one(
        self, plugin: Plugin, module: str, hook: str, kind: type[T], **arguments: object
    ) -> T:
        """Call a hook that returns one ``kind``; PluginCodeError if it does not."""
        with self._contained(plugin, f"module {module!r}, hook {hook}"):
            answer = self._call(plugin, module, hook, arguments)
            if not isinstance(answer, kind):
                raise _BrokenPromise(f"expected a {kind.__name__}, got {show(answer)}")
        return answer

    def load_attribute(self, plugin: Plugin, module: str, attribute: str) -> Any:
        """Import a module of a plugin and return one of its attributes."""
        with self._contained(plugin, f"module {module!r}"):
            loaded = self._import(plugin, module)
            try:
                return getattr(loaded, attribute)
            except AttributeError:
                raise _BrokenPromise(f"expected an attribute {attribute!r}, found none") from None

    def load_implementation(
        self, plugin: Plugin, implementation: Implementation
    ) -> Callable[..., Any]:
        """Call an implementation's ``load``.

        Raises:
            LibraryImportError: it imports a module that is not the plugin's, and that fails.
            PluginCodeError: it raises anything else, or gives no callable.
        """
        doing = f"load() of {implementation.name}"
        with self._contained(plugin, doing):
            try:
                loaded: object = implementation.load()
            except ImportError as error:
                if _is_own_module(plugin, error.name or ""):
                    raise
                text = f"{doing}: {describe(error)}"
                raise LibraryImportError(text, error.name or "") from error
            if not callable(loaded):
                raise _BrokenPromise(f"expected a callable, got {show(loaded)}")
        return loaded

    def _call(
        self,
        plugin: Plugin,
        module: str,
        hook: str,
        arguments: dict[str, object],
        *,
        retire: bool = True,
    ) -> object:
        loaded = self._import(plugin, module, retire=retire)
        manager = self._hooks()
        name = f"{plugin.name}:{module}"
        if not manager.has_plugin(name):
            self._register(manager, plugin, loaded, module, retire=retire)
        others = [item for item in manager.get_plugins() if item is not loaded]
        answers = manager.subset_hook_caller(hook, remove_plugins=others)(**arguments)
        if len(answers) != 1:
            raise _BrokenPromise(
                "expected a function of that name, decorated with torchyard.hookimpl, that returns "
                "something else than None"
            )
        return answers[0]

    def _register(
        self,
        manager: pluggy.PluginManager,
        plugin: Plugin,
        loaded: ModuleType,
        module: str,
        *,
        retire: bool,
    ) -> None:
        """Have pluggy hold a module's hooks against their specifications."""
        for problem in _unknown_to_core(manager, loaded):
            reason = f"module {module!r}: {problem}"
            if not retire:
                raise _BrokenPromise(problem)
            plugin.retire(
                PluginState.INCOMPATIBLE,
                ReasonCode.VERSION,
                reason,
                f"install the torchyard that the plugin was written for; if there is none, "
                f"{_REPORT.format(plugin.source.distribution or plugin.name, plugin.name)}",
            )
            raise PluginCodeError(reason)
        name = f"{plugin.name}:{module}"
        try:
            with noting_deprecations(manager, plugin, loaded):
                manager.register(loaded, name=name)
            manager.check_pending()
        except BaseException:
            if manager.has_plugin(name):
                manager.unregister(name=name)
            raise

    def _import(self, plugin: Plugin, module: str, *, retire: bool = True) -> ModuleType:
        if module in plugin.import_seconds:
            return sys.modules[module]
        if module in self._importing:
            raise _BrokenPromise(
                "asked the registry for itself while it was being imported; a module of a plugin "
                "resolves nothing at import, only in load() or in what load() returns"
            )
        had_torch = "torch" in sys.modules
        start = time.perf_counter()
        self._importing.add(module)
        try:
            with self._contained(plugin, f"import of module {module!r}", retire=retire):
                loaded = importlib.import_module(module)
        finally:
            self._importing.discard(module)
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
    def _contained(self, plugin: Plugin, doing: str, *, retire: bool = True) -> Iterator[None]:
        """Turn an exception of a plugin's code into its state, and record what it prints."""
        if not plugin.usable:
            raise PluginCodeError(plugin.reason)
        try:
            with capture_prints() as printed:
                yield
            if not plugin.usable:
                raise PluginCodeError(plugin.reason)
        except (KeyboardInterrupt, PluginCodeError):
            raise
        except BaseException as error:
            told = str(error) if isinstance(error, _BrokenPromise) else describe(error)
            reason = f"{doing}: {told}"
            # What retired it first says more than what that led to.
            if retire and plugin.usable:
                plugin.retire(
                    PluginState.FAILED,
                    ReasonCode.PLUGIN,
                    reason,
                    _hint(plugin, error),
                    traceback.format_exc(),
                )
            raise PluginCodeError(reason) from error
        finally:
            if text := printed.getvalue().strip():
                plugin.notes.append(f"{doing}: printed {text[:_KEPT_OUTPUT]!r}")


def _unknown_to_core(manager: pluggy.PluginManager, module: ModuleType) -> Iterator[str]:
    """Yield what a module's hooks expect of a torchyard that this one is not."""
    for name, function in vars(module).items():
        options = manager.parse_hookimpl_opts(module, name)
        if options is None:
            continue
        hook = options.get("specname") or name
        spec = getattr(getattr(manager.hook, hook, None), "spec", None)
        if spec is None:
            yield f"hook {hook}: torchyard {__version__} has no such hook"
            continue
        given = [*spec.argnames, *spec.kwargnames]
        wanted = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is parameter.empty and parameter.name not in given
        ]
        if wanted:
            yield (
                f"hook {hook}: expected no arguments but {given}, which are what torchyard "
                f"{__version__} gives, got {wanted}"
            )


def _is_own_module(plugin: Plugin, module: str) -> bool:
    """Return whether a module lies in a package that the plugin's manifest names modules of."""
    entries = plugin.manifest.implements if plugin.manifest is not None else ()
    return module.partition(".")[0] in {entry.module.partition(".")[0] for entry in entries}


def _hint(plugin: Plugin, error: BaseException) -> str:
    report = _REPORT.format(plugin.source.distribution or plugin.name, plugin.name)
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        return (
            f"install {error.name!r}; the plugin should list it under requires.modules in its "
            f"manifest; or {report}"
        )
    return report
