"""``python -m torchyard_triton.compiled ARCHITECTURE...``: compile every kernel, print a table.

``all`` are those for which the installed Triton has a compiler: ``triton`` has NVIDIA's and AMD's,
``triton-xpu`` Intel's too.

Options: ``--programs none,causal`` (of attention; empty: without it; ``heads``: ALiBi with heads of
other sizes than 128), ``--kernels attention_forward``, ``--out FILE`` (JSON: a row for each kernel,
faults, seconds of each architecture and of all), ``--cache FOLDER`` (kernels that did not change
are not compiled again; seconds are those that they took). Exits with 1 where a kernel has a fault.

Each architecture's kernels are compiled in a process of their own: where a compiler ends it, the
kernel has that as its fault, and another process compiles the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import triton

from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.compiled._compilers import missing_compiler
from torchyard_triton.compiled._figures import Figures
from torchyard_triton.compiled._inventory import compile_job, faults_of
from torchyard_triton.compiled._workers import Job, compiled_apart
from torchyard_triton.compiled.specimens import ATTENTION_PROGRAMS, specimens

__all__ = ["main"]


def main(words: list[str], compile: Callable[[Path | None, Job], Figures] = compile_job) -> int:
    """Compile and judge; return the exit status.

    Args:
        words: of the command line.
        compile: compiles one kernel, in another process.
    """
    options = _parser().parse_args(words)
    names = _known() if "all" in options.architectures else options.architectures
    kernels = set(filter(None, options.kernels.split(",")))
    programs = [program for program in options.programs.split(",") if program]
    rows: list[Figures] = []
    found: list[str] = []
    for name in names:
        wanted = {
            Job(name, one.kernel, one.program): one
            for one in specimens(name, programs=programs)
            if not kernels or one.kernel in kernels
        }
        for job, figures in compiled_apart(wanted, partial(compile, options.cache)):
            start = f"{name:8} {job.kernel:28} {job.program:10}"
            if isinstance(figures, str):
                print(f"{start} {figures.splitlines()[0]}", flush=True)
                found.append(f"{name} {job.kernel} {job.program}: {figures}")
                continue
            rows.append(figures)
            print(f"{start} {_shown(figures)}", flush=True)
            found += faults_of(figures, wanted[job], ARCHITECTURES[name])
    if not rows and not found:
        found.append(f"compiled nothing: no kernel is named {' or '.join(sorted(kernels))}")
    seconds = {name: sum(row.seconds for row in rows if row.architecture == name) for name in names}
    report = {
        "triton": triton.__version__,
        "kernels": [asdict(row) for row in rows],
        "faults": found,
        "seconds": seconds,
        "total": sum(seconds.values()),
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for name, taken in seconds.items():
        print(f"{name:8} {taken:6.1f} s")
    print(f"{'total':8} {sum(seconds.values()):6.1f} s")
    print("\n".join(found) or f"{len(rows)} kernels compiled, no fault")
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchyard_triton.compiled", allow_abbrev=False)
    parser.add_argument("architectures", nargs="+", choices=[*ARCHITECTURES, "all"])
    parser.add_argument("--programs", default=",".join(ATTENTION_PROGRAMS))
    parser.add_argument("--kernels", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path)
    return parser


def _known() -> list[str]:
    """Return the architectures for which this Triton has a compiler."""
    return [name for name, item in ARCHITECTURES.items() if not missing_compiler(item.backend)]


def _shown(figures: Figures) -> str:
    return (
        f"{figures.registers:4} registers {figures.scalar_registers or '-':>3} scalar "
        f"{figures.spills:4} spilled {figures.shared_memory:7} shared {figures.waves or '-':>3} "
        f"waves {figures.matrix or '-':16} {figures.seconds:5.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
