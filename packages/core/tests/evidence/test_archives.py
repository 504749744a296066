"""Members of archives from elsewhere: plain files with plain names within bounds, or refused."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.evidence import ArchiveError
from torchyard.evidence.archives import Limits, check_name, decompress_gzip, read_tar, read_zip

_LIMITS = Limits(unpacked=1 << 20, members=64)
_PARTS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
_NAMES = st.lists(_PARTS, min_size=1, max_size=3).map("/".join)
_FILES = st.dictionaries(_NAMES, st.binary(max_size=600), min_size=1, max_size=6).filter(
    lambda files: not any(f"{a}/" == b[: len(a) + 1] for a in files for b in files)
)
_BAD_NAMES = [
    "/etc/passwd",
    "..",
    "../up",
    "a/../../up",
    "a/./b",
    "a//b",
    "a\\..\\b",
    "C:/windows",
    "a\nb",
    "\x1b[2J",
    "x" * 5000,
]


def _zip(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED, mode: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name, content in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type, info.external_attr = method, mode << 16
            archive.writestr(info, content)
    return buffer.getvalue()


def _tar(
    *entries: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, format: int = tarfile.PAX_FORMAT
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), kind, "/etc/passwd"
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _contents(found: dict[str, Any]) -> dict[str, bytes]:
    return {name: member.content for name, member in found.items()}


@settings(max_examples=40)
@given(files=_FILES, method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_what_was_written_is_read(files: dict[str, bytes], method: int) -> None:
    assert _contents(read_zip(_zip(*files.items(), method=method), _LIMITS)) == files
    tar = _tar(*files.items())
    assert _contents(read_tar(tar, _LIMITS)) == files
    assert _contents(read_tar(gzip.compress(tar), _LIMITS)) == files


@pytest.mark.parametrize("name", _BAD_NAMES)
def test_a_name_that_leads_elsewhere_is_refused_in_each_kind(name: str) -> None:
    with pytest.raises(ArchiveError, match=r"expected a relative path without '\.\.'"):
        check_name(name)
    for read, data in ((read_zip, _zip((name, b"x"))), (read_tar, _tar((name, b"x")))):
        with pytest.raises(ArchiveError, match="member "):
            read(data, _LIMITS)


@given(name=st.text(max_size=30))
def test_whatever_name_is_read_stays_inside_a_folder(name: str) -> None:
    try:
        check_name(name)
    except ArchiveError:
        return
    folder = Path("/some/folder")
    written = Path(folder, name)
    assert written != folder
    assert ".." not in written.parts
    assert written.is_relative_to(folder)
    assert written.relative_to(folder).as_posix() == name


def test_a_name_is_the_one_in_the_file_and_not_what_stands_before_a_zero() -> None:
    data = _zip(("good.txt", b"x")).replace(b"good.txt", b"good\0txt")
    with pytest.raises(ArchiveError, match=r"member 'good\\x00txt'"):
        read_zip(data, _LIMITS)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.SYMTYPE, "got a link"),
        (tarfile.LNKTYPE, "got a link"),
        (tarfile.DIRTYPE, "got a folder"),
        (tarfile.CHRTYPE, "got something else"),
        (tarfile.BLKTYPE, "got something else"),
        (tarfile.FIFOTYPE, "got something else"),
    ],
)
def test_a_tar_holds_files_alone(kind: bytes, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        read_tar(_tar(("x", b""), kind=kind), _LIMITS)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (stat.S_IFLNK, "got a link"),
        (stat.S_IFDIR, "got a folder"),
        (stat.S_IFCHR, "got something else"),
        (stat.S_IFIFO, "got something else"),
        (stat.S_IFSOCK, "got something else"),
    ],
)
def test_a_zip_holds_files_alone(mode: int, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        read_zip(_zip(("x", b"target"), mode=mode | 0o644), _LIMITS)


def test_folders_are_left_out_where_they_may_be() -> None:
    zipped = _zip(("a/", b""), ("a/x", b"1"))
    assert list(read_zip(zipped, _LIMITS, folders=True)) == ["a/x"]
    with pytest.raises(ArchiveError, match="got a folder"):
        read_zip(zipped, _LIMITS)
    assert read_tar(_tar(("a", b""), kind=tarfile.DIRTYPE), _LIMITS, folders=True) == {}
    for name in ("../a/", "/"):
        with pytest.raises(ArchiveError, match="expected a relative path"):
            read_zip(_zip((name, b"")), _LIMITS, folders=True)
        with pytest.raises(ArchiveError, match="expected a relative path"):
            read_tar(_tar((name, b""), kind=tarfile.DIRTYPE), _LIMITS, folders=True)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([("x", b"1"), ("x", b"2")], "member 'x': expected once"),
        ([("x", b"1"), ("x/y", b"2")], "member 'x/y': expected no member 'x'"),
        ([("x/y/z", b"1"), ("x", b"2")], "member 'x/y/z': expected no member 'x'"),
        ([(str(number), b"") for number in range(65)], "expected at most 64 members"),
        ([("big", bytes(1 << 20)), ("more", b"x")], "expected at most 1048576 bytes unpacked"),
    ],
    ids=["twice", "file and folder", "folder and file", "many", "large"],
)
def test_members_that_do_not_go_together_are_refused(
    entries: list[tuple[str, bytes]], said: str
) -> None:
    for read, data in (
        (read_zip, _zip(*entries)),
        (read_tar, _tar(*entries)),
        (read_tar, gzip.compress(_tar(*entries))),
    ):
        with pytest.raises(ArchiveError, match=said):
            read(data, _LIMITS)


def _sizes(data: bytes, size: int) -> bytes:
    """Return a zip of one member whose size is another in both of its headers."""
    changed = bytearray(data)
    struct.pack_into("<L", changed, data.find(b"PK\x03\x04") + 22, size)
    struct.pack_into("<L", changed, data.find(b"PK\x01\x02") + 24, size)
    return bytes(changed)


def _peak(data: bytes, read: Any) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError):
            read(data, _LIMITS)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_bombs_are_refused_before_they_are_large() -> None:
    zeros = bytes(48 << 20)
    honest = _zip(("bomb", zeros))
    bombs = [
        (honest, read_zip),
        # It says that it has a byte; zipfile asked for all of it would unpack the rest.
        (_sizes(honest, 1), read_zip),
        (gzip.compress(_tar(("bomb", zeros))), read_tar),
        (gzip.compress(zeros), read_tar),
    ]
    del zeros
    for data, read in bombs:
        assert len(data) < 200_000
        assert _peak(data, read) < 32 << 20


def test_a_sparse_member_of_a_few_bytes_is_refused() -> None:
    info = tarfile.TarInfo("sparse")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 0
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    # The real size, of which nothing is in the file.
    header[483:495] = b"%011o\0" % (1 << 30)
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
    with pytest.raises(ArchiveError, match="got a sparse file"):
        read_tar(bytes(header) + bytes(1024), _LIMITS)


def test_a_size_below_zero_does_not_hold_the_reader_for_ever() -> None:
    header = bytearray(tarfile.TarInfo("back").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 11 + b"\x00"
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
    with pytest.raises(ArchiveError, match="member 'back': expected a size, got -"):
        read_tar(bytes(header) * 3 + bytes(1024), _LIMITS)


def test_stored_members_that_overlap_or_are_compressed_are_refused_where_all_are_stored() -> None:
    with pytest.raises(ArchiveError, match="expected it stored, got it compressed"):
        read_zip(_zip(("x", b"1" * 100)), _LIMITS, stored=True)
    # Members that overlap: what is in `a` is `b` with its header.
    inner, names = _parts(("b", b"2" * 1000))
    outer, more = _parts(("a", bytes(inner)))
    names[42:46] = struct.pack("<L", len(outer) - len(inner))
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2, 2, len(more) + len(names), len(outer), 0)
    data = bytes(outer + more + names + end)
    # Newer Pythons refuse them by themselves, however they are read.
    refused = f"at most {len(data)} bytes unpacked|Overlapped entries"
    with pytest.raises(ArchiveError, match=refused):
        read_zip(data, _LIMITS, stored=True)


def _parts(entry: tuple[str, bytes]) -> tuple[bytearray, bytearray]:
    """Return the members of a zip of one stored entry, and its directory without the end."""
    data = bytearray(_zip(entry, method=zipfile.ZIP_STORED))
    start, end = data.rfind(b"PK\x01\x02"), data.rfind(b"PK\x05\x06")
    return data[:start], data[start:end]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused_by_name(method: int) -> None:
    with pytest.raises(ArchiveError, match=f"expected it stored or deflated, got method {method}"):
        read_zip(_zip(("x", b"1"), method=method), _LIMITS)


def test_an_encrypted_member_is_refused_by_name() -> None:
    data = bytearray(_zip(("x", b"1")))
    data[data.find(b"PK\x03\x04") + 6] |= 1
    data[data.find(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(ArchiveError, match="expected it plain, got it encrypted"):
        read_zip(bytes(data), _LIMITS)


def test_only_what_is_wanted_is_read_and_everything_is_checked() -> None:
    def wanted(name: str) -> bool:
        return name == "b"

    good = _zip(("a", b"1"), ("b", b"2"))
    assert _contents(read_zip(good, _LIMITS, wanted=wanted)) == {"b": b"2"}
    with pytest.raises(ArchiveError, match="expected a relative path"):
        read_zip(_zip(("../a", b"1"), ("b", b"2")), _LIMITS, wanted=wanted)


_ZIP = _zip(("a/one.txt", b"1" * 200), ("two", b"2" * 50))
_TAR = _tar(("a/one.txt", b"1" * 200), ("two", b"2" * 50))


@given(st.data())
def test_a_damaged_archive_is_refused_or_reads_as_plain_members(data: st.DataObject) -> None:
    read, sound = data.draw(
        st.sampled_from([(read_zip, _ZIP), (read_tar, _TAR), (read_tar, gzip.compress(_TAR))])
    )
    changed = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(changed)))
    try:
        found = read(bytes(changed[:cut]), _LIMITS)
    except ArchiveError:
        return
    for name, member in found.items():
        check_name(name)
        assert len(member.content) <= _LIMITS.unpacked


@given(st.binary(max_size=300))
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    for read in (read_zip, read_tar):
        with pytest.raises(ArchiveError):
            read(data, _LIMITS)
    with pytest.raises(ArchiveError):
        decompress_gzip(b"\x1f\x8b" + data, 100)


def test_a_tar_that_goes_on_after_a_damaged_header_is_not_read_as_a_shorter_one() -> None:
    data = bytearray(_tar(("a", b"1"), ("b", b"2"), format=tarfile.USTAR_FORMAT))
    data[1024] ^= 1
    with pytest.raises(ArchiveError, match="no member where one begins"):
        read_tar(bytes(data), _LIMITS)


def test_a_gzip_is_one_stream() -> None:
    stream = gzip.compress(b"content")
    assert decompress_gzip(stream, 7) == b"content"
    for data in (stream + b"x", stream + stream, stream[:-1]):
        with pytest.raises(ArchiveError, match="one gzip stream and nothing else"):
            decompress_gzip(data, 100)
    with pytest.raises(ArchiveError, match="at most 6 bytes unpacked"):
        decompress_gzip(stream, 6)


def test_many_headers_in_one_another_are_refused() -> None:
    """tarfile calls itself for each header of long names that comes before a member."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 12
    header = info.tobuf(tarfile.USTAR_FORMAT) + b"12 comment=x" + bytes(500)
    with pytest.raises(ArchiveError):
        read_tar(header * 2000 + bytes(1024), _LIMITS)
