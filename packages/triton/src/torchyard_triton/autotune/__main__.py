"""``python -m torchyard_triton.autotune --device cuda``: measure tiles here, keep the faster ones.

What it keeps is used from then on by this user on this architecture. ``--table`` prints rows for
``tuning.json`` instead, with date and reason, for a change of the package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from torchyard_triton._measured_tiles import store
from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.autotune._search import Finding, measure
from torchyard_triton.autotune._trials import TRIALS
from torchyard_triton.tuning import table_tiles

__all__ = ["command", "found_by"]


def _architecture() -> str:
    """Return the architecture of Triton's current device, as this package names it."""
    from triton.runtime import driver

    architecture = driver.active.get_current_target().arch
    # A number is NVIDIA's compute capability; AMD's names may have features behind a colon.
    if isinstance(architecture, int):
        return f"sm_{architecture}"
    return str(architecture).partition(":")[0]


@click.command()
@click.option("--device", default="cuda", show_default=True, help="torch's device type.")
@click.option(
    "--head-dim", "head_dims", type=int, multiple=True, default=(64, 128), show_default=True
)
@click.option("--kernel", "kernels", type=click.Choice(list(TRIALS)), multiple=True)
@click.option("--length", default=4096, show_default=True, help="Of the sequences.")
@click.option("--dry-run", is_flag=True, help="Show what was found and keep nothing.")
@click.option("--table", "as_table", is_flag=True, help="Print rows of tuning.json, keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(
    device: str,
    head_dims: tuple[int, ...],
    kernels: tuple[str, ...],
    length: int,
    dry_run: bool,
    as_table: bool,
    as_json: bool,
) -> None:
    """Measure the tiles of attention's kernels on this device and keep what is clearly faster."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type != device:
        here = "no accelerator" if accelerator is None else str(accelerator)
        raise click.UsageError(f"--device: expected a device of this machine, got {device}: {here}")
    architecture = _architecture()
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise click.UsageError(f"--device: expected one of {known}, got {architecture}")
    found = found_by(
        architecture, torch.device(device), kernels or tuple(TRIALS), head_dims, length, as_json
    )
    keep = not (dry_run or as_table)
    file = store(architecture, [one for one in found if one.best != one.default]) if keep else None
    if as_table:
        click.echo(json.dumps(_rows(architecture, found), indent=1))
    elif as_json:
        rows = [asdict(one) for one in found]
        report = {"architecture": architecture, "file": str(file or ""), "found": rows}
        click.echo(json.dumps(report))
    else:
        Console().print(_shown(found))
        click.echo("kept nothing" if file is None else f"kept in {file}")


def found_by(
    architecture: str,
    device: torch.device,
    kernels: tuple[str, ...],
    head_dims: tuple[int, ...],
    length: int,
    silent: bool,
    timer: Callable[[Callable[[], object]], float] | None = None,
) -> list[Finding]:
    """Return what a search finds, with a progress bar on standard error."""
    found: list[Finding] = []
    with Progress(console=Console(stderr=True), disable=silent) as progress:
        task = progress.add_task("measuring", total=len(kernels) * len(head_dims))
        for finding in measure(
            kernels,
            lambda kernel, size: table_tiles(architecture, kernel, size),
            device=device,
            head_dims=head_dims,
            length=length,
            timer=timer,
        ):
            found.append(finding)
            progress.update(task, advance=1, description=f"{finding.kernel}, {finding.head_dim}")
    return found


def _rows(architecture: str, found: list[Finding]) -> dict[str, Any]:
    """Return rows of ``tuning.json``, of heads of 128."""
    rows = {one.kernel: asdict(one.best) for one in found if one.head_dim == 128}
    gains = ", ".join(f"{one.kernel} {one.gain:.2f}" for one in found if one.head_dim == 128)
    return {
        "frozen": date.today().isoformat(),
        "reason": f"Measured on {torch.cuda.get_device_name()}; faster by: {gains or 'nothing'}.",
        "architectures": {architecture: rows},
    }


def _shown(found: list[Finding]) -> Table:
    table = Table("kernel", "head", "table", "best", "faster by", "refused")
    for one in found:
        sizes = [
            " x ".join(map(str, (tiles.rows, tiles.keys, tiles.warps, tiles.stages)))
            for tiles in (one.default, one.best)
        ]
        gain, refused = f"{one.gain - 1.0:.1%}", str(len(one.refused))
        table.add_row(one.kernel, str(one.head_dim), *sizes, gain, refused)
    return table


if __name__ == "__main__":
    sys.exit(command())
