"""The certificates that the matrix is made from are ours, sound, and tell nobody's machine."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.architecture.test_files import _MACHINE
from tests.architecture.tree import ROOT, parsed
from torchyard import EvidenceLevel
from torchyard._features.levels import evidence
from torchyard_conformance._evidence._archive import read_archive
from torchyard_conformance._evidence._levels import level_of, proven
from torchyard_conformance._evidence._verify import read_bundle
from torchyard_conformance._reports._execution import EXECUTION

_DOCS = ROOT / "docs"
_CERTIFICATES = sorted((_DOCS / "certificates").glob("*.tgz"))
# The tables of the nox file that have a plugin's certificate under another name than its own.
_NAMED = ("CERTIFIED_KERNELS", "CERTIFIED_COMPILED")


def _certified() -> dict[str, str]:
    """Return the plugin of each certificate that the nox session makes."""
    found = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in parsed(Path("noxfile.py")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("CERTIFIED", *_NAMED)
    }
    named = {name: plugin for table in _NAMED for plugin, name in found[table].items()}
    return {**{name: name for name in found["CERTIFIED"]}, **named}


def test_each_of_our_plugins_has_its_certificates_and_no_other_is_there() -> None:
    assert set(_certified()) == {path.stem for path in _CERTIFICATES}
    assert {"attention", "kernels"} <= set(_certified().values())


@pytest.mark.parametrize("path", _CERTIFICATES, ids=lambda path: path.stem)
def test_a_certificate_is_sound_and_certifies_the_plugin_it_is_of(path: Path) -> None:
    report = read_bundle(path).report
    assert report.certified, report.reasons
    assert report.plugin == _certified()[path.stem]
    assert report.digests


@pytest.mark.parametrize("path", _CERTIFICATES, ids=lambda path: path.stem)
def test_a_certificate_names_no_machine(path: Path) -> None:
    for name, content in read_archive(path.read_bytes()).items():
        assert not re.search(_MACHINE, content.decode()), name


def test_a_certificate_that_was_touched_ends_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "certificates").mkdir()
    touched = Path(shutil.copy(_CERTIFICATES[0], tmp_path / "certificates"))
    data = bytearray(touched.read_bytes())
    data[-1] ^= 1
    touched.write_bytes(data)
    spec = importlib.util.spec_from_file_location("generate", _DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "generate", generate)
    spec.loader.exec_module(generate)
    monkeypatch.setattr(generate, "_DOCS", tmp_path)
    with pytest.raises(SystemExit, match=r"refused: digest: .*`nox -s certify -- --refresh`"):
        generate._devices()


def test_each_level_of_evidence_names_a_certificate_of_this_tree() -> None:
    rows = evidence()
    assert rows
    # Of the tree: the plugin of a simulated device need not be installed.
    manifests = [
        tomllib.loads(path.read_text(encoding="utf-8"))
        for path in ROOT.glob("plugins/*/src/*/torchyard.toml")
    ]
    devices = [device for manifest in manifests for device in manifest.get("devices", [])]
    simulated = {device["name"] for device in devices if device.get("simulated", False)}
    assert simulated
    for row in rows:
        verified = read_bundle(ROOT / row.bundle)
        assert verified.digest == row.digest, f"{row.bundle}: `nox -s docs` writes the table again"
        assert verified.report.certified
        assert row.device in verified.report.devices
        assert row.level is level_of(verified.report, simulated)


def test_a_certificate_without_a_comparison_proves_no_feature() -> None:
    verified = read_bundle(_DOCS / "certificates/cpu.tgz")
    before = proven({"cpu.tgz": verified}, ())
    compared = replace(
        verified.report,
        results=tuple(r for r in verified.report.results if "match" not in r.law),
    )
    assert before
    assert not proven({"cpu.tgz": replace(verified, report=compared)}, ())


def test_a_simulated_device_proves_nothing_of_hardware() -> None:
    report = read_bundle(_DOCS / "certificates/simulated.tgz").report
    assert level_of(report, {"simulated"}) is EvidenceLevel.EMULATED
    said = replace(report, environment={**report.environment, EXECUTION: "simulated: simulated"})
    assert level_of(said) is EvidenceLevel.EMULATED
    assert level_of(replace(report, results=())) is EvidenceLevel.DECLARED


def test_a_profile_for_emulated_devices_proves_nothing_of_hardware() -> None:
    report = read_bundle(_DOCS / "certificates/cpu.tgz").report
    assert level_of(report) is EvidenceLevel.ON_DEVICE
    assert level_of(replace(report, profile=f"{report.profile}+emulated")) is EvidenceLevel.EMULATED
