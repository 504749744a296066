"""The table of broken kernels: which law caught each, on which call, and its sound twin.

Print it from the top of the tree: ``python -m packages.conformance.tests.attention.kernel_table``.
"""

from __future__ import annotations

import sys
from typing import ClassVar

import torch
from rich.console import Console
from rich.table import Table

from torchyard_attention.contract import BACKWARD
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._attention._laws import LAWS, judge
from torchyard_conformance._outcome import NotSupported, Violated

from .kernel_mutants import MUTANTS
from .toy_attention import Claiming, Toy

# They ask the registry, which offers what is installed; tests of installed plugins hold them.
INSTALLED = {
    "truth.attention-refuses-when-demanded",
    "truth.attention-double-backward",
    "truth.attention-drops-no-tangent",
}


class Wide(Toy):
    """The sound kernel for float64 too, whose sums are then no wider than its results."""

    dtypes: ClassVar[tuple[str, ...]] = (*Toy.dtypes, "float64")


def twin_of(law: str) -> Toy:
    """Return the sound kernel that a law is held on."""
    return Wide() if "gradcheck" in law else Claiming()


def held(law: str, toy: Toy, contract: str, *, quick: bool = False) -> tuple[int, Violated | None]:
    """Hold a kernel to a law: on how many cases it holds, and the first that it breaks."""
    kernel = Kernel(toy.implementation(contract))
    passed = 0
    for case in LAWS[law].case_names(quick=quick):
        try:
            judge(LAWS[law], kernel, case)
        except NotSupported:
            continue
        except Violated as broken:
            return passed, broken
        passed += 1
    return passed, None


def main() -> int:
    """Hold every broken kernel, and its twin, to the law meant for it; print what came of it."""
    torch.set_num_threads(1)
    table = Table(box=None, pad_edge=False)
    for heading in ("kernel", "half", "fault", "caught by", "smallest call", "twin"):
        table.add_column(heading, overflow="fold")
    caught = 0
    for mutant in MUTANTS:
        _, broken = held(mutant.law, mutant.toy(), mutant.contract)
        torch.set_flush_denormal(False)
        _, sick = held(mutant.law, twin_of(mutant.law), mutant.contract, quick=True)
        caught += broken is not None and sick is None
        table.add_row(
            mutant.toy.__name__,
            "backward" if mutant.contract == BACKWARD else "forward",
            (mutant.toy.__doc__ or "").splitlines()[0],
            mutant.law if broken is not None else f"nothing (meant: {mutant.law})",
            "" if broken is None else broken.smallest,
            "passes" if sick is None else str(sick),
        )
    console = Console(markup=False, highlight=False, width=200)
    console.print(table)
    console.print(f"{len(MUTANTS)} broken kernels, {caught} caught by the law meant for them")
    return 0 if caught == len(MUTANTS) else 1


if __name__ == "__main__":
    sys.exit(main())
