"""A bundle that is not as its maker signed it is refused whole: nothing written, nothing run."""

from __future__ import annotations

import io
import json
import pickle
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packages.cache.tests.artifacts.made import bundle, snapshot, written
from torchyard.evidence.envelopes import Envelope
from torchyard.evidence.keys import generate_private_key, write_key_pair
from torchyard_cache import BundleError, artifacts
from torchyard_cache.artifacts._bundle import _TYPE, parse_bundle
from torchyard_cache.artifacts._keys import own_key

_RAN: list[str] = []


class _Payload:
    """A pickle that leaves a trace where it is read."""

    def __reduce__(self) -> Any:
        return _RAN.append, ("ran",)


_PARTS: Final = (
    ("tuned", "one.json", b"first content"),
    ("tuned", "folder/two.json", b"second content"),
    ("inductor", "fabc", pickle.dumps(_Payload())),
)
_Members = dict[str, bytes]


def _members(data: bytes) -> _Members:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _packed(members: _Members, compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _good() -> bytes:
    return bundle(*_PARTS).to_bytes(own_key())


def _member(change: Callable[[_Members], Any]) -> Callable[[], bytes]:
    """Return what changes the members of a good bundle."""

    def made() -> bytes:
        members = _members(_good())
        change(members)
        return _packed(members)

    return made


def _blob(members: _Members) -> str:
    return next(name for name in members if name.startswith("blobs/"))


def _manifest(
    change: Callable[[dict[str, Any]], Any], *, signed: bool = False
) -> Callable[[], bytes]:
    """Return what changes the manifest: below the old signature, or signed again by the user."""

    def made() -> bytes:
        members = _members(_good())
        old = Envelope.parse(members["manifest.json"], payload_type=_TYPE)
        found = json.loads(old.payload)
        change(found)
        payload = json.dumps(found, sort_keys=True).encode()
        new = Envelope(payload, _TYPE)
        if signed:
            new.sign(own_key())
            members["manifest.json"] = new.to_bytes()
        else:
            document = json.loads(members["manifest.json"])
            document["payload"] = json.loads(new.to_bytes())["payload"]
            members["manifest.json"] = (
                json.dumps(document, indent=1, sort_keys=True) + "\n"
            ).encode()
        return _packed(members)

    return made


def _key(name: str) -> Callable[[], bytes]:
    """Return a bundle whose user signed a key that leads elsewhere."""
    return lambda: bundle(("tuned", name, b"x")).to_bytes(own_key())


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        inner: Any = found
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value

    return change


def _flipped(place: float) -> Callable[[], bytes]:
    def made() -> bytes:
        data = bytearray(_good())
        data[int(place * (len(data) - 1))] ^= 1
        return bytes(data)

    return made


def _link() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in _members(_good()).items():
            archive.writestr(name, content)
        entry = zipfile.ZipInfo("blobs/link")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    return file.getvalue()


def _twice() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in [*_members(_good()).items()] * 2:
            with warnings.catch_warnings(action="ignore"):
                archive.writestr(name, content)
    return file.getvalue()


def _bomb() -> bytes:
    return _packed({**_members(_good()), "blobs/bomb": bytes(64 << 20)}, zipfile.ZIP_DEFLATED)


def _foreign() -> bytes:
    return bundle(*_PARTS).to_bytes(generate_private_key())


def _unsigned() -> bytes:
    members = _members(_good())
    document = json.loads(members["manifest.json"])
    document["signatures"] = []
    members["manifest.json"] = (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
    return _packed(members)


_ARTIFACT: Final = ("artifacts", 0)
_TAMPERED: Final[dict[str, Callable[[], bytes]]] = {
    "empty": lambda: b"",
    "no zip": lambda: b"PK" + bytes(100),
    "cut short": lambda: _good()[:-40],
    "its first half": lambda: _good()[: len(_good()) // 2],
    "a pickle": lambda: pickle.dumps(_Payload()),
    "another key": _foreign,
    "no signature": _unsigned,
    "no manifest": _member(lambda m: m.pop("manifest.json")),
    "a manifest that is no envelope": _member(lambda m: m.update({"manifest.json": b"{}"})),
    "a manifest that is a pickle": _member(
        lambda m: m.update({"manifest.json": pickle.dumps(_Payload())})
    ),
    "a content changed": _member(lambda m: m.update({_blob(m): b"other"})),
    "a content of the same length changed": _member(
        lambda m: m.update({_blob(m): m[_blob(m)][::-1]})
    ),
    "a content cut": _member(lambda m: m.update({_blob(m): m[_blob(m)][:-1]})),
    "a content missing": _member(lambda m: m.pop(_blob(m))),
    "a content besides": _member(lambda m: m.update({"blobs/more": b"x"})),
    "a file besides": _member(lambda m: m.update({"setup.py": b"x"})),
    "an absolute name": _member(lambda m: m.update({"/etc/x": b"x"})),
    "a dotted name": _member(lambda m: m.update({"blobs/../../x": b"x"})),
    "a link": _link,
    "members twice": _twice,
    "a bomb": _bomb,
    **{f"a bit at {place}": _flipped(place) for place in (0.02, 0.1, 0.3, 0.45, 0.6, 0.75, 0.9, 1)},
    **{
        f"{name}, below the old signature": _manifest(_set(*path, value=value))
        for name, path, value in (
            ("the schema", ("schema",), 2),
            ("the name", ("name",), "other"),
            ("the serial", ("serial",), 2**62),
            ("the machine", ("machine", "torch"), "2.99"),
            ("a package", ("packages", "torchyard"), "9"),
            ("a kind", (*_ARTIFACT, "kind"), "precompile"),
            ("a key", (*_ARTIFACT, "key"), "other"),
            ("a size", (*_ARTIFACT, "size"), 1),
            ("a digest", (*_ARTIFACT, "sha256"), "0" * 64),
            ("a time", (*_ARTIFACT, "used"), 9e9),
        )
    },
    **{
        f"{name}, signed": _manifest(change, signed=True)
        for name, change in {
            "another schema": _set("schema", value=2),
            "a serial below 0": _set("serial", value=-1),
            "a size that is not its": _set(*_ARTIFACT, "size", value=3),
            "a field besides": _set("more", value=1),
            "a field of another type": _set("name", value=3),
            "an artifact twice": lambda found: found["artifacts"].append(found["artifacts"][0]),
        }.items()
    },
    **{
        f"the key {name!r}, signed": _key(name)
        for name in (
            "/etc/cron.d/x",
            "../x",
            "a/../../x",
            "a//x",
            "C:/x",
            "a\\..\\x",
            "x\0y",
            "",
            ".",
            "x" * 5000,
        )
    },
}


def test_there_are_many() -> None:
    assert len(_TAMPERED) >= 40


@pytest.mark.parametrize("name", _TAMPERED)
def test_a_tampered_bundle_is_refused_and_leaves_nothing(
    name: str, tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "x.bundle"
    own_key()
    path.write_bytes(_TAMPERED[name]())
    before = snapshot(tmp_path)
    for use in (artifacts.load, lambda path: artifacts.load(path, newer_than=1)):
        with pytest.raises(BundleError):
            use(path)
    assert snapshot(tmp_path) == before
    assert not _RAN
    assert not (home / "inductor").exists()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1), bits=st.integers(1, 255))
def test_a_bundle_with_any_byte_changed_is_refused(place: float, bits: int) -> None:
    data = bytearray(_good())
    data[int(place * (len(data) - 1))] ^= bits
    with pytest.raises(BundleError):
        parse_bundle(bytes(data), [own_key().public])


def test_the_good_one_is_loaded(tmp_path: Path, home: Path) -> None:
    path = written(tmp_path / "x.bundle", *_PARTS)
    found = artifacts.load(path, kinds=["tuned"])
    assert found.loaded == 2
    folder = home / "cache" / "torchyard"
    assert (folder / "one.json").read_bytes() == b"first content"
    assert (folder / "folder" / "two.json").read_bytes() == b"second content"


def test_an_older_bundle_in_a_newer_ones_place_is_refused(tmp_path: Path) -> None:
    new = written(tmp_path / "new.bundle", _PARTS[0], serial=20)
    old = written(tmp_path / "old.bundle", _PARTS[0], serial=10)
    artifacts.load(old)
    artifacts.load(new)
    artifacts.load(new)
    with pytest.raises(BundleError, match="its serial 10 is older than 20"):
        artifacts.load(old)
    assert artifacts.load(old, allow_older=True).present == 1
    with pytest.raises(
        BundleError, match="newer_than: expected bundle made to have a serial above 20, got 20"
    ):
        artifacts.load(new, newer_than=20)


def test_a_foreign_bundle_needs_its_makers_key_or_a_flag(tmp_path: Path) -> None:
    write_key_pair(tmp_path / "theirs.key")
    path = tmp_path / "x.bundle"
    path.write_bytes(_foreign())
    with pytest.raises(BundleError, match="none of its 1 signature"):
        artifacts.load(path, keys=[tmp_path / "theirs.pub"])
    with pytest.warns(UserWarning, match="torch will run code of whoever made it"):
        found = artifacts.load(path, trust_unsigned=True, kinds=["tuned"])
    assert found.loaded == 2
    artifacts.save(path, name="x", key=tmp_path / "theirs.key")
    assert artifacts.load(path, keys=[tmp_path / "theirs.pub"]).manifest.name == "x"


def test_a_link_in_the_folder_leads_nothing_out_of_it(tmp_path: Path, home: Path) -> None:
    folder = home / "cache" / "torchyard"
    folder.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "folder").symlink_to(outside)
    path = written(tmp_path / "x.bundle", _PARTS[1])
    with pytest.raises(BundleError, match="leads out of"):
        artifacts.load(path)
    assert not list(outside.iterdir())


def test_a_file_that_is_there_stays(tmp_path: Path, home: Path) -> None:
    folder = home / "cache" / "torchyard"
    folder.mkdir(parents=True)
    (folder / "one.json").write_bytes(b"mine")
    found = artifacts.load(written(tmp_path / "x.bundle", _PARTS[0]))
    assert (found.loaded, found.present) == (0, 1)
    assert (folder / "one.json").read_bytes() == b"mine"
