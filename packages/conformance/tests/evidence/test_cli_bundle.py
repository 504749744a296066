"""From ``torchyard certify --bundle`` to ``torchyard certify verify``, as a person types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from torchyard_conformance._cli import command
from torchyard_conformance._evidence._archive import read_archive, write_archive
from torchyard_conformance._evidence._bundle import bundle
from torchyard_conformance._reports import _installed

from .reports import certified_report, failed_report


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a private and a public key, as files."""
    folder = tmp_path_factory.mktemp("keys")
    key = Ed25519PrivateKey.generate()
    private, public = folder / "key.pem", folder / "pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, keys: tuple[Path, Path]) -> Path:
    """Return the signed bundle of a real run: of the kit itself, which is a plugin too."""
    path = tmp_path_factory.mktemp("made") / "kit.tgz"
    words = ["certify", "conformance", "--profile", "core", "--bundle", path, "--sign", keys[0]]
    result = subprocess.run(
        [sys.executable, "-m", "torchyard", *map(str, words)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(
        rf"^bundle: {re.escape(str(path))}, sha256 [0-9a-f]{{64}}$", result.stdout, re.M
    )
    return path


def _verify(path: Path, *options: object) -> Result:
    return CliRunner().invoke(command, ["verify", str(path), *map(str, options)])


def test_a_real_certificate_is_verified_with_its_authors_key(
    made: Path, keys: tuple[Path, Path]
) -> None:
    result = _verify(made, "--key", keys[1])
    assert result.exit_code == 0, result.output
    lines = dict(line.split(":", 1) for line in result.output.splitlines() if ":" in line)
    assert lines["plugin"].split()[:1] == ["conformance"]
    assert lines["integrity"].strip().startswith("proven: no byte changed since it was written")
    assert lines["author"].strip().startswith("proven: signed by the key that you named; key ")
    assert lines["installed"].strip().startswith("the same: all ")
    assert result.output.splitlines()[-1] == "certified"


def test_without_a_key_the_author_is_not_proven(made: Path, tmp_path: Path) -> None:
    assert "author:    not proven: signed by a key that you did not name" in _verify(made).output
    unsigned = tmp_path / "yard.tgz"
    unsigned.write_bytes(bundle(certified_report()))
    result = _verify(unsigned)
    assert result.exit_code == 0
    assert "author:    not proven: the bundle is not signed, and anybody can" in result.output
    assert "installed: not here" in result.output


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda files: {**files, "torchyard_conformance/_runs/_run.py": "0" * 64},
            "0000000000000000 here",
        ),
        (lambda files: dict(list(files.items())[1:]), "missing here"),
        (lambda files: {**files, "torchyard_conformance/more.py": "0" * 64}, "not in what was"),
        (lambda files: {}, "unknown: what is installed has no digests"),
    ],
    ids=["changed", "missing", "added", "unknown"],
)
def test_other_files_than_were_certified_are_named_and_refused_where_sameness_is_demanded(
    made: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, said: str
) -> None:
    result = _verify(made, "--installed")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "certified")
    here = _installed.digests("torchyard-conformance", "torchyard_conformance")
    monkeypatch.setattr(_installed, "digests", lambda *names: spoil(here))
    for words, code, last in (
        ([], 0, "certified, but this is not what is installed here"),
        (["--installed"], 1, "certified, and refused: not what is installed here"),
    ):
        result = _verify(made, *words)
        assert (result.exit_code, result.output.splitlines()[-1]) == (code, last)
        assert said in result.output
        document = json.loads(_verify(made, *words, "--json").output)
        assert document["installed_same"] is False


def test_a_certificate_of_what_is_not_installed_is_refused_where_sameness_is_demanded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "yard.tgz"
    path.write_bytes(bundle(certified_report()))
    result = _verify(path)
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        0,
        "certified, but this is not what is installed here",
    )
    assert _verify(path, "--installed").exit_code == 1


def _edited(made: Path, before: str, after: str) -> bytes:
    members = read_archive(made.read_bytes())
    text = members["report.json"].decode()
    assert before in text
    return write_archive({**members, "report.json": text.replace(before, after, 1).encode()})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("byte", "REFUSED: digest: the bundle was changed or is truncated"),
        ("result", "REFUSED: member 'report.json': expected sha256"),
        ("version", "REFUSED: member 'report.json': expected sha256"),
        ("end", "REFUSED: digest: the bundle was changed or is truncated"),
    ],
)
def test_the_same_certificate_is_refused_after_one_change(
    made: Path, tmp_path: Path, change: str, words: str
) -> None:
    data = made.read_bytes()
    middle = len(data) // 2
    changed = {
        "byte": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "result": _edited(made, '"status": "pass"', '"status": "fail"'),
        "version": _edited(made, '"torchyard": "0.1', '"torchyard": "0.2'),
        "end": data[:-1],
    }[change]
    path = tmp_path / "changed.tgz"
    path.write_bytes(changed)
    result = _verify(path)
    assert result.exit_code == 1
    assert result.output.startswith(words)
    refused = json.loads(_verify(path, "--json").output)
    assert set(refused) == {"refused"}


def test_a_sound_bundle_of_a_failure_is_not_certified(tmp_path: Path) -> None:
    path = tmp_path / "failed.tgz"
    path.write_bytes(bundle(failed_report()))
    result = _verify(path)
    assert result.exit_code == 1
    assert "integrity: proven" in result.output
    assert "not certified\n" in result.output
    assert "must pass, and ended as fail" in result.output


def test_a_program_reads_the_same(made: Path, keys: tuple[Path, Path]) -> None:
    data = json.loads(_verify(made, "--key", keys[1], "--json").output)
    assert data["author_proven"] is True
    assert data["report"]["certified"] is True
    assert data["report"]["digests"]["torchyard_conformance/_evidence/_verify.py"]
    assert json.loads(_verify(made, "--json").output)["author_proven"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify", "no-such.tgz"], "No such file"),
        (["plugin", "conformance", "--case", "x", "--bundle", "o.tgz"], "certifies nothing"),
        (["plugin", "conformance", "--sign", "key.pem"], "expected --bundle too"),
        (
            ["plugin", "conformance", "--bundle", "o.tgz", "--sign", "no-such.pem"],
            "no-such.pem: expected a private key as PEM",
        ),
    ],
)
def test_what_cannot_be_meant_ends_before_anything_runs(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
