"""What observers see of calls, and what a record of decisions writes into a trace."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from packages.core.tests.conftest import Make
from packages.core.tests.registry.warp import ask
from packages.core.tests.toys import GOOD, TOY
from torchyard import Decision, DecisionRecord, Registry, TorchyardError


@pytest.fixture
def known(make_registry: Make) -> Registry:
    return make_registry(TOY, GOOD)


def _call(known: Registry, size: int = 1) -> Any:
    return known.resolve("toy/1", ask(size=size))([1])


def test_an_observer_is_entered_around_each_call(known: Registry) -> None:
    seen: list[str] = []

    @contextmanager
    def observer(decision: Decision) -> Iterator[None]:
        seen.append(f"before {decision.name}")
        yield
        seen.append("after")

    wanted = _call(known)
    with known.observe(observer):
        assert seen == []
        assert _call(known) == wanted
        assert _call(known) == wanted
    assert seen == ["before good.fast", "after"] * 2
    assert _call(known) == wanted
    assert len(seen) == 4


def test_what_was_resolved_before_is_resolved_again(known: Registry) -> None:
    plain, cache = known.resolve("toy/1", ask()), known.decision_cache()
    with known.observe(DecisionRecord()._observe):
        inside = known.resolve("toy/1", ask())
        assert inside is not plain
        # What components stored before would pass the observer by.
        assert known.decision_cache() is not cache
        other = known.decision_cache()
    assert known.resolve("toy/1", ask()) is plain
    assert known.decision_cache() is not other


def test_observers_nest_and_an_error_leaves_none(known: Registry) -> None:
    first, second = DecisionRecord(), DecisionRecord()
    with known.observe(first._observe):
        with known.observe(second._observe):
            _call(known)
        _call(known)
    with pytest.raises(RuntimeError), known.observe(second._observe):
        raise RuntimeError
    _call(known)
    (decision,) = first.decisions
    assert (first.calls(decision), second.calls(decision)) == (2, 1)


def test_what_computes_calls_past_an_implementation_is_hidden(known: Registry) -> None:
    chosen: Any = known.resolve("toy/1", ask())
    chosen.fast_path = chosen.chain = chosen.reads_pages = True
    try:
        with known.observe(DecisionRecord()._observe):
            inside: Any = known.resolve("toy/1", ask())
            assert not hasattr(inside, "fast_path")
            assert not hasattr(inside, "chain")
            assert inside.reads_pages
    finally:
        del chosen.fast_path, chosen.chain, chosen.reads_pages


def _recorded(known: Registry) -> DecisionRecord:
    record = DecisionRecord()
    with known.observe(record._observe):
        for size in (1, 16, 16):
            _call(known, size)
    return record


def test_a_record_counts_calls_and_names_requests_apart(known: Registry) -> None:
    record = _recorded(known)
    small, large = record.decisions
    assert (record.calls(small), record.calls(large)) == (1, 2)
    assert record.label(small) == "torchyard::toy -> good.fast #1"
    assert record.label(large) == "torchyard::toy -> good.fast #2"
    text = record.render()
    assert "good.fast #2: 2 calls" in text
    assert large.render() in text
    other = known.decide("toy/1", ask(size=3))
    assert record.calls(other) == 0
    with pytest.raises(ValueError, match="expected one of this record's 2, got another of toy/1"):
        record.label(other)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_ranges_of_a_trace_get_their_decision(known: Registry, tmp_path: Path, suffix: str) -> None:
    record = _recorded(known)
    _, large = record.decisions
    events = [
        {"ph": "X", "name": record.label(large), "ts": 1, "dur": 2, "args": {"External id": 3}},
        {"ph": "X", "name": "aten::add", "ts": 1, "dur": 1},
    ]
    data = json.dumps({"traceEvents": events, "schemaVersion": 1}).encode()
    trace, out = tmp_path / f"trace{suffix}", tmp_path / f"out{suffix}"
    trace.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    assert record.annotate(trace, out) == 1
    written = out.read_bytes()
    found = json.loads(gzip.decompress(written) if suffix.endswith("gz") else written)
    first, second = found["traceEvents"]
    assert found["schemaVersion"] == 1
    assert second == events[1]
    assert first["args"]["External id"] == 3
    assert first["args"]["torchyard implementation"] == "good.fast"
    assert "size=16" in first["args"]["torchyard request"]
    assert first["args"]["torchyard candidate toy.reference"].startswith("not needed")


def test_a_file_without_ranges_is_refused(known: Registry, tmp_path: Path) -> None:
    record, trace = _recorded(known), tmp_path / "trace.json"
    with pytest.raises(TorchyardError, match="No such file"):
        record.annotate(trace)
    for text, message in (
        ("{", "trace.json"),
        ("[]", "expected a Chrome trace with 'traceEvents'"),
        ('{"traceEvents": []}', "expected ranges of these 2 decisions, found none"),
    ):
        trace.write_text(text, encoding="utf-8")
        with pytest.raises(TorchyardError, match=message):
            record.annotate(trace)
        assert trace.read_text(encoding="utf-8") == text
