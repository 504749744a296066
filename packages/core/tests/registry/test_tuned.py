"""Measured decisions: wishes that are kept for a machine and its versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from packages.core.tests.conftest import Make
from packages.core.tests.toys import GOOD, TOY
from torchyard import (
    Implementation,
    MeasuredFile,
    Platform,
    Policy,
    ReasonCode,
    Registry,
    Source,
    UnknownContractError,
    Verdict,
    decide,
    decision_digest,
    digest_of,
    use,
)
from torchyard._contracts.contract import ContractId
from torchyard._registry.policy import Use
from torchyard._registry.tuned import TunedDecisions

from .resolving import Ask

_MACHINE = Platform("Linux", "x86_64", frozenset({"avx2"}), 4, "3.11", "2.13.0", frozenset({"cpu"}))
_TOY = ContractId("toy", 1)
_REFUSES = Verdict.no(ReasonCode.DTYPE, "float32 only")


def _offer(name: str, verdict: Verdict | None = None) -> Implementation:
    answer = Verdict.yes() if verdict is None else verdict
    return Implementation("toy/1", name, lambda request, platform: answer, lambda: print)


def _decide(policy: Policy, *offers: Implementation):
    return decide("toy/1", Ask(), _MACHINE, offers, ("a.x", "b.y"), policy=policy)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of measured decisions in this test."""
    file = tmp_path / "folder" / "tuned.json"
    monkeypatch.setattr("torchyard._registry.tuned.tuned_path", lambda: file)
    return file


def test_a_measured_choice_comes_before_the_lists_and_behind_every_demand():
    offers = _offer("a.x"), _offer("b.y"), _offer("c.z")
    wish = (("cpu", "c.z"),)
    found = _decide(Policy(tuned=wish), *offers)
    assert (found.name, found.source) == ("c.z", Source.TUNED)
    assert "decided by tuned" in found.render()
    assert _decide(Policy(tuned=(("other", "c.z"),)), *offers).source is Source.ORDER
    assert _decide(Policy(tuned=wish, locked=(("cpu", "b.y"),)), *offers).source is Source.LOCK
    demand = Use("b.y", Source.ARGUMENT)
    assert _decide(Policy(tuned=wish, use=demand), *offers).name == "b.y"


def test_a_measured_choice_that_refuses_or_is_gone_leaves_it_to_the_lists():
    for others in ((_offer("c.z", _REFUSES),), ()):
        found = _decide(Policy(tuned=(("cpu", "c.z"),)), _offer("a.x"), *others)
        assert (found.name, found.source) == ("a.x", Source.ORDER)


def test_decisions_are_kept_for_the_machine_and_the_versions(path: Path):
    kept = TunedDecisions(_MACHINE, ())
    assert kept.of(_TOY) == ()
    assert kept.record(_TOY, "cpu", "c.z", {"threads": 2}) == path
    kept.record(_TOY, "cpu big", "b.y", {})
    assert sorted(TunedDecisions(_MACHINE, ()).of(_TOY)) == [("cpu", "c.z"), ("cpu big", "b.y")]
    assert TunedDecisions(_MACHINE, ()).of(ContractId("toy", 2)) == ()
    # Other devices may be seen once torch is imported; another torch is another machine.
    for change, count in (({"devices": frozenset()}, 2), ({"torch": "2.13.0+cpu"}, 2)):
        assert len(TunedDecisions(_changed(**change), ()).of(_TOY)) == count
    for change in ({"torch": "2.14.0"}, {"cpu_cores": 8}, {"cpu_features": frozenset()}):
        assert TunedDecisions(_changed(**change), ()).of(_TOY) == ()


def _changed(**changes: object) -> Platform:
    values = {name: getattr(_MACHINE, name) for name in Platform.__slots__}
    return Platform(**{**values, **changes})


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 2}', '{"schema": 1, "machines": []}'])
def test_a_file_that_is_none_is_told_and_left_alone(path: Path, content: str):
    path.parent.mkdir()
    path.write_text(content)
    with pytest.warns(UserWarning, match=r"tuned\.json: not used"):
        assert TunedDecisions(_MACHINE, ()).of(_TOY) == ()
    with pytest.raises((ValueError, TypeError, KeyError)):
        MeasuredFile(path).merge("m", {"a": 1})
    assert path.read_text() == content


_WRITER = """
import sys
from pathlib import Path
from torchyard import MeasuredFile
file = MeasuredFile(Path(sys.argv[1]))
for i in range(10):
    file.merge(sys.argv[2], {f"{sys.argv[3]} {i}": {"implementation": "a.x"}})
"""


def test_processes_that_write_at_once_lose_nothing(path: Path):
    given = [("m", "one"), ("m", "two"), ("n", "three")]
    running = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), machine, name])
        for machine, name in given
    ]
    assert [process.wait(timeout=300) for process in running] == [0, 0, 0]
    assert len(MeasuredFile(path).read("m")) == 20
    assert len(MeasuredFile(path).read("n")) == 10
    assert json.loads(path.read_text())["schema"] == 1
    assert [
        item.name for item in path.parent.iterdir() if item.suffix not in (".json", ".lock")
    ] == []


def test_a_digest_tells_words_apart():
    assert digest_of(["a", "b"]) == digest_of(("a", "b")) != digest_of(["b", "a"])


def test_a_registry_of_another_machine_keeps_nothing_and_reads_nothing(make_registry, path: Path):
    registry = make_registry()
    with pytest.raises(ValueError, match="expected this machine's registry"):
        registry.record_fastest("toy/1", Ask(), "c.z", {})
    assert not path.exists()


@pytest.fixture
def toys(path: Path, make_registry: Make, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Return the registry of this process for a test: that of the toys, on this machine."""
    made = make_registry(TOY, GOOD, platform=None, environ=os.environ)
    monkeypatch.setattr("torchyard._registry.registry._process", [made])
    return made


def test_the_digest_of_decisions_is_another_where_they_may_be(
    toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = decision_digest("toy/1")
    assert decision_digest("toy/1") == before
    found = {before}
    with use(toy="some.other"):
        found.add(decision_digest("toy/1"))
    for name, value in (("ENLIST", "a.x"), ("USE", "toy/1=some.thing"), ("TUNED", "off")):
        monkeypatch.setenv(f"TORCHYARD_{name}", value)
        found.add(decision_digest("toy/1"))
        monkeypatch.delenv(f"TORCHYARD_{name}")
    assert decision_digest("toy/1") == before
    toys.record_fastest("toy/1", Ask(), "some.thing", {})
    found.add(decision_digest("toy/1"))
    assert len(found) == 6


def test_the_digest_of_an_unknown_contract_is_refused(toys: Registry) -> None:
    with pytest.raises(UnknownContractError, match="nobody/1"):
        decision_digest("nobody/1")
