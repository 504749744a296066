"""``torchyard features``: how far each feature has come on each device."""

from __future__ import annotations

import dataclasses
from typing import Final

import click

from torchyard._features.maturity import Feature, Stage, features_of
from torchyard._features.maturity import features as all_features
from torchyard.cli._output import console, json_option, write_json

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
@json_option
def features(component: str | None, device: str | None, stage: str | None, as_json: bool) -> None:
    """Show how far each feature has come, per device.

    The device * stands for every device without a row of its own.
    """
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
