"""torchyard doctor and torchyard env: the installation as it is, and nobody's name."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from packages.core.tests.conftest import Make
from packages.core.tests.distribution import torchyard
from packages.core.tests.toys import TOY
from torchyard import CheckStatus, ContractId
from torchyard.cli._doctor.diagnosis import _check_decision
from torchyard.cli._env import redact

needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")


def test_doctor_is_sound_where_the_plugins_are(site: Path) -> None:
    result = torchyard("doctor", "--json", site=site)
    data = json.loads(result.stdout)
    mine = {
        check["name"]: check
        for checks in data["sections"].values()
        for check in checks
        if check["name"].startswith(("toy", "good"))
    }
    assert mine["good: speed"]["status"] == "pass"
    assert mine["toy"]["status"] == mine["good"]["status"] == "pass"
    assert "bold" not in result.stdout
    text = torchyard("doctor", site=site)
    assert "good: speed" in text.stdout


@needs_torch
def test_doctor_shows_what_computes_each_contract(site: Path) -> None:
    sections = json.loads(torchyard("doctor", "--json", site=site).stdout)["sections"]
    decisions = {check["name"]: check for check in sections["decisions"]}
    assert decisions["toy/1 on cpu"]["status"] == "pass"
    assert decisions["toy/1 on cpu"]["text"] == "good.fast 2 of 4, toy.reference 2 of 4"
    assert sections["torch"][0]["status"] == "pass"


@needs_torch
def test_doctor_of_one_device_leaves_the_others_out(site: Path) -> None:
    result = torchyard("doctor", "--json", "--device", "cpu", site=site)
    sections = json.loads(result.stdout)["sections"]
    assert [check["name"] for check in sections["devices"]] == ["cpu"]
    assert "toy/1 on cpu" in {check["name"] for check in sections["decisions"]}
    # Neither of them owns the CPU.
    assert not {"toy", "good"} & {check["name"] for check in sections["plugins"]}
    other = json.loads(torchyard("doctor", "--json", "--device", "xpu", site=site).stdout)
    assert [check["status"] for check in other["sections"]["devices"]] == ["unverified"]
    assert not other["sections"]["decisions"]
    refused = torchyard("doctor", "--device", "tpu", site=site)
    assert refused.returncode == 2
    assert "--device: expected one of cpu, cuda, mps, xpu, got 'tpu'" in refused.stderr


def test_doctor_misses_a_contract_only_where_somebody_offers_it(make_registry: Make) -> None:
    manifest = "torchyard_toy/torchyard.toml"
    # Offered and listed for one device alone.
    elsewhere = TOY.files[manifest].replace('["*"]', '["xpu"]').replace('"*" =', '"xpu" =')
    registry = make_registry(replace(TOY, files={**TOY.files, manifest: elsewhere}))
    contract = ContractId.parse("toy/1")
    check = _check_decision(registry, contract, "cpu")
    assert check.status is CheckStatus.UNVERIFIED
    assert check.text == "no plugin implements it for this device"
    assert _check_decision(registry, contract, "xpu").status is CheckStatus.PASS


@pytest.mark.skipif(bool(find_spec("torch")), reason="torch is installed")
def test_doctor_without_torch_verifies_no_device(site: Path) -> None:
    result = torchyard("doctor", "--json", site=site)
    assert result.returncode == 0
    sections = json.loads(result.stdout)["sections"]
    assert sections["torch"] == [
        {
            "name": "torch",
            "status": "unverified",
            "text": "not installed",
            "hint": "install torch to run components",
        }
    ]
    devices = {check["name"]: check["status"] for check in sections["devices"]}
    assert devices["cpu"] == devices["cuda"] == "unverified"


def test_doctor_fails_on_a_torch_that_cannot_be_imported(site: Path) -> None:
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("import sys\nsys.exit('no driver')\n")
    result = torchyard("doctor", "--json", site=site)
    assert result.returncode == 1
    check = json.loads(result.stdout)["sections"]["torch"][0]
    assert check["text"] == "installed, but cannot be imported: SystemExit: no driver"


def test_doctor_finds_settings_that_nobody_reads(site: Path) -> None:
    settings = {
        "TORCHYARD_USES": "x",
        "TORCHYARD_USE": "toi=gone.x",
        "TORCHYARD_PLUGINS": "-nobody",
        "TORCHYARD_GOOD_ISA": "avx2",
    }
    result = torchyard("doctor", "--json", site=site, settings=settings)
    checks = json.loads(result.stdout)["sections"]["settings"]
    texts = {(check["name"], check["text"], check["hint"]) for check in checks}
    assert (
        "TORCHYARD_USES",
        "no such setting; nothing reads it",
        "did you mean TORCHYARD_USE?",
    ) in texts
    found = {(name, text) for name, text, _ in texts}
    assert ("TORCHYARD_USE", "no installed contract 'toi'") in found
    assert ("TORCHYARD_USE or TORCHYARD_ENLIST", "no installed plugin of 'gone.x'") in found
    assert ("TORCHYARD_PLUGINS", "no installed plugin 'nobody'") in found
    assert not any("TORCHYARD_GOOD_ISA" in name for name, _ in found)


def test_doctor_fails_on_a_lock_that_is_not_there(site: Path) -> None:
    settings = {"TORCHYARD_LOCK": str(site / "gone.json")}
    result = torchyard("doctor", "--json", site=site, settings=settings)
    assert result.returncode == 1
    assert "gone.json" in json.loads(result.stdout)["sections"]["settings"][0]["text"]


def test_env_is_complete_and_tells_nobodys_name(site: Path) -> None:
    home = site / "alice"
    home.mkdir()
    settings = {
        "HOME": str(home),
        "USER": "alicesmith",
        "TORCHYARD_LOCK": str(home / "lock.json"),
        "TORCHYARD_SPECIAL": "for alicesmith",
        "OMP_NUM_THREADS": "2",
    }
    text = torchyard("env", site=site, settings=settings)
    assert text.returncode == 0, text.stderr
    result = torchyard("env", "--json", site=site, settings=settings)
    data = json.loads(result.stdout)
    assert data["settings"]["TORCHYARD_LOCK"] == "~/lock.json"
    assert data["settings"]["TORCHYARD_SPECIAL"] == "for <user>"
    assert data["threads"]["OMP_NUM_THREADS"] == "2"
    assert data["distributions"]["torchyard-good"] == "1.0"
    assert data["plugins"]["good"] == "1.0 discovered"
    for output in (text.stdout, result.stdout):
        assert "alicesmith" not in output
        assert str(home) not in output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/House/alice/x", "~/x"),
        ("/House/alice", "~"),
        ("/House/alices/x", "/House/alices/x"),
        ("by alice, malice", "by <user>, malice"),
        ("a b", "a b"),
    ],
)
def test_homes_and_names_are_redacted_and_nothing_else(text: str, expected: str) -> None:
    assert redact({"k": [text, 3]}, "/House/alice", ("alice", "a")) == {"k": [expected, 3]}
