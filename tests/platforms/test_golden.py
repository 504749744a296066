"""What each machine that a file describes would decide is what its golden file holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.platforms.dumps import FOLDER, NAMES, current, decisions_of, flips, golden
from torchyard import read_platform_file

# Machine -> why no fact of it decides anything yet.
_ON_REQUEST = "Metal kernels are on request alone: torch's compositions compute"
_WITHOUT = dict.fromkeys(("m1", "m2", "m3", "m4", "m5"), _ON_REQUEST)
_QUICK = ("cpu-avx2", "h100", "m4", "mi300x")
# Each takes as long as deciding everything again for each fact of its machine.
_LONG = [pytest.param(name, marks=[] if name in _QUICK else [pytest.mark.sweep]) for name in NAMES]


@pytest.mark.parametrize("name", _LONG)
def test_decisions_are_the_golden_ones(name: str) -> None:
    held = golden(name).read_text(encoding="utf-8")
    assert current(name) == held, "if the change is wanted: python -m tests.platforms"


def test_each_golden_file_is_of_a_machine() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(NAMES)
    assert len(NAMES) >= 12


@pytest.mark.parametrize("name", _LONG)
def test_one_fact_changes_a_decision(name: str) -> None:
    platform = read_platform_file(name).platform
    before = decisions_of(platform)
    changed = [fact for fact, other in flips(platform) if decisions_of(other) != before]
    assert bool(changed) == (name not in _WITHOUT), changed


def test_golden_files_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.txt")}
    assert max(sizes.values()) < 16_000, sizes


def test_a_platform_that_is_written_reads_back(tmp_path: Path) -> None:
    for name in NAMES:
        file = read_platform_file(name)
        path = tmp_path / f"{name}.toml"
        path.write_text(file.to_toml(), encoding="utf-8")
        assert read_platform_file(path) == file
        assert decisions_of(read_platform_file(path).platform) == decisions_of(file.platform)
