"""``torchyard certify verify BUNDLE``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from torchyard import registry
from torchyard_conformance._archive import BundleError
from torchyard_conformance._cli._show import console
from torchyard_conformance._digests import digests
from torchyard_conformance._result import Report
from torchyard_conformance._signature import KeyFileError
from torchyard_conformance._status import Status
from torchyard_conformance._verify import Verified, read_bundle


@click.command()
@click.argument("path", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option(
    "--key",
    metavar="PUB",
    type=click.Path(path_type=Path),
    help="The author's public Ed25519 key (PEM): refuse what it did not sign.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def verify(path: Path, key: Path | None, as_json: bool) -> None:
    """Check a bundle, and say what it certifies.

    Refused is what differs by one byte from what the kit wrote, or claims what it does not hold.
    Exit status 0: sound, and certified; 1: refused or not certified.
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
    if as_json:
        click.echo(json.dumps(_as_data(verified), indent=2, sort_keys=True))
    else:
        _write(verified)
    sys.exit(0 if verified.report.certified else 1)


def _as_data(verified: Verified) -> dict[str, Any]:
    return {
        "sha256": verified.digest,
        "author_proven": verified.author_proven,
        "author": str(verified.authorship),
        "key": verified.key,
        "installed": _installed(verified.report),
        "report": verified.report.to_json(),
    }


def _write(verified: Verified) -> None:
    report = verified.report
    out = console()
    counts = Counter(report.laws().values())
    laws = ", ".join(f"{counts[status]} {status}" for status in Status)
    on = f" on {', '.join(report.devices)}" if report.devices else ""
    rows = {
        "plugin": f"{report.plugin} {report.plugin_version} ({report.distribution}){on}",
        "judged by": f"profile {report.profile}, spec {report.spec}, on {report.date}",
        "laws": laws,
        "integrity": f"proven: no byte changed since it was written; sha256 {verified.digest}",
        "author": str(verified.authorship) + (f"; key {verified.key}" if verified.key else ""),
        "installed": _installed(report),
    }
    for name, text in rows.items():
        out.print(f"{name + ':':<11}{text}", soft_wrap=True)
    if report.certified:
        out.print("certified", style="bold green")
        return
    out.print("not certified", style="bold red")
    for reason in report.reasons:
        out.print(f"  {reason}", soft_wrap=True)


def _installed(report: Report) -> str:
    """Return whether what is installed here is what was certified."""
    try:
        source = registry().plugin(report.plugin).source
    except LookupError:
        return "not here"
    here = digests(source.distribution, source.value.partition(":")[0])
    there = report.digests
    if not here or not there:
        return "unknown: one of the two has no digests"
    odd = sum(here.get(name) != there.get(name) for name in here.keys() | there.keys())
    if not odd:
        return f"the same: all {len(here)} files"
    return f"another: {odd} of {len(here.keys() | there.keys())} files differ"
