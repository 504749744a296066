"""A bundle that anybody touched is refused, and the refusal says what was expected."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard_conformance import Report, Status
from torchyard_conformance._evidence import _archive as archive
from torchyard_conformance._evidence._archive import BundleError, read_archive, write_archive
from torchyard_conformance._evidence._bundle import MANIFEST, REPORT, bundle, derived, manifest_of
from torchyard_conformance._evidence._verify import verify
from torchyard_conformance._profile import read_profile

from .reports import certified_report, failed_report

_SOUND = bundle(certified_report())
_MEMBERS = read_archive(_SOUND)
_NAMES = sorted(_MEMBERS)


def _refused(data: bytes, words: str = "") -> None:
    with pytest.raises(BundleError) as caught:
        verify(data)
    assert words in str(caught.value)


def _sealed(plain: bytes) -> bytes:
    """Return a tar in a gzip whose digest holds, as a forger would make it."""
    body = zlib.compress(plain, 9, -15) + zlib.crc32(plain).to_bytes(4, "little")
    body += len(plain).to_bytes(4, "little")
    digest = hashlib.sha256(body).hexdigest().encode()
    return archive._HEAD + archive._MARK + digest + b"\0" + body


def _repacked(members: dict[str, bytes], *, truthful: bool = True) -> bytes:
    """Return an archive of changed members, with a manifest that holds for them or the old one."""
    members = dict(members)
    if truthful:
        members.pop(MANIFEST, None)
        members[MANIFEST] = manifest_of(members)
    return write_archive(members)


def test_the_bundle_that_is_changed_below_is_sound() -> None:
    assert verify(_SOUND).report == certified_report()
    assert _sealed(gzip.decompress(_SOUND)) == _SOUND == _repacked(_MEMBERS)
    assert {MANIFEST, REPORT, "junit.xml", "mustpass/core-1.0.txt"} == set(_NAMES)


def test_every_single_byte_counts() -> None:
    for place in range(len(_SOUND)):
        changed = bytearray(_SOUND)
        changed[place] ^= 1 << (place % 8)
        _refused(bytes(changed))


@given(st.integers(0, len(_SOUND) - 1), st.integers(1, 255))
def test_any_other_value_of_any_byte_is_refused(place: int, change: int) -> None:
    changed = bytearray(_SOUND)
    changed[place] ^= change
    _refused(bytes(changed))


_PLAIN = gzip.decompress(_SOUND)


@given(st.integers(0, len(_PLAIN) - 1), st.integers(1, 255))
def test_any_byte_of_the_tar_is_refused_under_a_digest_that_holds(place: int, change: int) -> None:
    changed = bytearray(_PLAIN)
    changed[place] ^= change
    _refused(_sealed(bytes(changed)))


@given(st.data())
def test_a_byte_of_any_member_is_refused_by_the_manifest(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(_NAMES))
    place = data.draw(st.integers(0, len(_MEMBERS[name]) - 1))
    changed = bytearray(_MEMBERS[name])
    changed[place] ^= data.draw(st.integers(1, 255))
    _refused(_repacked({**_MEMBERS, name: bytes(changed)}, truthful=False), "member '")


@given(st.sampled_from([name for name in _NAMES if name != MANIFEST]), st.binary(max_size=40))
def test_other_content_is_refused_though_the_manifest_matches_it(name: str, new: bytes) -> None:
    _refused(_repacked({**_MEMBERS, name: new}))


@given(st.binary(max_size=2000))
def test_any_data_is_refused(data: bytes) -> None:
    _refused(data)
    _refused(_sealed(data))


@pytest.mark.parametrize("kept", [0, 1, 9, 80, 90, len(_SOUND) // 2, len(_SOUND) - 1])
def test_a_truncated_file_is_refused(kept: int) -> None:
    _refused(_SOUND[:kept])


def test_what_follows_the_end_is_refused() -> None:
    _refused(_SOUND + b"\0", "digest: the bundle was changed")
    _refused(_SOUND + _SOUND, "digest: the bundle was changed")
    _refused(_sealed(_PLAIN + bytes(512)), "its members alone")


def _edited(change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return the report as it would be with something changed by hand."""
    data = json.loads(_MEMBERS[REPORT])
    change(data)
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def _set(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        assert data[path[-1]] != to
        data[path[-1]] = to

    return change


_RESULT = _set("results", 0, "status", to="fail")
_VERSION = _set("versions", "torchyard", to="9.9")


@pytest.mark.parametrize("change", [_RESULT, _VERSION], ids=["one result", "one version"])
def test_one_value_of_the_report_is_refused_by_the_manifest(
    change: Callable[[dict[str, Any]], None],
) -> None:
    members = {**_MEMBERS, REPORT: _edited(change)}
    _refused(_repacked(members, truthful=False), "member 'report.json': expected sha256")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_RESULT, "says certified = True, but its results say False: "),
        (_set("certified", to=False), "says certified = False, but its results say True"),
        (_set("results", 0, "seconds", to=9.0), "member 'junit.xml': expected what the report"),
        (_set("plugin_version", to="9.9"), "member 'junit.xml': expected what the report"),
        (_set("reasons", to=["none"]), "member 'report.json': expected what the report"),
        (_set("results", to=[]), "certified = True, but its results say False: no law ran"),
        (_set("spec", to="9.9"), "spec 9.9, profile 'core': this kit does not know them"),
        (_set("spec", to="../../x"), "spec: expected a version such as '1.0', got '../../x'"),
        (_set("spec", to=1.0), "spec: expected a string, got 1.0"),
        (_set("profile", to="gold"), "profile 'gold': this kit does not know them"),
        (_set("profile", to="../core"), "this kit does not know them"),
        (_set("profile", to=["core"]), "profile: expected a string, got ['core']"),
        (_set("mustpass_digest", to="0" * 64), "mustpass_digest: expected "),
        (_set("results", 0, "seconds", to="long"), "results[0].seconds: expected a number"),
        (_set("results", 0, "text", to=None), "results[0].text: expected a string, got None"),
        (
            _set("results", 0, "status", to="splendid"),
            "results[0].status: expected one of pass, fail,",
        ),
        (_set("results", 0, to=3), "results[0]: expected an object, got 3"),
        (_set("results", 3, "figures", to={"x": []}), "figures['x']: expected a number or a str"),
        (_set("date", to="soon"), "expected the kit's report, got: Invalid isoformat string"),
    ],
)
def test_what_does_not_follow_from_the_rest_is_refused_under_a_new_manifest(
    change: Callable[[dict[str, Any]], None], words: str
) -> None:
    _refused(_repacked({**_MEMBERS, REPORT: _edited(change)}), words)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=4,
)


def _paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return [here]
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    return [here, *(path for key, item in items for path in _paths(item, (*here, key)))]


@given(st.sampled_from(_paths(json.loads(_MEMBERS[REPORT]))[1:]), _VALUES)
def test_any_value_anywhere_in_the_report_is_read_or_refused(
    path: tuple[Any, ...], value: Any
) -> None:
    data = json.loads(_MEMBERS[REPORT])
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    text = (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()
    with contextlib.suppress(BundleError):
        verify(_repacked({**_MEMBERS, REPORT: text}))


def test_a_failed_law_that_must_pass_cannot_be_certified() -> None:
    report = failed_report()
    data = {**report.to_json(), "certified": True, "reasons": []}
    text = (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()
    members = {**derived(report, read_profile("core")), REPORT: text}
    _refused(_repacked(members), "says certified = True, but its results say False")


def test_a_shorter_list_of_laws_is_refused_though_everything_else_fits_it() -> None:
    report = certified_report()
    report = dataclasses.replace(report, mustpass=(), results=report.results[-3:])
    members = derived(report, read_profile("core"))
    _refused(_repacked(members), "mustpass: expected the laws that spec 1.0 asks")


def test_changed_lists_are_refused() -> None:
    name = "mustpass/core-1.0.txt"
    _refused(_repacked({**_MEMBERS, name: b"extra.fast\n"}), f"member {name!r}: expected what")


@pytest.mark.parametrize("name", _NAMES)
def test_a_missing_member_is_refused(name: str) -> None:
    members = {other: content for other, content in _MEMBERS.items() if other != name}
    _refused(_repacked(members, truthful=False), f"member {name!r}: expected")
    if name != MANIFEST:
        _refused(_repacked(members), "expected")


@pytest.mark.parametrize("name", ["more.txt", "mustpass/gold-1.0.txt", "report.pickle"])
def test_an_extra_member_is_refused(name: str) -> None:
    members = {**_MEMBERS, name: b"more"}
    _refused(_repacked(members, truthful=False), f"member {name!r}: {MANIFEST} does not name it")
    _refused(_repacked(members), f"odd: {name}")


def _tar(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as file:
        for name, content in sorted(_MEMBERS.items()):
            info = tarfile.TarInfo(f"certificate/{name}")
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
        for entry in entries:
            info, content = entry if isinstance(entry, tuple) else (entry, b"")
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return written.getvalue()


def _info(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (_info("certificate/x", tarfile.SYMTYPE, linkname="/etc/passwd"), "got a link"),
        (_info("certificate/x", tarfile.LNKTYPE, linkname="certificate/junit.xml"), "got a link"),
        (_info("certificate/x", tarfile.DIRTYPE), "got a folder"),
        (_info("certificate/x", tarfile.FIFOTYPE), "got something else"),
        (_info("certificate/x", tarfile.CHRTYPE), "got something else"),
        (_info("certificate/x", b"S"), "got a sparse file"),
        (_info("/etc/passwd"), "expected a relative path without '..'"),
        (_info("../up"), "without '..'"),
        (_info("certificate/../../up"), "without '..'"),
        (_info("certificate/./x"), "without '..'"),
        (_info("certificate//x"), "without '..'"),
        (_info("certificate/a\\b"), "without '..'"),
        (_info("certificates/x"), "expected a path inside 'certificate'"),
        (_info("certificate/x", mtime=1), "no time, owner or mode"),
        (_info("certificate/x", uid=1000), "no time, owner or mode"),
        (_info("certificate/x", uname="somebody"), "no time, owner or mode"),
        (_info("certificate/x", mode=0o4755), "no time, owner or mode"),
        (_info("certificate/junit.xml"), "expected once, got it again"),
    ],
)
def test_links_and_paths_that_lead_elsewhere_are_refused(
    entry: tarfile.TarInfo, words: str
) -> None:
    _refused(_sealed(_tar(entry)), words)


def test_members_in_another_order_are_refused() -> None:
    first = archive._header("aaa", 0)
    _refused(_sealed(_PLAIN[:-1024] + first + bytes(1024)), "sorted by name")


def test_a_member_that_claims_more_than_there_is_is_refused() -> None:
    _refused(_sealed(archive._header("x", 1 << 20) + bytes(1024)), "the archive ends before")


def test_a_bomb_is_refused_without_being_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "UNPACKED_LIMIT", 1 << 20)
    bomb = _sealed(bytes(64 << 20))
    assert len(bomb) < 100_000
    _refused(bomb, "size: expected at most 1048576 bytes unpacked, got more")


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "PACKED_LIMIT", 100)
    _refused(_SOUND, f"size: expected at most 100 bytes, got {len(_SOUND)}")


@pytest.mark.parametrize(
    "text",
    [b"", b"null", b"[" * 100_000, b"{}", b"\xff", b"9" * 5000, b'{"results": 1}'],
    ids=["nothing", "null", "endless", "empty", "no text", "a long number", "no report"],
)
def test_a_report_that_is_none_is_refused(text: bytes) -> None:
    _refused(_repacked({**_MEMBERS, REPORT: text}), "report.json: ")


def test_a_report_written_in_another_way_is_refused() -> None:
    report = _MEMBERS[REPORT]
    for text in (
        report + b"\n",
        report.replace(b"\n", b"\r\n"),
        report.replace(b'"spec": "1.0"', b'"spec": "9.9", "spec": "1.0"'),
        report.replace(b'"spec": "1.0"', b'"spec": "1.0", "more": "1"'),
        report.replace(b'"law": ', b'"more": 1, "law": ', 1),
    ):
        assert text != report
        _refused(_repacked({**_MEMBERS, REPORT: text}), "report.json")


def test_only_a_signature_stops_whoever_rewrites_everything() -> None:
    """The limit of a digest: what is consistent and unsigned may come from anybody."""
    forged = certified_report(plugin_version="9.9")
    verified = verify(bundle(forged))
    assert verified.report == forged
    assert verified.authorship.startswith("not proven: the bundle is not signed")


def test_statuses_decide_and_nothing_else_does() -> None:
    for status in Status:
        report = certified_report()
        changed = dataclasses.replace(report.results[0], status=status)
        report = dataclasses.replace(report, results=(changed, *report.results[1:]))
        assert isinstance(report, Report)
        assert verify(bundle(report)).report.certified is (status is Status.PASS)
