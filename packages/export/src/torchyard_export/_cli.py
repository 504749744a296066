"""``torchyard export``: export what a function makes, and verify a file."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from torch import nn

from torchyard_export._api import export
from torchyard_export._artifact.artifact import load
from torchyard_export._errors import ArtifactError, ExportError
from torchyard_export._quantization.api import quantize
from torchyard_export._quantization.backend import (
    ACTIVATIONS,
    DEVICES,
    Activations,
    QuantizationTarget,
)
from torchyard_export._report.html import html, refusal_html
from torchyard_export._report.report import NO_DIMENSION, Report
from torchyard_export._runner import write_runner

# Arguments of quantize alone in what a factory returns, and those that export takes as well.
_OWN: Final = frozenset({"calibration", "evaluation", "keep"})
_SHARED: Final = frozenset(
    {"model", "args", "kwargs", "dynamic", "values", "sample", "accept", "seed"}
)


class _Group(click.Group):
    """A word with a colon is no command but a factory to export."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and ":" in args[0] and args[0] not in self.commands:
            return super().resolve_command(ctx, ["make", *args])
        if args and args[0] not in self.commands:
            known = ", ".join(sorted(self.commands))
            ctx.fail(f"{args[0]!r}: expected MODULE:FACTORY, such as {args[0]}:make, or {known}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, subcommand_metavar="MODULE:FACTORY | COMMAND ...")
def command() -> None:
    """Export a model as programs that are proven to compute what it does.

    MODULE:FACTORY names a function of no arguments that returns the arguments of
    torchyard_export.export as a dict, `model` and `args` among them; or (model, args). With
    --quantize the dict has `calibration`, calls such as [(x,)], and may have `evaluation`, `keep`.
    """


@command.command()
@click.argument("factory")
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write it here.")
@click.option("--dynamic", "-d", multiple=True, help="x.0=batch, or x.1=time:1..1000; repeatable.")
@click.option("--target", "-t", multiple=True, help="A form of the program; repeatable.")
@click.option(
    "--quantize",
    "quantized",
    type=click.Choice(list(DEVICES)),
    help="Make it int8 first; the factory's dict has `calibration`.",
)
@click.option(
    "--activations", type=click.Choice(ACTIVATIONS), help="Scales of calibration, or of each call."
)
@click.option("--accept", multiple=True, help="A kind of finding that is wanted; repeatable.")
@click.option("--key", type=click.Path(exists=True, path_type=Path), help="Private key, as PEM.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Write the report here.")
@click.option("--json", "as_json", is_flag=True, help="Print the report, or findings, as JSON.")
def make(
    factory: str,
    out: Path | None,
    dynamic: tuple[str, ...],
    target: tuple[str, ...],
    quantized: QuantizationTarget | None,
    activations: Activations | None,
    accept: tuple[str, ...],
    key: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Export what MODULE:FACTORY makes; ends in 1 where it is refused."""
    for place in (out, page):
        if place is not None and not place.parent.is_dir():
            raise click.ClickException(f"{place}: there is no folder {place.parent}")
    given = _given(factory)
    for text in dynamic:
        _add_axis(given, text)
    if target:
        given["targets"] = list(target)
    if accept:
        given["accept"] = list(accept)
    if activations is not None and quantized is None:
        raise click.UsageError("--activations: expected --quantize beside it")
    try:
        if quantized is not None:
            _quantize(given, quantized, activations or "static")
        artifact = export(**given)
    except ExportError as error:
        if page is not None:
            page.write_text(refusal_html(_class_of(given), error.findings), encoding="utf-8")
        if as_json:
            findings = [
                {**finding.to_json(), "remedy": finding.remedy} for finding in error.findings
            ]
            click.echo(json.dumps({"passed": False, "findings": findings}, indent=1))
        else:
            click.echo(str(error), err=True)
        sys.exit(1)
    except (ImportError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    written = "nothing was written: --out FILE keeps the artifact"
    if out is not None:
        try:
            written = f"written: {artifact.save(out, key=key)}, {out.stat().st_size} bytes"
        except (ArtifactError, OSError) as error:
            raise click.ClickException(str(error)) from error
    _show(artifact.report, page, as_json)
    if not as_json:
        click.echo(written)


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", type=click.Path(exists=True, path_type=Path), help="Public key, as PEM.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Write the report here.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def verify(file: Path, key: Path | None, page: Path | None, as_json: bool) -> None:
    """Prove an artifact again, on this machine; ends in 1 where it does not hold."""
    try:
        artifact = load(file, key=key)
        report = artifact.verify()
    except ArtifactError as error:
        if as_json:
            click.echo(json.dumps({"passed": False, "refused": str(error)}, indent=1))
        else:
            click.echo(f"refused: {error}", err=True)
        sys.exit(1)
    if not as_json:
        click.echo(
            f"signed by {artifact.author}"
            if artifact.author
            else "author not proven: no --key was given"
        )
    _show(report, page, as_json)
    sys.exit(0 if report.passed else 1)


@command.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", type=click.Path(exists=True, path_type=Path), help="Public key, as PEM.")
@click.option("--target", "-t", help="Which form, where the file has more than one of code.")
def runner(folder: Path, file: Path, key: Path | None, target: str | None) -> None:
    """Write a CMake project in C++ that runs FILE's golden calls; FOLDER is new or empty."""
    try:
        written = write_runner(load(file, key=key), folder, target=target)
    except (ArtifactError, OSError) as error:
        click.echo(f"refused: {error}", err=True)
        sys.exit(1)
    for path in written:
        click.echo(str(path))


def _given(factory: str) -> dict[str, Any]:
    module, _, name = factory.partition(":")
    # As `python -m` does: a factory beside the user is found.
    sys.path.insert(0, os.getcwd())
    try:
        function: Callable[[], Any] = getattr(importlib.import_module(module), name)
    except (AttributeError, ImportError, ValueError) as error:
        hint = ""
        if module.endswith(".py"):
            hint = f"; a module is named as in an import: {module.removesuffix('.py')}:{name}"
        raise click.ClickException(f"{factory}: expected MODULE:FACTORY: {error}{hint}") from error
    if isinstance(function, nn.Module) or not callable(function):
        raise click.ClickException(
            f"{factory}: expected a function that returns (model, args), got a "
            f"{type(function).__name__}"
        )
    try:
        made = function()
    except Exception as error:
        traceback.print_exception(type(error), error, _behind(error.__traceback__))
        raise click.ClickException(f"{factory} raised {type(error).__name__}: {error}") from error
    if isinstance(made, dict):
        return dict(made)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        return {"model": made[0], "args": made[1]}
    raise click.ClickException(
        f"{factory}: expected a dict of export's arguments or (model, args), got "
        f"{type(made).__name__}"
    )


def _quantize(given: dict[str, Any], target: QuantizationTarget, activations: Activations) -> None:
    """Put a quantized model in the place of the factory's."""
    own = {name: given.pop(name) for name in _OWN & given.keys()}
    shared = {name: item for name, item in given.items() if name in _SHARED}
    given["model"] = quantize(**shared, **own, target=target, activations=activations).model


def _behind(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of the command itself."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _class_of(given: dict[str, Any]) -> str:
    return type(given.get("model")).__name__


def _add_axis(given: dict[str, Any], text: str) -> None:
    place, equals, dimension = text.partition("=")
    name, dot, axis = place.rpartition(".")
    if not (equals and dot and axis.lstrip("-").isdigit()):
        raise click.ClickException(f"--dynamic: expected x.1=time:1..1000, got {text!r}")
    axes = given.setdefault("dynamic", {}).setdefault(name, {})
    axes[int(axis)] = dimension


def _show(report: Report, page: Path | None, as_json: bool) -> None:
    if page is not None:
        page.write_text(html(report), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
        return
    console = Console()
    console.print(
        f"[bold]{report.model}[/]: " + ("[green]passed[/]" if report.passed else "[red]REFUSED[/]")
    )
    for dimension in report.dimensions or (NO_DIMENSION,):
        console.print(f"  {dimension}", highlight=False)
    table = Table("stage", "cases", "wrong", "from float64", "of the bound", "seconds")
    for stage in report.stages:
        table.add_row(
            *(stage.name, str(stage.cases), str(stage.wrong)),
            *(f"{stage.error:.2e}", f"{stage.ratio:.2f}", f"{stage.seconds:.2f}"),
            style="" if stage.passed else "red",
        )
    console.print(table)
    for stage in report.stages:
        for finding in stage.findings:
            console.print(finding.render(), markup=False)
    for finding in report.accepted:
        console.print(f"accepted: {finding.render()}", markup=False)
    for note in report.notes:
        console.print(f"note: {note}", markup=False)
    if report.quantization is not None:
        console.print(report.quantization.renderable())
