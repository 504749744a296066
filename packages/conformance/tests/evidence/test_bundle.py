"""A bundle is one file, the same for the same report, that any tar program can unpack."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree

import pytest

from torchyard_conformance import Report
from torchyard_conformance._evidence._bundle import SIGNATURE, bundle, write_bundle
from torchyard_conformance._evidence._verify import Authorship, read_bundle, verify

from .reports import certified_report, failed_report


def _unpacked(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        found = {}
        for info in archive:
            file = archive.extractfile(info)
            assert file is not None
            found[info.name] = file.read()
        return found


def test_a_bundle_is_verified_and_gives_its_report_back(tmp_path: Path) -> None:
    path = tmp_path / "yard.tgz"
    report = certified_report()
    digest = write_bundle(report, path)
    verified = read_bundle(path)
    assert verified.report == report
    assert verified.report.certified
    assert verified.digest == digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert verified.authorship is Authorship.UNSIGNED


def test_a_bundle_of_a_failure_is_sound_and_certifies_nothing() -> None:
    verified = verify(bundle(failed_report()))
    assert not verified.report.certified
    assert "must pass, and ended as fail" in verified.report.reasons[0]


def test_any_program_unpacks_it_and_checks_its_members(tmp_path: Path) -> None:
    members = _unpacked(bundle(certified_report("smoke+core")))
    assert all(name.startswith("certificate/") for name in members)
    assert json.loads(members["certificate/report.json"])["certified"] is True
    lines = members["certificate/MANIFEST.sha256"].decode().splitlines()
    named = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert named == {
        name.removeprefix("certificate/"): hashlib.sha256(content).hexdigest()
        for name, content in members.items()
        if not name.endswith("MANIFEST.sha256")
    }
    assert {"junit.xml", "mustpass/core-1.0.txt", "mustpass/smoke-1.0.txt"} <= named.keys()


def test_every_kind_of_member_is_documented_and_no_other() -> None:
    page = Path(__file__).parents[4] / "docs" / "plugins" / "certificates.md"
    rows = re.findall(r"^\| `([\w.*/]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    members = [*_unpacked(bundle(certified_report())), f"certificate/{SIGNATURE}"]
    for name in members:
        kinds = [row for row in rows if fnmatchcase(name.removeprefix("certificate/"), row)]
        assert len(kinds) == 1, name
    assert len(rows) == len(members)


def test_dashboards_read_the_same_counts() -> None:
    suite = ElementTree.fromstring(_unpacked(bundle(failed_report()))["certificate/junit.xml"])
    results = failed_report().results
    assert suite.attrib["tests"] == str(len(results)) == str(len(suite.findall("testcase")))
    assert suite.attrib["failures"] == "1" == str(len(suite.findall("testcase/failure")))
    assert suite.attrib["skipped"] == "2" == str(len(suite.findall("testcase/skipped")))


def test_the_same_report_is_the_same_bytes() -> None:
    report = certified_report()
    backwards = dataclasses.replace(
        report,
        environment=dict(sorted(report.environment.items())),
        versions=dict(sorted(report.versions.items(), reverse=True)),
    )
    assert bundle(report) == bundle(backwards)
    assert bundle(Report.from_json(json.loads(json.dumps(report.to_json())))) == bundle(report)


def test_another_process_elsewhere_and_later_writes_the_same_bytes(tmp_path: Path) -> None:
    program = """
import json, sys
from pathlib import Path
from torchyard_conformance import Report
from torchyard_conformance._evidence._bundle import write_bundle
print(write_bundle(Report.from_json(json.load(sys.stdin)), Path("there.tgz")))
"""
    report = certified_report()
    environ = {"TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7", "LC_ALL": "C", "USER": "nobody"}
    result = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(report.to_json()),
        env={**os.environ, **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "there.tgz").read_bytes() == bundle(report)


def test_what_was_timed_is_all_that_two_runs_differ_in() -> None:
    report = certified_report()
    slower = tuple(dataclasses.replace(item, seconds=item.seconds + 1) for item in report.results)
    one = _unpacked(bundle(report))
    other = _unpacked(bundle(dataclasses.replace(report, results=slower)))
    different = {name for name in one if one[name] != other[name]}
    assert different == {
        f"certificate/{name}" for name in ("report.json", "junit.xml", "MANIFEST.sha256")
    }


def test_a_report_made_with_other_lists_is_not_bundled() -> None:
    with pytest.raises(ValueError, match="expected the lists of profile 'core' that this kit has"):
        bundle(certified_report(mustpass_digest="0" * 64))
