"""``torchyard certify laws``."""

from __future__ import annotations

import json

import click

from torchyard_conformance._cli._show import console
from torchyard_conformance._law import all_laws
from torchyard_conformance._profile import ProfileError, profile_names, read_profile


@click.command()
@click.option("--profile", default="", metavar="P", help="Only those of this profile.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def laws(profile: str, as_json: bool) -> None:
    """List the laws, and the profiles in which each must pass."""
    try:
        chosen = read_profile(profile) if profile else None
    except ProfileError as error:
        raise click.UsageError(str(error)) from error
    profiles = [read_profile(name) for name in profile_names()]
    rows = [
        {
            "law": item.id,
            "summary": item.summary,
            "profiles": [found.name for found in profiles if found.applies(item)],
            "mustpass": [found.name for found in profiles if found.requires(item.id)],
            "documentation": item.anchor,
        }
        for item in all_laws()
        if chosen is None or chosen.applies(item)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("law", no_wrap=True)
    table.add_column("must pass in")
    table.add_column("what")
    for row in rows:
        table.add_row(str(row["law"]), ", ".join(row["mustpass"]), str(row["summary"]))
    console().print(table)
