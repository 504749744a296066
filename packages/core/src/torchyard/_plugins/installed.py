"""What the installed distributions announce, without importing any of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from typing import Final

from torchyard._failure import describe
from torchyard._plugins.plugin import PluginSource

GROUP: Final = "torchyard.plugins"


def installed_sources() -> tuple[PluginSource, ...]:
    """Return every plugin that an installed distribution announces, sorted."""
    try:
        found = {_source(entry, entry.dist) for entry in entry_points(group=GROUP)}
    # One unreadable file of any installed distribution ends that iteration.
    except Exception:
        found = set(_one_by_one())
    return tuple(sorted(found, key=lambda source: (source.name, source.distribution)))


def torchyard_distributions() -> dict[str, str]:
    """Return the installed distributions of torchyard and of its plugins, with their versions."""
    found = {
        source.distribution: source.version for source in installed_sources() if source.distribution
    }
    for distribution in distributions():
        name = _name(distribution)
        if name.lower().replace("_", "-").split("-")[0] == "torchyard":
            found.setdefault(name, _version(distribution))
    return dict(sorted(found.items()))


def _one_by_one() -> Iterator[PluginSource]:
    seen = set()
    for distribution in distributions():
        name = _name(distribution)
        if name in seen:
            continue
        seen.add(name)
        try:
            entries = [entry for entry in distribution.entry_points if entry.group == GROUP]
        except Exception as error:
            if GROUP in (distribution.read_text("entry_points.txt") or ""):
                problem = f"entry_points.txt of {name}: cannot be read: {describe(error)}"
                yield PluginSource(name, "", name, _version(distribution), problem)
            continue
        for entry in entries:
            yield _source(entry, distribution)


def _source(entry: EntryPoint, distribution: Distribution | None) -> PluginSource:
    if distribution is None:
        return PluginSource(entry.name, entry.value, "", "")
    return PluginSource(entry.name, entry.value, _name(distribution), _version(distribution))


def _name(distribution: Distribution) -> str:
    try:
        return str(distribution.metadata["Name"] or "")
    except Exception:
        return ""


def _version(distribution: Distribution) -> str:
    try:
        return str(distribution.metadata["Version"] or "")
    except Exception:
        return ""
