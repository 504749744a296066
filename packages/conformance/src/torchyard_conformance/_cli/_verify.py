"""``torchyard certify verify BUNDLE``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from torchyard.evidence import KeyFileError
from torchyard_conformance._cli._show import console
from torchyard_conformance._evidence._archive import BundleError
from torchyard_conformance._evidence._levels import level_of
from torchyard_conformance._evidence._verify import Verified, read_bundle
from torchyard_conformance._reports._execution import simulated_devices
from torchyard_conformance._reports._installed import Comparison, compare_installed
from torchyard_conformance._status import Status

# Files that differ, by name.
_SHOWN = 10


@click.command()
@click.argument("path", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option(
    "--key",
    metavar="PUB",
    type=click.Path(path_type=Path),
    help="The author's public Ed25519 key (PEM): refuse what it did not sign.",
)
@click.option(
    "--installed",
    "same",
    is_flag=True,
    help="Refuse it where what is installed here is not, file by file, what was certified.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def verify(path: Path, key: Path | None, same: bool, as_json: bool) -> None:
    """Check a bundle, and say what it certifies.

    Refused is what differs by one byte from what the kit wrote, or claims what it does not hold.
    A bundle says nothing about other files than those that were certified: whether they are what
    is installed here is said, and demanded by --installed.
    Exit status 0: sound, and certified; 1: refused, not certified, or not what is installed.
    """
    try:
        verified = read_bundle(path, key=key)
    except (OSError, KeyFileError) as error:
        raise click.UsageError(str(error)) from error
    except BundleError as error:
        if as_json:
            click.echo(json.dumps({"refused": str(error)}, indent=2))
        else:
            console().print(f"REFUSED: {error}", style="bold red", soft_wrap=True)
        sys.exit(1)
    installed = compare_installed(verified.report)
    if as_json:
        click.echo(json.dumps(_as_data(verified, installed), indent=2, sort_keys=True))
    else:
        _write(verified, installed, same)
    sys.exit(0 if verified.report.certified and (installed.same or not same) else 1)


def _as_data(verified: Verified, installed: Comparison) -> dict[str, Any]:
    return {
        "sha256": verified.digest,
        "author_proven": verified.author_proven,
        "author": str(verified.authorship),
        "key": verified.key,
        "level": str(level_of(verified.report, simulated_devices())),
        "installed": installed.text,
        "installed_same": installed.same,
        "installed_differing": list(installed.differing),
        "report": verified.report.to_json(),
    }


def _write(verified: Verified, installed: Comparison, same: bool) -> None:
    report = verified.report
    out = console()
    counts = Counter(report.laws().values())
    laws = ", ".join(f"{counts[status]} {status}" for status in Status)
    on = f" on {', '.join(report.devices)}" if report.devices else ""
    rows = {
        "plugin": f"{report.plugin} {report.plugin_version} ({report.distribution}){on}",
        "judged by": f"profile {report.profile}, spec {report.spec}, on {report.date}",
        "laws": laws,
        "level": str(level_of(report, simulated_devices())),
        "integrity": f"proven: no byte changed since it was written; sha256 {verified.digest}",
        "author": str(verified.authorship) + (f"; key {verified.key}" if verified.key else ""),
        "installed": installed.text,
    }
    for name, text in rows.items():
        out.print(f"{name + ':':<11}{text}", soft_wrap=True)
    for name in installed.differing[:_SHOWN]:
        out.print(f"  {name}", soft_wrap=True)
    if report.certified and (installed.same or not same):
        rest = "" if installed.same else ", but this is not what is installed here"
        out.print(f"certified{rest}", style="bold green" if installed.same else "bold yellow")
        return
    if report.certified:
        out.print("certified, and refused: not what is installed here", style="bold red")
        return
    out.print("not certified", style="bold red")
    for reason in report.reasons:
        out.print(f"  {reason}", soft_wrap=True)
