"""Files of decisions: written, read back, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packages.core.tests.broken_plugins import plugin
from packages.core.tests.conftest import Make
from packages.core.tests.toys import GOOD, TOY
from torchyard import DecisionChange, DecisionDump, LockError, diff_dumps, read_dump
from torchyard._registry.dump import dump_decisions

_DECISIONS = st.dictionaries(
    st.sampled_from(["toy/1", "toy/2", "other/1"]),
    st.dictionaries(
        st.text(min_size=1, max_size=5), st.none() | st.sampled_from(["a.x", "b.y"]), max_size=4
    ),
    max_size=3,
)


@given(_DECISIONS, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, decisions: Any, made_with: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("dump") / "dump.json"
    dump = DecisionDump(made_with, decisions)
    path.write_text(json.dumps(dump.to_json()), encoding="utf-8")
    assert read_dump(path) == dump
    assert diff_dumps(read_dump(path), dump) == ()


@given(_DECISIONS, _DECISIONS)
def test_a_comparison_read_backwards_says_the_opposite(old: Any, new: Any) -> None:
    opposite = {"added": "removed", "removed": "added", "changed": "changed"}
    forth = diff_dumps(DecisionDump({}, old), DecisionDump({}, new))
    back = diff_dumps(DecisionDump({}, new), DecisionDump({}, old))
    assert [
        DecisionChange(
            change.contract, change.bucket, change.new, change.old, opposite[change.kind]
        )
        for change in forth
    ] == list(back)


def test_every_kind_of_change_is_found() -> None:
    old = DecisionDump({}, {"toy/1": {"same": "a.x", "other": "a.x", "gone": None}})
    new = DecisionDump({}, {"toy/1": {"same": "a.x", "other": None, "come": "a.x"}})
    assert diff_dumps(old, new) == (
        DecisionChange("toy/1", "come", None, "a.x", "added"),
        DecisionChange("toy/1", "gone", None, None, "removed"),
        DecisionChange("toy/1", "other", "a.x", None, "changed"),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected a file made by `torchyard decisions dump`"),
        ("[]", "expected decisions of schema 1, got 'list'"),
        ('{"schema": 2}', "expected decisions of schema 1, got 2"),
        ('{"schema": 1}', "expected 'made_with'"),
        (
            '{"schema": 1, "made_with": {}, "decisions": {"toy/1": {"b": 1}}}',
            "expected 'made_with'",
        ),
        ("[" * 100000, "expected a file made by `torchyard decisions dump`"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "dump.json"
    path.write_text(text)
    with pytest.raises(LockError) as caught:
        read_dump(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LockError, match=r"gone\.json: expected a file made by"):
        read_dump(tmp_path / "gone.json")


def test_a_dump_holds_every_case_of_every_device(make_registry: Make) -> None:
    dump = dump_decisions(make_registry(TOY, GOOD), ["warp", "cpu"])
    assert dump.decisions == {
        "toy/1": {
            "cpu float32 large": "good.fast",
            "cpu float32 small": "good.fast",
            "cpu float64 large": "toy.reference",
            "cpu float64 small": "toy.reference",
            "warp float32 large": "toy.reference",
            "warp float32 small": "toy.reference",
            "warp float64 large": "toy.reference",
            "warp float64 small": "toy.reference",
        }
    }
    assert dump.made_with["torch"] == "2.13.0"
    assert dump.made_with["plugin good"] == "1.0"


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        ("lambda device: 1 / 0", "cases('cpu') raised ZeroDivisionError"),
        ("lambda device: map(ToyRequest, ['float32', 'float64'])", "bucket() must tell them apart"),
    ],
)
def test_a_component_whose_cases_are_broken_is_named(
    make_registry: Make, cases: str, words: str
) -> None:
    code = f"""
from dataclasses import dataclass
from torchyard import ContractDefinition

@dataclass(frozen=True)
class ToyRequest:
    dtype: str
    device: str = "cpu"
    def bucket(self): return "all"

DEFINITIONS = {{"toy/1": ContractDefinition("toy/1", "", (), dict, {cases})}}
"""
    manifest = """
[[defines]]
contract = "toy/1"
module = "{package}.toy"
[order."toy/1"]
"*" = ["good.fast"]
"""
    toy = plugin("toy", manifest=manifest, code=code)
    with pytest.raises(LockError) as caught:
        dump_decisions(make_registry(toy, GOOD), ["cpu"])
    assert words in str(caught.value)
