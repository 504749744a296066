"""``--platform`` and ``env --platform-out``: deciding as another machine would."""

from __future__ import annotations

import json
from pathlib import Path

from packages.core.tests.distribution import torchyard
from torchyard import read_platform_file
from torchyard._platforms.files import Origin

_MACHINE = """
schema = 1
name = "warped"
summary = "a machine with warps"
[host]
system = "Linux"
machine = "x86_64"
cpu_cores = 1
python = "3.12.1"
torch = "2.13.0"
devices = ["cpu", "warp"]
[[accelerators]]
device = "warp"
name = "a warp"
"""


def _machine(folder: Path) -> Path:
    path = folder / "warped.toml"
    path.write_text(_MACHINE)
    return path


def test_explain_decides_for_the_accelerator_of_the_machine(site: Path, tmp_path: Path) -> None:
    path = _machine(tmp_path)
    result = torchyard("explain", "toy", "--platform", str(path), "--json", site=site)
    data = json.loads(result.stdout)
    assert data["platform"] == {"name": "warped", "summary": "a machine with warps"}
    assert data["request"]["device"] == "warp"
    result = torchyard("explain", "toy", "--platform", str(path), "--device", "cpu", site=site)
    assert "platform warped: a machine with warps; facts: 4 without a source" in result.stdout
    assert "toy/1 on cpu" in result.stdout


def test_explain_says_how_sure_the_facts_are(site: Path) -> None:
    result = torchyard("explain", "toy", "--platform", "h100", site=site)
    assert "platform h100: NVIDIA H100 SXM5 80 GB; facts: " in result.stdout
    assert "compared" in result.stdout
    assert "recalled" in result.stdout


def test_an_unknown_machine_is_one_line(site: Path) -> None:
    result = torchyard("explain", "toy", "--platform", "h1000", site=site)
    assert result.returncode == 2
    assert result.stderr.startswith("Error: platform 'h1000': expected one of a100, ")


def test_dump_is_of_the_machine(site: Path, tmp_path: Path) -> None:
    result = torchyard("decisions", "dump", "--platform", str(_machine(tmp_path)), site=site)
    data = json.loads(result.stdout)
    assert data["made_with"]["accelerator warp"] == "a warp"
    assert {bucket.split()[0] for bucket in data["decisions"]["toy/1"]} == {"cpu", "warp"}


def test_env_writes_this_machine_and_explain_reads_it(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "My machine.toml"
    result = torchyard("env", "--platform-out", str(path), "--json", site=site)
    assert result.returncode == 0, result.stderr
    json.loads(result.stdout)
    file = read_platform_file(path)
    assert file.name == "my-machine"
    assert {source.origin for source in file.sources} == {Origin.MEASURED}
    assert not file.without_source()
    assert torchyard("explain", "toy", "--platform", str(path), site=site).returncode == 0
    refused = torchyard("env", "--platform-out", str(tmp_path / "none" / "x.toml"), site=site)
    assert refused.returncode == 2
    assert "cannot be written" in refused.stderr
