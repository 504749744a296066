"""``torchyard certify PLUGIN``."""

from __future__ import annotations

import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import click

from torchyard.evidence import KeyFileError
from torchyard.evidence.keys import read_private_key
from torchyard_conformance._cli._progress import Watch
from torchyard_conformance._cli._show import show_bundle, show_report, show_verdict
from torchyard_conformance._evidence._bundle import write_bundle
from torchyard_conformance._profile import ProfileError, default_profile, read_profile
from torchyard_conformance._reports._expectation import (
    FILE,
    Expectation,
    ExpectationError,
    read_expectations,
)
from torchyard_conformance._reports._result import Report
from torchyard_conformance._runs._run import Run
from torchyard_conformance._runs._share import RunError
from torchyard_conformance._status import Status
from torchyard_conformance._subjects._subject import Subject


@click.command(hidden=True)
@click.argument("name", metavar="PLUGIN")
@click.option(
    "--profile", "profiles", multiple=True, metavar="P", help="Try the laws of this profile too."
)
@click.option(
    "--implementation", "only", multiple=True, metavar="NAME", help="Judge only this one."
)
@click.option("--device", default="", metavar="D", help="Judge on this device type.")
@click.option(
    "--expectations",
    "file",
    type=click.Path(path_type=Path),
    help=f"Failures that are known; by default {FILE} in the plugin's package or here.",
)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="OUT.tgz",
    help="Write the certificate: `torchyard certify verify` checks it.",
)
@click.option(
    "--sign",
    "key",
    type=click.Path(path_type=Path),
    metavar="KEY",
    help="Sign the bundle with this private Ed25519 key (PEM).",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Try cases in N processes at once; those that measure time or memory come last, alone.",
)
@click.option("--case", default="", metavar="LAW[CASE]", help="Try this alone; certifies nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def certify(
    name: str,
    profiles: tuple[str, ...],
    only: tuple[str, ...],
    device: str,
    file: Path | None,
    bundle: Path | None,
    key: Path | None,
    jobs: int,
    case: str,
    as_json: bool,
) -> None:
    """Try the laws on an installed plugin, and say whether it is certified."""
    if case and bundle is not None:
        raise click.UsageError(
            "--bundle: expected a whole run, got --case, which certifies nothing"
        )
    if key is not None and bundle is None:
        raise click.UsageError("--sign: expected --bundle too; a bundle is what is signed")
    try:
        if key is not None:
            # Now, and not after minutes.
            read_private_key(key)
        subject = Subject(name, device=device, only=only)
        if profiles:
            profile = read_profile("+".join(profiles))
        else:
            profile = default_profile(subject.contracts)
        expectations = find_expectations(subject, file)
        run = Run(subject, profile, device, case, jobs)
        start = time.perf_counter()
        with Watch() as watch:
            report = run.certify(expectations, watch)
    except LookupError as error:
        raise click.UsageError(str(error.args[0])) from error
    except (ProfileError, ExpectationError, KeyFileError) as error:
        raise click.UsageError(str(error)) from error
    except RunError as error:
        raise click.ClickException(str(error)) from error
    if case and not report.results:
        raise click.UsageError(
            f"--case: expected a law of profile {profile.name}, or one of its cases for this "
            f"plugin, got {case!r}; `torchyard certify laws` lists the laws"
        )
    digest = "" if bundle is None else _write(report, bundle, key)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2, sort_keys=True))
    else:
        show_report(report, time.perf_counter() - start)
        if not case:
            show_verdict(report)
        if bundle is not None:
            show_bundle(bundle, digest)
    sys.exit(0 if _good(report, case) else 1)


def _write(report: Report, path: Path, key: Path | None) -> str:
    try:
        return write_bundle(report, path, key=key)
    except OSError as error:
        raise click.ClickException(f"--bundle: cannot be written: {error}") from error


def _good(report: Report, case: str) -> bool:
    """Return whether the run is a success; one case alone only has to pass."""
    if not case:
        return report.certified
    return all(result.status is Status.PASS for result in report.results)


def find_expectations(subject: Subject, file: Path | None) -> tuple[Expectation, ...]:
    """Read the file that is named, or else the plugin's own, or else the one in this folder."""
    if file is not None:
        return read_expectations(file)
    spec = find_spec(subject.package) if subject.package.isidentifier() else None
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    for path in [*(Path(folder) / FILE for folder in folders), Path(FILE)]:
        if path.is_file():
            return read_expectations(path)
    return ()
