"""torchyard doctor --measure: shares of what a device can do, and what cannot be told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packages.core.tests.distribution import Distribution, torchyard
from torchyard import ManifestError
from torchyard._plugins.manifest import parse_manifest

# Its limit is a byte per second, which any call of this world exceeds, and 1e12 operations.
ABACUS = Distribution(
    "torchyard-abacus",
    "abacus",
    "torchyard_abacus",
    {
        "torchyard_abacus/torchyard.toml": """
            schema = 1
            name = "abacus"
            summary = "counts beads"
            [requires]
            torchyard = ">=0.1.0.dev0"
            [[devices]]
            name = "abacus"
            [measure]
            limits = "torchyard_abacus.limits"
            workloads = "torchyard_abacus.workloads"
        """,
        "torchyard_abacus/limits.py": """
            from torchyard import SpeedLimits, hookimpl

            turns = []


            @hookimpl
            def torchyard_speed_limits(device):
                turns.append(device)
                return SpeedLimits({"read": 1.0 * GROWTH ** len(turns), "beads": 1e12}, "polish it")


            GROWTH = 1.0
        """,
        "torchyard_abacus/workloads.py": """
            import time

            from torchyard import Workload, hookimpl


            def slow():
                return lambda: time.sleep(0.05)


            def broken():
                raise RuntimeError("a bead is missing")


            @hookimpl
            def torchyard_workloads(device):
                return [
                    Workload("add", ("absent", "read"), 1e9, lambda: lambda: None),
                    Workload("divide", ("beads",), 1.0, slow),
                    Workload("break", ("beads",), 1.0, broken),
                    Workload("multiply", ("float32",), 1.0, slow),
                ]
        """,
    },
)


def _measured(site: Path, device: str = "abacus") -> dict[str, dict[str, Any]]:
    result = torchyard("doctor", "--json", "--measure", device, site=site)
    sections = json.loads(result.stdout)["sections"]
    title = f"speed on {device}, as a share of its limits"
    return {check["name"]: check for check in sections[title]}


@pytest.mark.sweep
def test_each_workload_is_a_share_of_the_limit_that_bounds_it(tmp_path: Path) -> None:
    ABACUS.install(tmp_path)
    found = _measured(tmp_path)
    assert found["limits of abacus"]["text"] == "read 0 G/s, beads 1,000 G/s"
    assert found["add"]["status"] == "pass"
    assert found["divide"]["status"] == "warn"
    assert found["divide"]["text"].endswith("under 80%")
    assert found["divide"]["hint"] == "`polish it` searches faster settings"
    assert found["limits, measured again"]["status"] == "pass"


@pytest.mark.sweep
def test_what_cannot_be_measured_is_no_pass(tmp_path: Path) -> None:
    ABACUS.install(tmp_path)
    found = _measured(tmp_path)
    assert found["break"]["status"] == "fail"
    assert found["break"]["text"] == "RuntimeError: a bead is missing"
    assert found["multiply"]["status"] == "unverified"
    assert found["multiply"]["text"] == "the device gives no limit of float32"


@pytest.mark.sweep
def test_limits_that_move_make_the_shares_unreliable(tmp_path: Path) -> None:
    limits = "torchyard_abacus/limits.py"
    moving = ABACUS.files[limits].replace("GROWTH = 1.0", "GROWTH = 0.5")
    replace(ABACUS, files={**ABACUS.files, limits: moving}).install(tmp_path)
    check = _measured(tmp_path)["limits, measured again"]
    assert check["status"] == "warn"
    assert check["text"].startswith("at most 50% away (read): something else used the machine")


def test_a_device_without_limits_is_unverified(tmp_path: Path) -> None:
    ABACUS.install(tmp_path)
    (check,) = _measured(tmp_path, "warp").values()
    assert check["status"] == "unverified"
    assert check["text"] == "no usable plugin measures what warp can do"


def test_nothing_is_measured_unasked(tmp_path: Path) -> None:
    ABACUS.install(tmp_path)
    sections = json.loads(torchyard("doctor", "--json", site=tmp_path).stdout)["sections"]
    assert not [title for title in sections if title.startswith("speed")]


def test_an_unknown_key_of_measure_is_refused() -> None:
    text = (
        'schema = 1\nname = "yard"\nsummary = ""\n[requires]\ntorchyard = ">=0.1"\n'
        '[measure]\nworkloads = "yard.work"\nlimit = "yard.limits"\n'
    )
    with pytest.raises(ManifestError, match=r"measure\.limit: unknown key"):
        parse_manifest(text, expected_name="yard")
