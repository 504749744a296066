"""Platforms as files: TOML that anyone can write, with the source of each fact."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from torchyard import arguments
from torchyard._errors import PlatformError
from torchyard._platforms.platform import Accelerator, Platform
from torchyard._tables import NAME, Table

SCHEMA: Final = 1
FOLDER: Final = Path(__file__).with_name("machines")
_SUFFIX: Final = ".toml"
_NUMBERS: Final = (
    *("count", "memory", "shared_memory", "multiprocessors", "warp_size", "core_clock"),
    "memory_clock",
)


class Origin(StrEnum):
    """Where a fact of a platform comes from, the most trustworthy first."""

    MEASURED = "measured"
    """Read on such a machine."""

    COMPARED = "compared"
    """Compared with the document that is named."""

    RECALLED = "recalled"
    """Written from memory, and not compared with any document."""

    CHOSEN = "chosen"
    """Not a fact of the hardware: one of many that the machine could have, such as a version."""


@dataclass(frozen=True, slots=True)
class FactSource:
    """Where some facts of a platform come from.

    Attributes:
        facts: their keys, such as ``accelerators[0].memory``; ``libraries.*`` stands for all.
        origin: how sure they are.
        text: the document, the machine, or the reason.
    """

    facts: tuple[str, ...]
    origin: Origin
    text: str

    def covers(self, fact: str) -> bool:
        """Return whether a fact's key is among these."""
        return any(
            fact.startswith(key.removesuffix("*")) if key.endswith("*") else fact == key
            for key in self.facts
        )


@dataclass(frozen=True, slots=True)
class PlatformFile:
    """A machine as a file describes it.

    Attributes:
        name: what ``--platform`` calls it.
        summary: one line for a person.
        platform: its facts.
        sources: where they come from.
    """

    name: str
    summary: str
    platform: Platform
    sources: tuple[FactSource, ...] = ()

    def facts(self) -> Iterator[str]:
        """Yield the key of each fact that is known, but for names."""
        for name in ("machine", "cpu_features", "cpu_cores", "python", "torch"):
            if getattr(self.platform, name):
                yield f"host.{name}"
        for index, item in enumerate(self.platform.accelerators):
            for field in dataclasses.fields(item):
                if field.name not in {"device", "name", "count"} and getattr(item, field.name):
                    yield f"accelerators[{index}].{field.name}"
        for name, _ in self.platform.libraries:
            yield f"libraries.{name}"

    def without_source(self) -> tuple[str, ...]:
        """Return the facts of which no source is named."""
        return tuple(
            fact for fact in self.facts() if not any(source.covers(fact) for source in self.sources)
        )

    def to_toml(self) -> str:
        """Return the file's text."""
        host = self.platform
        lines = [
            f"schema = {SCHEMA}",
            f"name = {_quoted(self.name)}",
            f"summary = {_quoted(self.summary)}",
            "",
            "[host]",
            f"system = {_quoted(host.system)}",
            f"machine = {_quoted(host.machine)}",
            f"cpu_features = {_quoted(' '.join(sorted(host.cpu_features)))}",
            f"cpu_cores = {host.cpu_cores}",
            f"python = {_quoted(host.python)}",
            *([f"torch = {_quoted(host.torch)}"] if host.torch else []),
            f"devices = {json.dumps(sorted(host.devices))}",
        ]
        if host.libraries:
            lines += ["", "[libraries]"]
            lines += [f"{name} = {_quoted(version)}" for name, version in host.libraries]
        for item in host.accelerators:
            lines += ["", "[[accelerators]]"]
            lines += [
                f"{field.name} = {json.dumps(value)}"
                for field in dataclasses.fields(item)
                if (value := getattr(item, field.name))
            ]
        for source in self.sources:
            lines += [
                "",
                "[[sources]]",
                f"facts = {json.dumps(list(source.facts))}",
                f"origin = {_quoted(source.origin)}",
                f"text = {_quoted(source.text)}",
            ]
        return "\n".join([*lines, ""])


def platform_names() -> tuple[str, ...]:
    """Return the names of the machines whose files ship with torchyard, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob(f"*{_SUFFIX}")))


def read_platform_file(where: str | Path) -> PlatformFile:
    """Return a machine by the name of a file that ships with torchyard, or by a path.

    Raises:
        PlatformError: there is no such file, or it is no platform; names the key, what was
            expected and what was found.
    """
    path = arguments.path("read_platform_file", "where", where)
    if str(path) in platform_names():
        path = FOLDER / f"{path}{_SUFFIX}"
    elif path.suffix != _SUFFIX and len(path.parts) == 1:
        raise PlatformError(
            f"platform {str(path)!r}: expected one of {', '.join(platform_names())}, or a TOML "
            f"file, as `torchyard env --platform-out FILE` writes one"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlatformError(f"{path}: cannot be read: {error}") from error
    try:
        return parse_platform(text)
    except PlatformError as error:
        raise PlatformError(f"{path}: {error}") from error


def parse_platform(text: str) -> PlatformFile:
    """Read the text of a platform's file; PlatformError says which key is wrong and why."""
    import tomllib

    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlatformError(f"expected TOML, got: {error}") from error
    table = Table(data, "", PlatformError)
    schema = table.take("schema", int)
    if schema != SCHEMA:
        raise PlatformError(
            f"schema: expected {SCHEMA}, got {schema}; install a torchyard that reads it"
        )
    host = table.table("host")
    accelerators = tuple(_accelerator(entry) for entry in table.entries("accelerators"))
    libraries = table.table("libraries", {})
    platform = Platform(
        system=host.take("system", str),
        machine=host.take("machine", str),
        cpu_features=frozenset(host.take("cpu_features", str, "").split()),
        cpu_cores=_counting(host, "cpu_cores"),
        python=host.take("python", str),
        torch=host.take("torch", str, None),
        devices=frozenset(host.names("devices")),
        accelerators=accelerators,
        libraries=tuple(sorted((name, libraries.take(name, str)) for name in libraries.data)),
    )
    missing = sorted({item.device for item in accelerators} - platform.devices)
    if missing:
        raise PlatformError(
            f"host.devices: expected the accelerators' devices too, got no {', '.join(missing)}"
        )
    found = PlatformFile(
        name=table.name("name"),
        summary=table.take("summary", str),
        platform=platform,
        sources=tuple(_source(entry) for entry in table.entries("sources")),
    )
    host.finish()
    table.finish()
    return found


def _accelerator(entry: Table) -> Accelerator:
    device = entry.take("device", str)
    if not NAME.fullmatch(device):
        raise PlatformError(
            f"{entry.at('device')}: expected a torch device type such as 'cuda', got {device!r}"
        )
    numbers = {name: _counting(entry, name) for name in _NUMBERS if name in entry.data}
    accelerator = Accelerator(
        device=device,
        architecture=entry.take("architecture", str, ""),
        name=entry.take("name", str),
        driver=entry.take("driver", str, ""),
        runtime=entry.take("runtime", str, ""),
        **numbers,
    )
    entry.finish()
    return accelerator


def _source(entry: Table) -> FactSource:
    origin = entry.take("origin", str)
    if origin not in set(Origin):
        raise PlatformError(
            f"{entry.at('origin')}: expected one of {', '.join(Origin)}, got {origin!r}"
        )
    source = FactSource(entry.names("facts"), Origin(origin), entry.take("text", str))
    entry.finish()
    return source


def _counting(table: Table, key: str) -> int:
    value = int(table.take(key, int))
    if value < 1:
        raise PlatformError(f"{table.at(key)}: expected an int of at least 1, got {value}")
    return value


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string.
    return json.dumps(text, ensure_ascii=False)
