"""A manifest: k of n people, every byte, this project and this version, or nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packages.release.tests.wheels import write_wheel
from torchyard.evidence.keys import PublicKey
from torchyard_release._cli import command
from torchyard_release._errors import ReleaseError
from torchyard_release._signing._keys import (
    make_key,
    parse_public_key,
    read_private_key,
    read_public_key,
)
from torchyard_release._signing._manifest import Manifest, check_files, read_manifest, sign_manifest


@pytest.fixture
def keys(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{name}.pem" for name in ("alice", "bob", "mallory")]
    for path in paths:
        make_key(path)
    return paths


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    files = dict(write_wheel(tmp_path / "dist", name, "1.0.0") for name in ("base", "top"))
    return Manifest("yard", "1.0.0", "rc2", "c" * 40, files, {"inspect.json": "e" * 64})


def _public(*paths: Path) -> list[PublicKey]:
    return [read_public_key(path.with_suffix(".pub")) for path in paths]


def _signed(manifest: Manifest, path: Path, *keys: Path) -> Path:
    for key in keys:
        sign_manifest(path, manifest, read_private_key(key))
    return path


def test_two_of_three_signatures_are_enough_and_name_who_signed(
    tmp_path: Path, keys: list[Path], manifest: Manifest
) -> None:
    path = _signed(manifest, tmp_path / "manifest.json", *keys[:2])
    found, signed = read_manifest(
        path, _public(*keys), threshold=2, project="yard", version="1.0.0"
    )
    assert found == manifest
    assert len(signed) == 2
    assert not check_files(found, tmp_path / "dist")


def test_one_signature_twice_counts_once(
    tmp_path: Path, keys: list[Path], manifest: Manifest
) -> None:
    path = _signed(manifest, tmp_path / "manifest.json", keys[0], keys[0])
    with pytest.raises(ReleaseError, match=r"expected 2 valid signature\(s\).*found 1"):
        read_manifest(path, _public(*keys), threshold=2)


def test_a_stranger_counts_for_nothing(
    tmp_path: Path, keys: list[Path], manifest: Manifest
) -> None:
    path = _signed(manifest, tmp_path / "manifest.json", keys[0], keys[2])
    with pytest.raises(ReleaseError, match="too few people approved") as caught:
        read_manifest(path, _public(*keys[:2]), threshold=2)
    assert "do not use these files" in caught.value.remedy


@pytest.mark.parametrize(("name", "value"), [("project", "other"), ("version", "1.0.1")])
def test_a_manifest_of_something_else_is_refused_when_it_is_shown_again(
    tmp_path: Path, keys: list[Path], manifest: Manifest, name: str, value: str
) -> None:
    path = _signed(manifest, tmp_path / "manifest.json", keys[0])
    with pytest.raises(ReleaseError, match=f"{name}: expected"):
        read_manifest(path, _public(keys[0]), threshold=1, **{name: value})


def test_another_candidates_signatures_are_none_of_this_one(
    tmp_path: Path, keys: list[Path], manifest: Manifest
) -> None:
    path = _signed(manifest, tmp_path / "manifest.json", keys[0])
    with pytest.raises(ReleaseError, match="signatures of one are none of the other"):
        _signed(replace(manifest, candidate="rc3"), path, keys[1])


def test_every_changed_byte_of_it_is_refused(
    tmp_path: Path, keys: list[Path], manifest: Manifest
) -> None:
    path = _signed(manifest, tmp_path / "manifest.json", keys[0])
    data, public = path.read_bytes(), _public(keys[0])
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ReleaseError):
            read_manifest(path, public, threshold=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    noise=st.binary(max_size=200)
    | st.recursive(st.none(), st.lists).map(json.dumps).map(str.encode)
)
def test_what_is_no_manifest_is_refused_with_a_remedy(
    tmp_path: Path, keys: list[Path], noise: bytes
) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(noise)
    with pytest.raises(ReleaseError) as caught:
        read_manifest(path, _public(keys[0]), threshold=1)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda dist: (dist / "base-1.0.0-py3-none-any.whl").unlink(), "missing: base"),
        (lambda dist: (dist / "stray.txt").write_text("x"), "extra: stray.txt"),
        (lambda dist: (dist / "base-1.0.0-py3-none-any.whl").write_bytes(b"x"), "changed: base"),
        (lambda dist: (dist / "deep").mkdir() or (dist / "deep" / "x").touch(), "extra: deep/x"),
    ],
    ids=["missing", "extra", "changed", "deep"],
)
def test_files_that_are_not_the_manifests_are_named(
    tmp_path: Path, manifest: Manifest, spoil: object, said: str
) -> None:
    assert callable(spoil)
    spoil(tmp_path / "dist")
    assert [line for line in check_files(manifest, tmp_path / "dist") if said in line]


def test_a_manifest_of_nothing_vouches_for_nothing(tmp_path: Path, manifest: Manifest) -> None:
    (tmp_path / "empty").mkdir()
    assert check_files(replace(manifest, files={}), tmp_path / "empty")


def test_a_private_key_is_its_owners_alone_and_is_never_overwritten(keys: list[Path]) -> None:
    assert keys[0].stat().st_mode & 0o777 == 0o600
    with pytest.raises(ReleaseError, match="never overwritten"):
        make_key(keys[0])


def test_keys_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rsa.pem").write_text(
        "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----"
    )
    for read in (read_private_key, read_public_key):
        with pytest.raises(ReleaseError, match="expected"):
            read(tmp_path / "rsa.pem")
    with pytest.raises(ReleaseError, match="64 hexadecimal digits"):
        parse_public_key("abc", owner="alice")


def _authenticate(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(command, ["authenticate", str(folder), *words])


def test_an_outsider_needs_the_files_and_the_public_keys_alone(
    tmp_path: Path, keys: list[Path], manifest: Manifest
) -> None:
    dist = tmp_path / "dist"
    _signed(manifest, dist / "manifest.json", *keys[:2])
    public = [word for key in keys[:2] for word in ("--key", str(key.with_suffix(".pub")))]
    good = _authenticate(dist, *public, "--version", "1.0.0")
    assert (good.exit_code, "2 of 2 files are as 2 key(s) signed them" in good.output) == (0, True)
    wheel = sorted(dist.glob("*.whl"))[0]
    data = wheel.read_bytes()
    for place in range(0, len(data), 97):
        wheel.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        bad = _authenticate(dist, *public)
        assert (bad.exit_code, "changed: base" in bad.output) == (1, True)
        assert "do: do not install these files" in bad.output
    document = json.loads(_authenticate(dist, *public, "--json").stdout)
    assert document["error"].startswith("changed: base")
    wheel.unlink()
    assert "missing: base" in _authenticate(dist, *public).output
    assert _authenticate(dist, *public, "--some").exit_code == 0
    for path in dist.glob("*.whl"):
        path.unlink()
    assert _authenticate(dist, *public, "--some").exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--key", "mallory"], "expected 1 valid signature"),
        (["--key", "ann-is-not-here"], "expected a public key as PEM"),
        (["--key", "alice", "--version", "9.9.9"], "version: expected '9.9.9'"),
        (["--key", "alice", "--key", "mallory"], "expected 2 valid signature"),
    ],
)
def test_an_outsider_is_told_why_a_release_is_refused(
    tmp_path: Path, keys: list[Path], manifest: Manifest, words: list[str], said: str
) -> None:
    _signed(manifest, tmp_path / "dist" / "manifest.json", keys[0])
    named = [str(tmp_path / f"{w}.pub") if "-" not in w and "." not in w else w for w in words]
    result = _authenticate(tmp_path / "dist", *named)
    assert (result.exit_code, said in result.output) == (1, True), result.output
    assert "do: " in result.output


def test_an_unsigned_release_is_refused(tmp_path: Path, keys: list[Path]) -> None:
    (tmp_path / "dist").mkdir(exist_ok=True)
    result = _authenticate(tmp_path / "dist", "--key", str(keys[0].with_suffix(".pub")))
    assert (result.exit_code, "expected a signed manifest" in result.output) == (1, True)
