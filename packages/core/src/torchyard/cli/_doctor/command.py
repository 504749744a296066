"""``torchyard doctor``: is this installation sound, and which implementation computes what."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

import click

from torchyard._plugins.check import CheckStatus
from torchyard._progress import Steps
from torchyard._registry.registry import registry
from torchyard.cli._doctor.diagnosis import Section, device_names, diagnose
from torchyard.cli._doctor.measure import measure
from torchyard.cli._output import answer_only, console, json_option, write_json
from torchyard.cli._torch import load_torch

_STYLES: Final = {
    CheckStatus.PASS: "green",
    CheckStatus.WARN: "yellow",
    CheckStatus.FAIL: "bold red",
    CheckStatus.UNVERIFIED: "cyan",
}
# Importing torch, and one per section that diagnose makes.
_STEPS: Final = 7


@click.command()
@json_option
@click.option("--device", metavar="DEVICE", help="Check what is of one device alone, such as mps.")
@click.option(
    "--measure",
    "measured",
    is_flag=False,
    flag_value="cpu",
    metavar="[DEVICE]",
    help="Also measure each component's work against what the device (cpu) can do: half a minute.",
)
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, device: str | None, measured: str | None) -> None:
    """Check this installation; exit status 1 if a check fails.

    What is absent is UNVERIFIED: neither a pass nor a failure.
    """
    assert ctx.parent is not None
    assert isinstance(ctx.parent.command, click.Group)
    built_in = frozenset(ctx.parent.command.commands)
    with answer_only(as_json), Steps(_STEPS) as steps:
        steps.step("torch")
        torch = load_torch()
        if device is not None and device not in device_names(registry()):
            names = ", ".join(device_names(registry()))
            raise click.BadParameter(
                f"expected one of {names}, got {device!r}", ctx, None, "--device"
            )
        sections = diagnose(registry(), torch, built_in, steps.step, device)
        if measured is not None:
            sections = (*sections, measure(registry(), measured, steps))
    counts = Counter(check.status for section in sections for check in section.checks)
    if as_json:
        write_json(
            {
                "sections": {
                    section.title: [
                        {
                            "name": check.name,
                            "status": str(check.status),
                            "text": check.text,
                            "hint": check.hint,
                        }
                        for check in section.checks
                    ]
                    for section in sections
                },
                "counts": {str(status): counts[status] for status in CheckStatus},
            }
        )
    else:
        _write(sections, counts)
    sys.exit(1 if counts[CheckStatus.FAIL] else 0)


def _write(sections: tuple[Section, ...], counts: Counter[CheckStatus]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    for section in sections:
        if not section.checks:
            continue
        table = Table(title=section.title, title_justify="left", box=None, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for check in section.checks:
            text = Text(check.text)
            if check.hint:
                text.append(f"\nhint: {check.hint}", style="dim")
            status = Text(check.status.upper(), style=_STYLES[check.status])
            table.add_row(status, Text(check.name), text)
        out.print(table)
        out.print()
    out.print(", ".join(f"{counts[status]} {status}" for status in CheckStatus))
