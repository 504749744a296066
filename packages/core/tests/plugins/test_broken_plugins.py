"""However a plugin is broken: it says so, and nothing else notices."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from packages.core.tests.broken_plugins import BROKEN, Broken, plugin
from packages.core.tests.distribution import run, torchyard
from packages.core.tests.toys import GOOD, TOY

_EACH = pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.misbehaviour)
_PACKAGES = sorted({broken.distribution.package for broken in BROKEN})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a site folder with the toys and every broken plugin at once."""
    folder = tmp_path_factory.mktemp("site")
    for distribution in (TOY, GOOD, *(broken.distribution for broken in BROKEN)):
        distribution.install(folder)
    return folder


@pytest.fixture(scope="module")
def plugins(site: Path) -> Callable[..., dict[str, dict[str, Any]]]:
    """Return the plugins as the command lists them, by distribution."""

    def listed(*options: str) -> dict[str, dict[str, Any]]:
        result = torchyard("plugins", "--json", *options, site=site)
        assert result.returncode == 0, result.stderr
        return {plugin["distribution"]: plugin for plugin in json.loads(result.stdout)["plugins"]}

    return listed


@pytest.fixture(scope="module")
def activated(plugins: Callable[..., dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return every plugin after everything that it offers was asked for."""
    return plugins("--activate", "-v")


@_EACH
def test_ends_in_its_state_with_a_reason_and_a_remedy(
    broken: Broken, activated: dict[str, dict[str, Any]]
) -> None:
    found = activated[broken.distribution.name]
    assert found["state"] in broken.state.split(" or ")
    assert (found["code"] or "") in broken.code.split(" or ")
    assert broken.text in found["reason"]
    assert broken.hint in found["hint"]
    assert "\n" not in found["reason"]
    assert any(re.search(broken.note, note) for note in found["notes"]) or not broken.note
    assert found["state"] == "failed" or not found["traceback"]


@_EACH
def test_what_the_manifest_can_show_is_shown_without_importing_anything(
    broken: Broken, plugins: Callable[..., dict[str, Any]]
) -> None:
    found = plugins()[broken.distribution.name]
    if broken.imported:
        assert found["state"] == "discovered"
        assert not found["reason"]
    else:
        assert found["state"] in broken.state.split(" or ")
        assert broken.text in found["reason"]


@pytest.mark.parametrize("name", ["torchyard-toy", "torchyard-good"])
def test_good_plugins_still_work(name: str, activated: dict[str, dict[str, Any]]) -> None:
    assert activated[name]["state"] == "active"
    assert not activated[name]["notes"]


def test_a_person_sees_every_reason_and_remedy_too(site: Path) -> None:
    result = torchyard("plugins", "--activate", site=site, settings={"COLUMNS": "400"})
    assert result.returncode == 0, result.stderr
    for broken in BROKEN:
        assert broken.text in result.stdout
        assert broken.hint in result.stdout
        assert re.search(broken.note, result.stdout)
    assert "Traceback" not in result.stdout


def test_decisions_are_made_and_show_the_broken_ones(site: Path) -> None:
    result = torchyard("explain", "toy", "--json", site=site)
    assert result.returncode == 0, result.stderr
    decision = json.loads(result.stdout)
    assert decision["chosen"] == "good.fast"
    trace = {item["name"].partition(".")[0]: item for item in decision["trace"]}
    for broken in BROKEN:
        # Another plugin keeps that name, and its implementation speaks for it.
        if broken.name == "good":
            continue
        item = trace[broken.name]
        if not broken.code:
            assert item["outcome"] == "not listed"
            continue
        assert item["outcome"] == "refused"
        assert item["code"] in broken.code.split(" or ")
        assert broken.text in item["text"]
        assert broken.hint in item["hint"]


def test_a_program_gets_the_good_plugin_and_is_told_nothing_by_the_broken_ones(site: Path) -> None:
    program = """
import torchyard
from torchyard_toy.contract import ToyRequest

print(torchyard.resolve("toy/1", ToyRequest())([1, 2]))
print(torchyard.resolve("toy/1", ToyRequest(dtype="float64"))([1, 2]))
"""
    result = run(["-c", program], site, settings={"TORCHYARD_PLUGINS": "-prints"})
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["[2, 3]", "[2, 3]"]
    assert result.stderr.count("\n") == 1
    assert "toy.reference; skipped good.fast (E_DTYPE: float32 only, got float64)" in result.stderr


def test_discovery_imports_none_of_them_and_costs_each_its_manifest(site: Path) -> None:
    program = f"""
import json, sys
import torchyard
before = set(sys.modules)
torchyard.registry().plugins
print(json.dumps({{
    "imported": sorted(set(sys.modules) & set({[*_PACKAGES, "torchyard_toy", "torchyard_good"]!r})),
    "torch": "torch" in sys.modules,
    "pluggy": "pluggy" in sys.modules,
    "seconds": {{p.name: p.discovery_seconds for p in torchyard.registry().plugins}},
}}))
"""
    runs = [json.loads(run(["-c", program], site).stdout) for _ in range(3)]
    for found in runs:
        assert found["imported"] == []
        assert not found["torch"]
        assert not found["pluggy"]
    # A manifest takes well under a millisecond; the bound only catches an import.
    least = {name: min(found["seconds"][name] for found in runs) for name in runs[0]["seconds"]}
    assert all(seconds < 0.25 for seconds in least.values()), least


def test_torchyard_and_torch_import_as_ever(site: Path) -> None:
    names = ["torchyard", *(["torch"] if find_spec("torch") else [])]
    for name in (names, names[::-1]):
        program = (
            f"import sys, {', '.join(name)}; print(sorted(set(sys.modules) & set({_PACKAGES})))"
        )
        result = run(["-c", program], site)
        assert result.returncode == 0, result.stderr
        assert result.stdout == "[]\n"
        assert result.stderr == ""


def test_doctor_fails_and_names_each_broken_plugin(site: Path) -> None:
    result = torchyard("doctor", "--json", site=site)
    assert result.returncode == 1, result.stderr
    sections = json.loads(result.stdout)["sections"]
    found = [check for check in sections["plugins"] if check["status"] != "pass"]
    # Without torch there is no device to decide for, and so nothing is imported.
    seen = {broken.name for broken in BROKEN if find_spec("torch") or not broken.imported}
    assert seen <= {check["name"] for check in found}
    slot = next(check for check in sections["devices"] if check["name"] == "PrivateUse1 slot")
    assert slot["status"] == "warn"
    assert re.search(r"claimed by .*slot-one, slot-two", slot["text"])


def test_the_slot_goes_to_the_plugin_that_the_user_names(site: Path) -> None:
    result = torchyard(
        "plugins", "--json", site=site, settings={"TORCHYARD_PRIVATEUSE1": "slot-two"}
    )
    found = {plugin["name"]: plugin for plugin in json.loads(result.stdout)["plugins"]}
    assert found["slot-two"]["state"] == "discovered"
    assert found["slot-one"]["code"] == "E_SLOT"
    assert "TORCHYARD_PRIVATEUSE1 gives it to slot-two" in found["slot-one"]["reason"]


def test_each_can_be_switched_off_by_name(site: Path) -> None:
    names = {broken.name for broken in BROKEN} - {"good"}
    blocked = ",".join(f"-{name}" for name in sorted(names))
    result = torchyard(
        "plugins", "--json", "--activate", site=site, settings={"TORCHYARD_PLUGINS": blocked}
    )
    found = {plugin["distribution"]: plugin for plugin in json.loads(result.stdout)["plugins"]}
    for broken in BROKEN:
        if broken.name in names:
            assert found[broken.distribution.name]["code"] == "E_BLOCKED"
    assert found["torchyard-good"]["state"] == "active"


def test_an_entry_point_file_that_nobody_can_read_takes_nothing_with_it(tmp_path: Path) -> None:
    for distribution in (TOY, GOOD):
        distribution.install(tmp_path)
    info = tmp_path / "yard_garbled-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: yard-garbled\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchyard.plugins]\nno equals sign here\n")
    found = json.loads(torchyard("plugins", "--json", site=tmp_path).stdout)["plugins"]
    by_name = {plugin["name"]: plugin for plugin in found}
    assert by_name["good"]["state"] == by_name["toy"]["state"] == "discovered"
    if "yard-garbled" in by_name:
        assert by_name["yard-garbled"]["state"] == "failed"
        assert (
            "entry_points.txt of yard-garbled: cannot be read" in by_name["yard-garbled"]["reason"]
        )


def test_ending_the_process_from_below_is_the_documented_limit(tmp_path: Path) -> None:
    """``os._exit`` cannot be contained; a plugin that is switched off is not imported."""
    for distribution in (TOY, plugin("ends-all", code="import os\n\nos._exit(9)\n")):
        distribution.install(tmp_path)
    assert torchyard("explain", "toy", site=tmp_path).returncode == 9
    off = {"TORCHYARD_PLUGINS": "-ends-all"}
    assert torchyard("explain", "toy", site=tmp_path, settings=off).returncode == 0
    assert torchyard("plugins", site=tmp_path).returncode == 0
