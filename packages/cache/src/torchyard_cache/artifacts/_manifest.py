"""What a bundle says of itself and of each artifact."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from typing import Annotated, Final

import torch

from torchyard.evidence import DocumentError
from torchyard.evidence.documents import AtMost, Between

__all__ = ["SCHEMA", "Artifact", "Machine", "Manifest", "packages_here", "this_machine"]

SCHEMA: Final = 2
_TEXT: Final = 400


@dataclass(frozen=True, slots=True)
class Artifact:
    """One compiled thing.

    Attributes:
        kind: ``inductor``, ``aot_autograd``, ``autotune``, ``pgo`` or ``precompile`` of torch's, or
            a registered one.
        key: of torch's cache, or the file's name below its kind's folder.
        size: of the content, in bytes.
        sha256: of the content, in hexadecimal.
        made: when it was first saved, in seconds since 1970.
        used: when a process that saved it had compiled it or found it compiled.
        graph: whose it is: torch's number, and name, file and line of the function; empty where
            that is not known, as of files.
    """

    kind: Annotated[str, AtMost(80)]
    key: Annotated[str, AtMost(_TEXT)]
    size: Annotated[int, Between(0, 1 << 40)]
    sha256: Annotated[str, AtMost(64)]
    made: float
    used: float
    graph: Annotated[str, AtMost(_TEXT)] = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What compiled code depends on beside its source.

    Attributes:
        torch: version.
        python: version, without the last number.
        triton: version; empty where there is none.
        system, processor: ``Linux``, ``x86_64``.
        instructions: the CPU's instruction set as torch has it.
        accelerator: architecture of the first accelerator; empty without one.
    """

    torch: Annotated[str, AtMost(_TEXT)]
    python: Annotated[str, AtMost(_TEXT)]
    triton: Annotated[str, AtMost(_TEXT)]
    system: Annotated[str, AtMost(_TEXT)]
    processor: Annotated[str, AtMost(_TEXT)]
    instructions: Annotated[str, AtMost(_TEXT)]
    accelerator: Annotated[str, AtMost(_TEXT)]

    def differences(self, other: Machine) -> str:
        """Return in what another machine differs, such as ``torch 2.13.0, here 2.12.1``."""
        mine, theirs = asdict(self), asdict(other)
        return "; ".join(
            f"{name} {theirs[name] or 'none'}, here {mine[name] or 'none'}"
            for name in mine
            if mine[name] != theirs[name]
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a bundle's signature covers.

    Attributes:
        schema: of the manifest.
        name: of the bundle; serials of one name and one key are compared.
        serial: grows with each save, so that an older bundle in a newer one's place is noticed.
        machine: where its artifacts were compiled.
        packages: version of each of torchyard's packages there.
        artifacts: sorted by kind and key.
    """

    schema: int
    name: Annotated[str, AtMost(_TEXT)]
    serial: Annotated[int, Between(0, (1 << 63) - 1)]
    machine: Machine
    packages: dict[str, str]
    artifacts: tuple[Artifact, ...]

    def check(self) -> None:
        """Refuse a schema that is not read here, and artifacts that are there twice."""
        if self.schema != SCHEMA:
            raise DocumentError(f"schema: expected {SCHEMA}, got {self.schema}")
        names = [(item.kind, item.key) for item in self.artifacts]
        if len(set(names)) != len(names):
            raise DocumentError("artifacts: expected each kind and key once")

    @property
    def size(self) -> int:
        """Bytes of all artifacts."""
        return sum(item.size for item in self.artifacts)


def this_machine() -> Machine:
    """Return what compiled code depends on in this process."""
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = ""
    return Machine(
        torch=str(torch.__version__),
        python=".".join(platform.python_version_tuple()[:2]),
        triton=triton,
        system=platform.system(),
        processor=platform.machine(),
        instructions=torch.backends.cpu.get_cpu_capability(),
        accelerator=_accelerator(),
    )


def _accelerator() -> str:
    if not torch.cuda.is_available():
        return ""
    facts = torch.cuda.get_device_properties(0)
    return str(getattr(facts, "gcnArchName", "") or f"sm_{facts.major}{facts.minor}")


def packages_here() -> dict[str, str]:
    """Return the versions of torchyard's packages."""
    found = {item.metadata["Name"]: item.version for item in distributions()}
    return {name: found[name] for name in sorted(found) if str(name).startswith("torchyard")}
