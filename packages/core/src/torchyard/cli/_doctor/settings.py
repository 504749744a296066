"""Checks of the settings: names that nothing answers to are mistakes that stay silent."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from torchyard._environ import VARIABLES, setting, unknown_settings
from torchyard._errors import TorchyardError
from torchyard._plugins.check import Check, CheckStatus
from torchyard._plugins.ownership import plugin_lists
from torchyard._registry.policy import parse_enlisted, parse_uses
from torchyard._registry.registry import Registry


def check_settings(registry: Registry) -> Iterator[Check]:
    """Check that every setting is known, and that every name in one is."""
    unknown = unknown_settings(tuple(plugin.name for plugin in registry.plugins), registry.environ)
    for name in unknown:
        near = get_close_matches(name, [variable.name for variable in VARIABLES], n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/reference/settings.md lists them"
        yield Check(name, CheckStatus.WARN, "no such setting; nothing reads it", hint)
    mistakes = list(_mistakes(registry))
    yield from mistakes
    if not unknown and not mistakes:
        yield Check("settings", CheckStatus.PASS, "every setting and every name in one is known")


def _mistakes(registry: Registry) -> Iterator[Check]:
    use, enlist, lock, _ = registry.settings()
    try:
        uses = parse_uses(use)
        demanded = [*uses.values(), *parse_enlisted(enlist)]
        if lock:
            registry.locked(lock)
    except TorchyardError as error:
        yield Check("settings", CheckStatus.FAIL, str(error))
        return
    known = {text for contract in registry.contracts() for text in (str(contract), contract.op)}
    for contract in sorted(set(uses) - known):
        yield _unknown("TORCHYARD_USE", "contract", contract, known)
    plugins = {plugin.name for plugin in registry.plugins}
    for name in sorted(set(demanded)):
        if name.partition(".")[0] not in plugins:
            yield _unknown("TORCHYARD_USE or TORCHYARD_ENLIST", "plugin of", name, plugins)
    allow, block = plugin_lists(setting("TORCHYARD_PLUGINS", registry.environ))
    for name in sorted(((allow or frozenset()) | block) - plugins):
        yield _unknown("TORCHYARD_PLUGINS", "plugin", name, plugins)


def _unknown(variable: str, what: str, name: str, known: set[str]) -> Check:
    return Check(
        variable,
        CheckStatus.WARN,
        f"no installed {what} {name!r}",
        f"known: {', '.join(sorted(known)) or 'none'}",
    )
