"""An AOTInductor package: machine code for one kind of processor, stated and checked."""

from __future__ import annotations

import logging
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.export import ExportedProgram

from torchyard.evidence.archives import read_zip
from torchyard.evidence.documents import parse_json
from torchyard_export._artifact.program import import_operators, without_futures
from torchyard_export._torch_compat import (
    PACKAGE_LOGGER,
    compile_and_package,
    load_package,
    takes_processor,
)
from torchyard_export.contract import TargetError
from torchyard_export.targets._native_calls import PACKAGE_LIMITS, calls_of

__all__ = ["AotInductor", "check_processor", "metadata"]

_FILE: Final = "model.pt2"
_METADATA: Final = re.compile(r"[^/]+/data/aotinductor/model/[^/]+\.wrapper_metadata\.json")


@dataclass(frozen=True, slots=True)
class _Policy:
    """Which processors the code is for.

    Attributes:
        name: as the manifest shows it.
        march: what the compiler may use; None is all that this machine has.
        bits: the width of vectors; None is this machine's widest.
    """

    name: str
    march: str | None = None
    bits: int | None = None


# By platform.machine(): what every server of the last ten years has.
_PORTABLE: Final = {
    "x86_64": _Policy("x86-64-v3", "x86-64-v3", 256),
    "aarch64": _Policy("armv8.2-a", "armv8.2-a", 128),
}
# Every processor of this kind has it.
_BASELINE: Final = frozenset({"NEON"})


class AotInductor:
    """Compile a program; recurrent layers call our ops through AOTInductor's proxy.

    A program with such layers therefore runs in Python, or wherever else the ops are registered.
    """

    native = True

    def __init__(self, *, portable: bool = False) -> None:
        self._portable = portable

    def export(self, program: ExportedProgram, folder: Path) -> Mapping[str, bytes]:
        """Return the package; its metadata names the instruction set that it needs.

        Raises:
            TargetError: the compiler refuses, or nothing is known of this kind of machine.
        """
        policy = self._policy()
        options: dict[str, Any] = {}
        if policy.march is not None:
            options = {"cpp.march": policy.march, "cpp.simdlen": policy.bits}
        path = folder / _FILE
        try:
            with torch.no_grad(), without_futures():
                compile_and_package(program, package_path=str(path), inductor_configs=options)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            raise TargetError(
                f"AOTInductor refuses: {type(error).__name__}: {lines[0][:300]}"
            ) from error
        return {_FILE: path.read_bytes()}

    def load(
        self, files: Mapping[str, bytes], folder: Path
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return what runs the code; TargetError where this processor cannot."""
        for calls in calls_of(files[_FILE]):
            import_operators(calls)
        check_processor(metadata(files[_FILE]), _capabilities(), platform.machine())
        path = folder / _FILE
        path.write_bytes(files[_FILE])
        with _unsaid():
            loader: Any = load_package(str(path)).loader

        def run(leaves: Sequence[Any]) -> Sequence[Any]:
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            return list(loader.boxed_run(tensors))

        return run

    def versions(self) -> Mapping[str, str]:
        """Return torch's version, whose library the code needs, and the policy."""
        return {"torch": torch.__version__, "instruction set": self._policy().name}

    def findings(self, files: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
        """Return nothing: what is in the file is what was verified."""
        return ()

    def _policy(self) -> _Policy:
        if not self._portable:
            return _Policy(f"native {platform.machine()}")
        policy = _PORTABLE.get(platform.machine())
        if not takes_processor():
            raise TargetError(
                f"expected a torch whose AOTInductor can be told the processor to compile for, got "
                f"{torch.__version__}; the target aotinductor_native compiles for the machine in "
                "hand"
            )
        if policy is None:
            raise TargetError(
                f"expected a processor of {', '.join(_PORTABLE)}, got {platform.machine()}; the "
                "target aotinductor_native compiles for the machine in hand"
            )
        return policy


@contextmanager
def _unsaid() -> Iterator[None]:
    """Keep back torch's warning of another instruction set: what matters of it was checked."""
    logger = logging.getLogger(PACKAGE_LOGGER)
    logger.addFilter(_says_more)
    try:
        yield
    finally:
        logger.removeFilter(_says_more)


def _says_more(record: logging.LogRecord) -> bool:
    return "Device information mismatch" not in record.getMessage()


def metadata(data: bytes) -> dict[str, str]:
    """Return what a package says of the machine that it needs.

    Raises:
        TargetError: it is no package.
    """
    try:
        found = read_zip(data, PACKAGE_LIMITS, folders=True, wanted=_METADATA.fullmatch)
        (member,) = found.values()
        said = parse_json(member.content, "metadata")
        return {str(key): str(value) for key, value in said.items()}
    except (ValueError, AttributeError) as error:
        raise TargetError(f"{_FILE}: expected an AOTInductor package: {error}") from error


def check_processor(said: Mapping[str, str], has: frozenset[str], machine: str) -> None:
    """Refuse code that this processor cannot run: it would end the process.

    Args:
        said: the package's metadata.
        has: capabilities of this processor, in torch's words without underscores.
        machine: the kind of this processor.

    Raises:
        TargetError: names what is missing.
    """
    wanted = said.get("AOTI_MACHINE", "")
    if wanted != machine:
        raise TargetError(
            f"expected a processor {wanted!r}, which the code is for, got {machine!r}"
        )
    missing = [
        name
        for name in said.get("AOTI_CPU_ISA", "").split()
        if name not in _BASELINE
        and not any(known.startswith(name.lower().replace("_", "")) for known in has)
    ]
    if missing:
        raise TargetError(
            f"expected a processor with {', '.join(missing)}, which the code uses; the target "
            "aotinductor compiles for more of them"
        )


def _capabilities() -> frozenset[str]:
    known = torch.cpu.get_capabilities()
    return frozenset(str(name).replace("_", "") for name, has in known.items() if has is True)
