"""``torchyard decisions``: what wins on this machine, written down and compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from torchyard._errors import LockError
from torchyard._registry.dump import dump_decisions
from torchyard._registry.lock import DecisionChange, DecisionDump, diff_dumps, read_dump
from torchyard.cli._output import answer_only, console, json_option, write_json
from torchyard.cli._platform import platform_option, registry_of
from torchyard.cli._torch import load_torch


@click.group()
def decisions() -> None:
    """Write down which implementation wins, and compare."""


@decisions.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file; default stdout.")
@click.option("--device", multiple=True, help="Default: every device that can be used here.")
@platform_option
@json_option
def dump(output: Path | None, device: tuple[str, ...], platform: str | None, as_json: bool) -> None:
    """Write the decision for every representative request, as JSON.

    TORCHYARD_LOCK follows such a file.
    """
    with answer_only(True):
        load_torch()
        known, file = registry_of(platform)
        devices = set(device) or set(known.platform.devices)
        if not device and file is None:
            devices |= {name for _, name in known.devices() if known.probe_device(name).available}
        data = dump_decisions(known, devices).to_json()
    if output is None:
        write_json(data)
        return
    try:
        output.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise LockError(f"{output}: cannot be written: {error.strerror}") from error
    count = sum(len(buckets) for buckets in data["decisions"].values())
    if as_json:
        write_json({"file": str(output), "decisions": count})
    else:
        click.echo(f"{output}: {count} decisions")


@decisions.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@json_option
def diff(old: Path, new: Path, as_json: bool) -> None:
    """Compare two files of decisions; exit status 1 if a decision differs."""
    before, after = read_dump(old), read_dump(new)
    changes = diff_dumps(before, after)
    made_with = _differing(before, after)
    if as_json:
        write_json(
            {
                "changes": [
                    {
                        "contract": change.contract,
                        "bucket": change.bucket,
                        "kind": change.kind,
                        "old": change.old,
                        "new": change.new,
                    }
                    for change in changes
                ],
                "made_with": made_with,
            }
        )
    else:
        _write(changes, made_with)
    sys.exit(1 if changes else 0)


def _differing(before: DecisionDump, after: DecisionDump) -> dict[str, list[str | None]]:
    names = sorted(before.made_with.keys() | after.made_with.keys())
    pairs = {name: [before.made_with.get(name), after.made_with.get(name)] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _write(changes: tuple[DecisionChange, ...], made_with: dict[str, list[str | None]]) -> None:
    from rich.table import Table

    out = console()
    table = Table(box=None, pad_edge=False)
    for heading in ("contract", "bucket", "change", "old", "new"):
        table.add_column(heading, overflow="fold")
    for change in changes:
        table.add_row(
            change.contract, change.bucket, change.kind, change.old or "-", change.new or "-"
        )
    out.print(table if changes else "no decision differs")
    for name, (old, new) in made_with.items():
        out.print(f"made with {name}: {old or 'none'} -> {new or 'none'}", soft_wrap=True)
