"""Maturity: a table that cannot contradict itself, and warnings that come once."""

from __future__ import annotations

import warnings

import pytest

from torchyard import MaturityError, PrototypeWarning, Stage, features, note_use
from torchyard._features import maturity

_ROW = """
[[feature]]
id = "toy.add"
device = "*"
summary = "adds one"
stage = "beta"
api = "unstable"
since = "0.1.0"
tracking = "docs/toy.md"
"""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a table in place that has a row of every stage."""
    rows = [_ROW]
    for stage in ("prototype", "stable"):
        row = _ROW.replace("toy.add", f"toy.{stage}").replace("beta", stage)
        rows.append(row.replace('"unstable"', '"stable"'))
    for stage in ("deprecated", "removed"):
        row = _ROW.replace("toy.add", f"toy.{stage}").replace("beta", stage)
        rows.append(row + 'remove_in = "0.9"\n')
    rows.append(_ROW.replace('"*"', '"warp"').replace("beta", "prototype"))
    parsed = maturity.parse_features("".join(rows))
    monkeypatch.setattr(maturity, "features", lambda: parsed)
    monkeypatch.setattr(maturity, "_warned", set())


def test_the_table_that_ships_is_sound() -> None:
    rows = features()
    assert {row.id for row in rows} >= {"core.registry", "attention.flex_attention"}
    assert list(rows) == sorted(rows, key=lambda row: (row.id, row.device))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('stage = "beta"', 'stage = "alpha"'), "stage: expected one of prototype, beta, stable"),
        (('api = "unstable"', 'api = "maybe"'), "api: expected 'stable' or 'unstable'"),
        (('stage = "beta"', 'stage = "stable"'), "api: a stable feature has a stable api"),
        (('stage = "beta"', 'stage = "removed"'), "remove_in: expected exactly where"),
        (('since = "0.1.0"', 'since = "0.1.0"\nremove_in = "1"'), "remove_in: expected exactly"),
        (('since = "0.1.0"', ""), "missing keys ['since']"),
        (('tracking = "docs/toy.md"', 'tracking = ""'), "missing keys ['tracking']"),
        (('since = "0.1.0"', "since = 1"), "expected text for every key, got something else for"),
        (('since = "0.1.0"', 'since = "0.1.0"\nowner = "x"'), "unknown keys ['owner']"),
        (("[[feature]]", "[[feature"), "expected TOML"),
        (("[[feature]]", "[[features]]"), "expected [[feature]] rows, found none"),
        (("[[feature]]", "feature = 3\n[other]"), "expected [[feature]] rows, found none"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(change: tuple[str, str], words: str) -> None:
    assert change[0] in _ROW
    with pytest.raises(MaturityError) as caught:
        maturity.parse_features(_ROW.replace(*change))
    assert words in str(caught.value)


def test_a_feature_stands_once_per_device() -> None:
    with pytest.raises(MaturityError, match="each feature x device once"):
        maturity.parse_features(_ROW * 2)


@pytest.mark.usefixtures("table")
def test_a_device_without_a_row_has_the_row_of_any_device() -> None:
    assert maturity.feature("toy.add", "cpu").stage is Stage.BETA
    assert maturity.feature("toy.add", "warp").stage is Stage.PROTOTYPE
    on_warp = {row.id: row.device for row in maturity.features_of("warp")}
    assert on_warp["toy.add"] == "warp"
    assert on_warp["toy.stable"] == "*"


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("identifier", "device", "kind", "words"),
    [
        ("toy.add", "warp", PrototypeWarning, "toy.add on warp is a prototype: adds one"),
        ("toy.deprecated", "cpu", FutureWarning, "is deprecated and goes in 0.9"),
    ],
)
def test_first_use_warns_once(
    identifier: str, device: str, kind: type[Warning], words: str
) -> None:
    with pytest.warns(kind, match=words):
        note_use(identifier, device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        note_use(identifier, device)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("identifier", ["toy.add", "toy.stable"])
def test_beta_and_stable_features_do_not_warn(identifier: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        note_use(identifier, "cpu")


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("identifier", "words"),
    [("toy.removed", "was removed in 0.9"), ("toy.gone", "not in the table")],
)
def test_what_is_gone_raises_every_time(identifier: str, words: str) -> None:
    for _ in range(2):
        with pytest.raises(MaturityError, match=words):
            note_use(identifier, "cpu")
