"""``torchyard cache``: make, read, join and shrink bundles; explain a start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from torchyard import TorchyardError
from torchyard_cache import artifacts
from torchyard_cache._top import top
from torchyard_cache.artifacts import Artifact, Manifest
from torchyard_cache.artifacts._warming import warm_recipe

__all__ = ["command"]

_KEYS = click.option(
    "--key", "keys", multiple=True, help="File of a public key that is trusted; default: your own."
)
_SIGN = click.option("--sign", help="File of the private key that signs; default: your own.")
_UNSIGNED = click.option(
    "--trust-unsigned", is_flag=True, help="Take a bundle of no trusted key: its code will run."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def command() -> None:
    """Bundles of compiled artifacts: made by a recipe, verified, joined, shrunk and explained."""


@command.command()
@click.argument("recipe", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", "-o", required=True, help="Where the bundle goes: a file or a URL.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="At once.")
@_SIGN
@_JSON
def warm(recipe: Path, out: str, jobs: int, sign: str | None, as_json: bool) -> None:
    """Run the functions of RECIPE whose names begin with `warm`, and save what they compile.

    Each runs in a process of its own.
    """
    with _answered():
        manifest = warm_recipe(recipe, out, jobs=jobs, key=sign)
    _show(manifest, as_json)


@command.command()
@click.argument("bundle")
@_KEYS
@_JSON
def inspect(bundle: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Verify BUNDLE's digests, and list what is in it."""
    with _answered():
        found = artifacts.inspect(bundle, keys=keys or None)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
        return
    signer = f"signed by {found.signer}" if found.signer else "not signed by a trusted key"
    click.echo(f"{found.manifest.name}, serial {found.manifest.serial}: {signer}")
    click.echo(f"machine: {found.differences or 'as this one'}")
    _show(found.manifest, False)


@command.command()
@click.argument("bundles", nargs=-1, required=True)
@click.option("--out", "-o", required=True, help="Where the new one goes.")
@_KEYS
@_SIGN
@_UNSIGNED
@_JSON
def merge(
    bundles: tuple[str, ...],
    out: str,
    keys: tuple[str, ...],
    sign: str | None,
    trust_unsigned: bool,
    as_json: bool,
) -> None:
    """Join BUNDLES of several ranks; of artifacts that differ the one used last is kept."""
    with _answered():
        found = artifacts.merge(
            bundles, out, keys=keys or None, key=sign, trust_unsigned=trust_unsigned
        )
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
        return
    _show(found.manifest, False)
    for conflict in found.conflicts:
        click.echo(f"several contents: {conflict}")


@command.command()
@click.argument("bundle")
@click.option("--max-bytes", type=click.IntRange(0), help="Of all artifacts.")
@click.option("--max-days", type=click.FloatRange(0), help="Since the last use.")
@_KEYS
@_SIGN
@_JSON
def prune(
    bundle: str,
    max_bytes: int | None,
    max_days: float | None,
    keys: tuple[str, ...],
    sign: str | None,
    as_json: bool,
) -> None:
    """Drop from BUNDLE what was not used for long, and the least recently used above a size."""
    with _answered():
        found = artifacts.prune(
            bundle, max_bytes=max_bytes, max_days=max_days, keys=keys or None, key=sign
        )
    _show(found, as_json)


command.add_command(top)


@command.command()
@click.argument("recipe", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--bundle", help="Load this one first.")
@_KEYS
@_JSON
def explain(recipe: Path, bundle: str | None, keys: tuple[str, ...], as_json: bool) -> None:
    """Run RECIPE in this process, and say of each graph whether it was found, and why not."""
    from torchyard_cache.artifacts._warming import functions_of

    with _answered():
        if bundle is not None:
            artifacts.load(bundle, keys=keys or None)
        for function in functions_of(recipe).values():
            function()
        found = artifacts.explain()
    click.echo(found.to_json() if as_json else str(found))


@contextmanager
def _answered() -> Iterator[None]:
    """Turn an error that is meant for users into a line and a status of 1."""
    try:
        yield
    except (TorchyardError, ValueError, TypeError) as error:
        raise click.ClickException(str(error)) from error


def _show(manifest: Manifest, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(manifest), indent=1))
        return
    console = Console()
    console.print(_totals(manifest, "kind", lambda item: item.kind))
    if any(item.graph for item in manifest.artifacts):
        console.print(_totals(manifest, "graph", lambda item: item.graph or "not known"))


def _totals(manifest: Manifest, head: str, group_of: Callable[[Artifact], str]) -> Any:
    """Return a table of how many artifacts, of how many bytes, each group has."""
    table: Any = Table(head, "artifacts", "bytes")
    for group in sorted({group_of(item) for item in manifest.artifacts}):
        chosen = [item for item in manifest.artifacts if group_of(item) == group]
        table.add_row(group, str(len(chosen)), f"{sum(item.size for item in chosen):,}")
    table.add_row("all", str(len(manifest.artifacts)), f"{manifest.size:,}")
    return table
