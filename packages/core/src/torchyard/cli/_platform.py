"""``--platform``: decide as another machine would, which a file describes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import click

from torchyard._platforms.files import FactSource, Origin, PlatformFile, read_platform_file
from torchyard._registry.registry import Registry, registry

F = TypeVar("F", bound=Callable[..., Any])


def platform_option(command: F) -> F:
    """Give a command ``--platform``."""
    option = click.option(
        "--platform",
        "platform",
        metavar="NAME|FILE",
        help="Decide as this machine would, such as h100, or a file of `env --platform-out`.",
    )
    return option(command)


def registry_of(platform: str | None) -> tuple[Registry, PlatformFile | None]:
    """Return the registry of a machine that a name or a file describes; of this one for None."""
    if platform is None:
        return registry(), None
    found = read_platform_file(platform)
    return Registry(platform=found.platform), found


def default_device(file: PlatformFile) -> str:
    """Return the device that a request is for where none is named: the first accelerator's."""
    return next((item.device for item in file.platform.accelerators), "cpu")


def describe_platform(file: PlatformFile) -> str:
    """Return one line that names a machine and says how sure its facts are."""
    counts = Counter(origin_of(file, fact) for fact in file.facts())
    known = ", ".join(f"{counts[origin]} {origin}" for origin in Origin if counts[origin])
    if unknown := counts[None]:
        known = f"{known}, {unknown} without a source" if known else f"{unknown} without a source"
    return f"{file.name}: {file.summary}; facts: {known}"


def origin_of(file: PlatformFile, fact: str) -> Origin | None:
    """Return how sure a fact is: what the last source that covers it says."""
    covering: list[FactSource] = [source for source in file.sources if source.covers(fact)]
    return covering[-1].origin if covering else None
