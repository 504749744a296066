"""``torchyard certify torch-tests``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from torchyard_conformance._cli._show import console
from torchyard_conformance._torch_tests._running import (
    Found,
    TorchTestsError,
    read_reasons,
    run_torch_tests,
)


@click.command("torch-tests")
@click.argument("device")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--reasons",
    "path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file whose table [reasons] says of tests why they fail.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def torch_tests(device: str, folder: Path, path: Path | None, as_json: bool) -> None:
    """Run PyTorch's tests of a device from outside on DEVICE, out of a checkout of PyTorch.

    FOLDER is test/cpp_extensions/open_registration_extension/torch_openreg/tests of the release of
    PyTorch that is installed. The tests name PyTorch's example device, which is replaced; files
    that use the example's own package are not run, and listed.
    Exit status 0: tests passed, and what failed has a reason; 1: something failed without one,
    nothing passed, or a test passed that has a reason to fail.
    """
    try:
        reasons = read_reasons(path) if path is not None else {}
        found = _watched(device, folder)
    except TorchTestsError as error:
        raise click.UsageError(str(error)) from error
    counts = Counter(_outcome(row, reasons) for row in found)
    failed = {row.test for row in found if row.outcome in {"failed", "not run"}}
    stale = sorted(set(reasons) - failed)
    if as_json:
        rows: list[Any] = [
            {
                "test": row.test,
                "outcome": _outcome(row, reasons),
                "text": row.text,
                "reason": reasons.get(row.test, ""),
            }
            for row in found
        ]
        document = {"device": device, "counts": dict(counts), "tests": rows, "stale": stale}
        click.echo(json.dumps(document, indent=2))
    else:
        _show(found, reasons, counts, stale)
    sound = counts["passed"] and not counts["failed"] and not counts["not run"] and not stale
    sys.exit(0 if sound else 1)


def _outcome(row: Found, reasons: Mapping[str, str]) -> str:
    explained = row.outcome in {"failed", "not run"} and row.test in reasons
    return f"{row.outcome}, with a reason" if explained else row.outcome


def _watched(device: str, folder: Path) -> list[Found]:
    from rich.console import Console

    with Console(stderr=True).status("PyTorch's tests") as status:
        return run_torch_tests(device, folder, progress=status.update)


def _show(
    found: Sequence[Found],
    reasons: Mapping[str, str],
    counts: Mapping[str, int],
    stale: Sequence[str],
) -> None:
    out = console()
    files = Counter((row.test.partition("::")[0], _outcome(row, reasons)) for row in found)
    for name in dict.fromkeys(file for file, _ in files):
        texts = [f"{count} {outcome}" for (file, outcome), count in files.items() if file == name]
        out.print(f"{name:28} {', '.join(sorted(texts))}", soft_wrap=True)
    for row in found:
        if row.outcome in {"failed", "not run"}:
            out.print(f"\n{_outcome(row, reasons)}: {row.test}", soft_wrap=True)
            out.print(f"  {reasons.get(row.test) or row.text}", soft_wrap=True)
    for test in stale:
        out.print(f"\nit has a reason to fail, and did not: {test}", soft_wrap=True)
    out.print("\n" + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
