"""A file that is not exactly an artifact is refused, and nothing is written on the way."""

from __future__ import annotations

import io
import json
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchyard_export import ArtifactError, load
from torchyard_export._artifact.archive import read_archive, write_archive
from torchyard_export._artifact.manifest import MANIFEST


@pytest.fixture
def place(tmp_path: Path) -> Callable[[bytes], Path]:
    """Return what writes bytes to a file that stands alone in a folder."""
    folder = tmp_path / "alone"
    folder.mkdir()

    def write(data: bytes) -> Path:
        path = folder / "model.tya"
        path.write_bytes(data)
        return path

    return write


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_one_changed_byte_is_refused(
    packed: bytes, place: Callable[[bytes], Path], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(packed) - 1))
    bit = data.draw(st.integers(0, 7))
    changed = bytearray(packed)
    changed[at] ^= 1 << bit
    with pytest.raises(ArtifactError):
        load(place(bytes(changed)))


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_truncated_or_longer_file_is_refused(
    packed: bytes, place: Callable[[bytes], Path], data: st.DataObject
) -> None:
    end = data.draw(st.integers(0, len(packed) - 1))
    for other in (packed[:end], packed + b"\0", b"\0" + packed):
        with pytest.raises(ArtifactError):
            load(place(other))


def _zip(name: str, *, mode: int = 0o100644, times: int = 1, compress: bool = False) -> bytes:
    buffer = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for _ in range(times):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = mode << 16
            info.create_system = 3
            info.compress_type = kind
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                archive.writestr(info, b"0" * (1 << 20) if compress else b"target")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (_zip("/etc/outside"), "expected a relative path"),
        (_zip("../outside"), "expected a relative path"),
        (_zip("targets/../../outside"), "expected a relative path"),
        (_zip("C:/outside"), "expected a relative path"),
        (_zip("a\\..\\outside"), "expected a relative path"),
        (_zip("link", mode=stat.S_IFLNK | 0o777), "got a link"),
        (_zip("twice", times=2), "expected once, got it again"),
        (_zip("bomb", compress=True), "expected it stored"),
        (b"no zip at all", "expected a zip, got a damaged one"),
    ],
    ids="absolute parent parent-inside drive backslash link twice bomb other".split(),
)
def test_what_no_artifact_holds_is_refused_and_nothing_is_written(
    data: bytes, match: str, place: Callable[[bytes], Path], tmp_path: Path
) -> None:
    path = place(data)
    with pytest.raises(ArtifactError, match=match):
        load(path)
    assert [item.name for item in tmp_path.rglob("*")] == ["alone", "model.tya"]


def test_members_that_overlap_are_refused() -> None:
    """Each entry of the directory says that it is as large as the file."""
    data = bytearray(write_archive({"a": b"1" * 100, "b": b"2" * 100}))
    start = data.rfind(b"PK\x01\x02")
    data[start + 20 : start + 28] = (200).to_bytes(4, "little") * 2
    with pytest.raises(ArtifactError):
        read_archive(bytes(data))


def test_a_member_that_the_manifest_does_not_name_is_refused(
    packed: bytes, place: Callable[[bytes], Path]
) -> None:
    members = read_archive(packed)
    with pytest.raises(ArtifactError, match=r"'extra': expected sha256 none"):
        load(place(write_archive({**members, "extra": b""})))
    members.pop("report.json")
    with pytest.raises(ArtifactError, match=r"'report.json': expected by the manifest, not there"):
        load(place(write_archive(members)))


def test_a_changed_member_with_a_right_checksum_is_refused_by_its_digest(
    packed: bytes, place: Callable[[bytes], Path]
) -> None:
    members = read_archive(packed)
    members["report.json"] = members["report.json"].replace(b"passed", b"forged")
    with pytest.raises(ArtifactError, match=r"member 'report.json': expected sha256"):
        load(place(write_archive(members)))


def test_a_manifest_in_other_words_is_refused(
    packed: bytes, place: Callable[[bytes], Path]
) -> None:
    members = read_archive(packed)
    said = json.loads(members[MANIFEST])
    for other in (
        {**said, "more": 1},
        {**said, "schema": 2},
        {"schema": 1},
        [],
        {**said, "golden": 3},
    ):
        changed = {**members, MANIFEST: json.dumps(other, indent=1).encode() + b"\n"}
        with pytest.raises(ArtifactError, match="manifest"):
            load(place(write_archive(changed)))


def test_loading_and_running_writes_nothing_beside_the_file(
    packed: bytes, place: Callable[[bytes], Path], tmp_path: Path
) -> None:
    loaded = load(place(packed))
    loaded(torch.randn(2, 3, 4))
    assert loaded.verify().passed
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["alone", "model.tya"]
