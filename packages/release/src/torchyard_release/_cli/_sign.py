"""``torchyard release key``, ``approve``, ``authenticate`` and ``promote``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from torchyard_release._cli._command import Answer, operation, release_command, told
from torchyard_release._errors import ReleaseError
from torchyard_release._publish._promote import approve as approve_candidate
from torchyard_release._publish._promote import promote as promote_candidate
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._keys import make_key, read_private_key, read_public_key
from torchyard_release._signing._manifest import check_files, read_manifest
from torchyard_release._signing._trust import MANIFEST, judged

_FILE = click.Path(dir_okay=False, path_type=Path)
_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")


@click.group()
def key() -> None:
    """Make and show Ed25519 keys."""


@key.command()
@click.argument("file", type=_FILE)
@_JSON
def make(file: Path, as_json: bool) -> None:
    """Write a private key to FILE and its public one beside it, as .pub; print the latter."""
    with told(as_json):
        _show_key(make_key(file), as_json)


@key.command()
@click.argument("file", type=_FILE)
@_JSON
def show(file: Path, as_json: bool) -> None:
    """Print the public key of a private key's FILE, as train.toml lists it."""
    with told(as_json):
        _show_key(read_private_key(file).public.hex, as_json)


def _show_key(public: str, as_json: bool) -> None:
    click.echo(json.dumps({"public": public}) if as_json else public)


@click.command()
@click.option("--key", "path", type=_FILE, required=True, help="Your private key.")
@click.option("--candidate", type=click.IntRange(min=1), help="Its number; default the newest.")
@release_command
def approve(workspace: Workspace, path: Path, candidate: int | None) -> Answer:
    """Sign a candidate: its files, and the evidence about them as it is now."""
    number = candidate or workspace.release.latest()[0]
    signer = read_private_key(path)
    with operation(workspace) as journal:
        count = approve_candidate(workspace, number, signer, journal)
    needed = judged(workspace, number).train.signing.threshold
    text = f"rc{number}: {count} of {needed} signatures"
    text += "; next: `torchyard release promote`" if count >= needed else ""
    data = {"candidate": f"rc{number}", "signatures": count, "needed": needed}
    return Answer(data, lambda out: out.print(text))


@click.command()
@click.option("--candidate", type=click.IntRange(min=1), help="Its number; default the newest.")
@release_command
def promote(workspace: Workspace, candidate: int | None) -> Answer:
    """Make a candidate the release: its very bytes, and a tag at its commit."""
    number = candidate or workspace.release.latest()[0]
    with operation(workspace) as journal:
        tag = promote_candidate(workspace, number, journal)
    text = f"{tag} is rc{number}; push it by hand, then: `torchyard release publish`"
    return Answer({"candidate": f"rc{number}", "tag": tag}, lambda out: out.print(text))


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option("--key", "keys", type=_FILE, multiple=True, required=True, help="A public key, PEM.")
@click.option("--manifest", type=_FILE, show_default="FOLDER/manifest.json")
@click.option("--threshold", type=click.IntRange(min=1), show_default="every key named")
@click.option("--version", default="", help="Refuse another version's manifest.")
@click.option("--some", is_flag=True, help="FOLDER holds some of the files only.")
@_JSON
def authenticate(
    folder: Path,
    keys: tuple[Path, ...],
    manifest: Path | None,
    threshold: int | None,
    version: str,
    some: bool,
    as_json: bool,
) -> None:
    """Verify a release's FOLDER of files by the project's public keys alone.

    Needs no repository and no network. Exit status 1 where a byte differs, a file is missing or
    one too many, or too few of the keys signed.
    """
    path = manifest or folder / MANIFEST
    with told(as_json):
        public = [read_public_key(name) for name in keys]
        said, signed = read_manifest(
            path, public, threshold=threshold or len(public), version=version
        )
        wrong = check_files(said, folder, also=(path.name,) if path.parent == folder else ())
        if some:
            wrong = tuple(line for line in wrong if not line.startswith("missing: "))
            if not any((folder / name).is_file() for name in said.files):
                wrong = (f"none of the manifest's files is in {folder}", *wrong)
        if wrong:
            raise ReleaseError(
                "; ".join(wrong), "do not install these files; fetch the release again"
            )
    checked = sum((folder / name).is_file() for name in said.files)
    data = {
        "project": said.project,
        "version": said.version,
        "commit": said.commit,
        "files": checked,
        "signatures": len(signed),
    }
    text = (
        f"{said.project} {said.version}: {checked} of {len(said.files)} files are as "
        f"{len(signed)} key(s) signed them, built from {said.commit}"
    )
    click.echo(json.dumps(data, indent=2, sort_keys=True) if as_json else text)
