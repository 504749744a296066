"""Levels of evidence: none without a bundle, and what every surface says of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from torchyard import Evidence, EvidenceLevel, MaturityError, evidence_of
from torchyard._features import levels
from torchyard._features.levels import parse_evidence

_ROW = f"""
[[evidence]]
feature = "attention.flex_attention"
device = "cuda"
level = "compiles"
date = "2026-11-25"
tool = "a compiler 1.0"
figures = "30 of 30"
bundle = "docs/certificates/compiled.tgz"
digest = "{"0" * 64}"
"""


def test_levels_are_a_ladder() -> None:
    assert [level.rank for level in EvidenceLevel] == [0, 1, 2, 3, 4]
    assert EvidenceLevel.DECLARED.rank < EvidenceLevel.COMPILES.rank
    assert EvidenceLevel.EMULATED.rank < EvidenceLevel.ON_DEVICE.rank < EvidenceLevel.AT_LIMIT.rank


def test_a_row_says_what_proves_a_feature() -> None:
    [row] = parse_evidence(_ROW)
    assert row.level is EvidenceLevel.COMPILES
    assert (row.feature, row.device, row.figures) == (
        "attention.flex_attention",
        "cuda",
        "30 of 30",
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('level = "compiles"', 'level = "proven"', "level: expected one of declared, compiles"),
        ('level = "compiles"', 'level = "declared"', "what is only declared has no row"),
        ('bundle = "docs/certificates/compiled.tgz"', 'bundle = ""', "a level needs evidence"),
        ('tool = "a compiler 1.0"', "", "tool: expected a str, got nothing"),
        ('figures = "30 of 30"', 'figures = " "', "figures: expected it not empty"),
        ('date = "2026-11-25"', 'date = "yesterday"', "date: expected a day"),
        (f'digest = "{"0" * 64}"', 'digest = "0"', "digest: expected sha256"),
        ('device = "cuda"', 'device = "cuda"\nproof = 1', "proof: unknown key"),
    ],
)
def test_no_level_is_given_without_evidence(old: str, new: str, message: str) -> None:
    assert old in _ROW
    with pytest.raises(MaturityError, match=message):
        parse_evidence(_ROW.replace(old, new))
    with pytest.raises(MaturityError, match="each feature x device once"):
        parse_evidence(_ROW + _ROW)
    with pytest.raises(MaturityError, match="expected TOML"):
        parse_evidence(_ROW + "=")


def test_what_has_no_row_is_declared() -> None:
    assert evidence_of("attention.flex_attention", "xpu") == Evidence(
        "attention.flex_attention", "xpu", EvidenceLevel.DECLARED
    )


def test_every_feature_has_a_level_on_every_device_that_it_names() -> None:
    rows = {(row.feature, row.device): row for row in levels.levels(("cuda",))}
    assert ("attention.flex_attention", "cuda") in rows
    assert ("attention.flex_attention", "simulated") in rows
    # It has a row for the CPU alone.
    assert ("export.runner", "cpu") in rows
    assert ("export.runner", "cuda") not in rows
    for row in levels.evidence():
        assert rows[row.feature, row.device] == row
        assert row.level is not EvidenceLevel.DECLARED


def test_features_show_their_levels(invoke: Callable[..., Result]) -> None:
    words = ("features", "--levels", "--component", "attention", "--device")
    assert "compiles" in invoke(*words, "cuda").stdout
    # Of a device of which no certificate speaks nothing is proven.
    assert "declared" in invoke(*words, "warp").stdout
    rows = json.loads(invoke("features", "--levels", "--json").stdout)
    assert {row["level"] for row in rows} <= {str(level) for level in EvidenceLevel}
    proven = [row for row in rows if row["level"] != "declared"]
    assert all(row["bundle"] and row["digest"] and row["date"] and row["tool"] for row in proven)
    assert "without --stage" in invoke("features", "--levels", "--stage", "beta").output


def test_doctor_says_how_well_a_device_is_proven(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = json.loads(invoke("doctor", "--json").stdout)["sections"]
    found = {check["name"]: check for check in sections["evidence"]}
    assert found["warp"]["status"] == "unverified"
    assert "declared" in found["warp"]["text"]
    assert "torchyard certify" in found["warp"]["hint"]
