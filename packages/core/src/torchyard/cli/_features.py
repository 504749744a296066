"""``torchyard features``: how far each feature has come on each device."""

from __future__ import annotations

import dataclasses
from typing import Final

import click

from torchyard._features.levels import Evidence, EvidenceLevel, levels
from torchyard._features.maturity import Feature, Stage, features_of
from torchyard._features.maturity import features as all_features
from torchyard.cli._output import console, json_option, write_json

_LEVEL_STYLES: Final = {
    EvidenceLevel.DECLARED: "dim",
    EvidenceLevel.COMPILES: "yellow",
    EvidenceLevel.EMULATED: "yellow",
    EvidenceLevel.ON_DEVICE: "cyan",
    EvidenceLevel.AT_LIMIT: "green",
}
_STYLES: Final = {
    Stage.STABLE: "green",
    Stage.BETA: "cyan",
    Stage.PROTOTYPE: "yellow",
    Stage.DEPRECATED: "red",
    Stage.REMOVED: "red",
}


@click.command()
@click.option("--component", help="Only features of this component, such as attention.")
@click.option("--device", help="What holds on this torch device type.")
@click.option(
    "--stage", type=click.Choice([str(stage) for stage in Stage]), help="Only this stage."
)
@click.option(
    "--levels", "by_level", is_flag=True, help="How well each is proven, and by which evidence."
)
@json_option
def features(
    component: str | None, device: str | None, stage: str | None, by_level: bool, as_json: bool
) -> None:
    """Show how far each feature has come, per device.

    The device * stands for every device without a row of its own.
    """
    if by_level:
        if stage is not None:
            raise click.UsageError("--levels: expected it without --stage")
        _levels(component, device, as_json)
        return
    rows = all_features() if device is None else features_of(device)
    rows = tuple(
        row
        for row in rows
        if component in {None, row.id.partition(".")[0]} and stage in {None, str(row.stage)}
    )
    if as_json:
        write_json([dataclasses.asdict(row) for row in rows])
    else:
        _write(rows)


def _levels(component: str | None, device: str | None, as_json: bool) -> None:
    named = () if device is None else (device,)
    rows = tuple(
        row
        for row in levels(named)
        if component in {None, row.feature.partition(".")[0]} and device in {None, row.device}
    )
    if as_json:
        write_json([dataclasses.asdict(row) for row in rows])
    else:
        _write_levels(rows)


def _write_levels(rows: tuple[Evidence, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("feature", "device", "level"):
        table.add_column(heading, no_wrap=True)
    table.add_column("evidence", overflow="fold")
    for row in rows:
        level = Text(row.level, style=_LEVEL_STYLES[row.level])
        parts = (row.figures, row.tool, row.date, row.bundle)
        table.add_row(row.feature, row.device, level, "; ".join(filter(None, parts)))
    console().print(table if rows else "no feature matches")


def _write(rows: tuple[Feature, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("feature", "device", "stage", "api", "since", "what"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        stage = Text(row.stage, style=_STYLES[row.stage])
        what = row.summary + (f" (goes in {row.remove_in})" if row.remove_in else "")
        table.add_row(row.id, row.device, stage, row.api, row.since, what)
    console().print(table if rows else "no feature matches")
