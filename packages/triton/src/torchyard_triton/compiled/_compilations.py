"""``compilations``: a vendor's kernels, each compiled ahead of time where it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

from torchyard import Compilation
from torchyard_triton._vendor import Vendor
from torchyard_triton.architectures import Architecture
from torchyard_triton.compiled._cache import FiguresCache
from torchyard_triton.compiled._compilation import compile_launch
from torchyard_triton.compiled._compilers import missing_compiler
from torchyard_triton.compiled._inventory import faults_of
from torchyard_triton.compiled._older import add_missing
from torchyard_triton.compiled.specimens import Specimen, specimens

__all__ = ["FaultyCodeError", "compilations"]

# What a compilation says of itself already.
_NAMES = frozenset({"architecture", "kernel", "program"})


class FaultyCodeError(ValueError):
    """A kernel compiles, and its code is not what it must be."""


def compilations(contract: str, vendor: Vendor) -> Iterator[Compilation]:
    """Yield every kernel of a contract on every architecture of a vendor.

    Args:
        contract: ``op/version``.
        vendor: of the plugin that offers them.
    """
    for name, architecture in sorted(vendor.architectures().items()):
        missing = partial(missing_compiler, architecture.backend)
        for specimen in specimens(name, contract):
            run = partial(_figures, specimen, architecture)
            yield Compilation(name, f"{specimen.kernel}/{specimen.program}", missing, run)


def _figures(specimen: Specimen, architecture: Architecture) -> dict[str, float | str]:
    """Compile a kernel; raise FaultyCodeError where its code is not what it must be."""
    add_missing()
    names = specimen.kernel, specimen.program
    figures = compile_launch(specimen.build(), architecture, *names, FiguresCache(None))
    found = faults_of(figures, specimen, architecture)
    if found:
        raise FaultyCodeError("; ".join(found))
    return {name: value for name, value in asdict(figures).items() if name not in _NAMES}
