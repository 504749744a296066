"""``python -m torchyard_triton.compiled ARCHITECTURE...``: compile every kernel, print a table.

``all`` are those for which the installed Triton has a compiler: ``triton`` has NVIDIA's and AMD's,
``triton-xpu`` Intel's too.

Options: ``--programs none,causal`` (of attention; empty: without it), ``--kernels
attention_forward``, ``--out FILE`` (JSON, one row for each kernel), ``--cache FOLDER`` (kernels
that did not change are not compiled again). Exits with 1 where a kernel has a fault.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import triton

from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.compiled._budgets import budget_of
from torchyard_triton.compiled._cache import FiguresCache
from torchyard_triton.compiled._compilation import compile_launch
from torchyard_triton.compiled._compilers import missing_compiler
from torchyard_triton.compiled._figures import Figures, faults
from torchyard_triton.compiled._older import add_missing
from torchyard_triton.compiled.specimens import PROGRAMS, specimens


def main(words: list[str]) -> int:
    """Compile and judge; return the exit status."""
    parser = argparse.ArgumentParser(prog="torchyard_triton.compiled", allow_abbrev=False)
    parser.add_argument("architectures", nargs="+", choices=[*ARCHITECTURES, "all"])
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--kernels", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args(words)
    names = _known() if "all" in options.architectures else options.architectures
    kernels = set(filter(None, options.kernels.split(",")))
    programs = list(filter(None, options.programs.split(",")))
    cache = FiguresCache(options.cache)
    add_missing()
    rows: list[Figures] = []
    found: list[str] = []
    for name in names:
        architecture = ARCHITECTURES[name]
        for specimen in specimens(name, programs=programs):
            if kernels and specimen.kernel not in kernels:
                continue
            try:
                figures = compile_launch(
                    specimen.build(), architecture, specimen.kernel, specimen.program, cache
                )
            except Exception as error:
                found.append(
                    f"{name} {specimen.kernel} {specimen.program}: {type(error).__name__}: {error}"
                )
                continue
            rows.append(figures)
            found += faults(
                figures,
                architecture,
                spills=budget_of(name, triton.__version__, specimen.kernel),
                matrix=specimen.matrix,
                small=specimen.small,
            )
            print(
                f"{name:8} {specimen.kernel:28} {specimen.program:9} {figures.registers:4} "
                f"registers {figures.scalar_registers or '-':>3} scalar {figures.spills:4} spilled "
                f"{figures.shared_memory:7} shared "
                f"{figures.waves or '-':>3} waves {figures.matrix or '-':16} "
                f"{figures.seconds:5.1f} s",
                flush=True,
            )
    if not rows:
        found.append(f"compiled nothing: no kernel is named {' or '.join(sorted(kernels))}")
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print("\n".join(found) or f"{len(rows)} kernels compiled, no fault")
    return 1 if found else 0


def _known() -> list[str]:
    """Return the architectures for which this Triton has a compiler."""
    return [name for name, item in ARCHITECTURES.items() if not missing_compiler(item.backend)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
