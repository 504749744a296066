"""Entries stay within their budget, and leave in their policy's order."""

from __future__ import annotations

import random
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard_cache._reuse._eviction import POLICIES, Entries

_FOREVER = float("inf")


def _entries(policy: str, budget: int, ttl: float = _FOREVER) -> Entries[int]:
    return Entries(budget, POLICIES[policy], ttl)


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("lru", {"b", "c", "new"}),
        ("slru", {"a", "c", "new"}),
        ("lfu", {"a", "c", "new"}),
        ("gdsf", {"a", "c", "new"}),
    ],
)
def test_each_policy_drops_its_own(policy: str, kept: set[str]) -> None:
    entries = _entries(policy, 3)
    for key in "abc":
        entries.put(key, 0, 1, 1.0)
    entries.get("a")
    entries.get("c")
    entries.get("a")
    # b was used last, once and long after the others.
    if policy == "lru":
        entries.get("b")
        entries.get("c")
    entries.put("new", 0, 1, 1.0)
    assert {key for key in ("a", "b", "c", "new") if key in entries} == kept


def test_gdsf_keeps_what_costs_much_and_is_small() -> None:
    entries = _entries("gdsf", 100)
    entries.put("cheap", 0, 40, 1.0)
    entries.put("large", 0, 55, 2.0)
    entries.put("dear", 0, 5, 9.0)
    entries.put("next", 0, 40, 1.0)
    assert "dear" in entries
    assert "cheap" not in entries


def test_what_is_never_used_again_leaves_at_last_however_dear_it_was() -> None:
    entries = _entries("gdsf", 10)
    entries.put("dear", 0, 1, 5.0)
    for number in range(200):
        entries.put(str(number), 0, 1, 1.0)
    assert "dear" not in entries


def test_an_entry_that_others_need_or_that_is_read_stays() -> None:
    entries = _entries("lru", 3)
    entries.put("parent", 0, 1, 1.0)
    entries.put("child", 0, 1, 1.0, "parent")
    entries.put("grandchild", 0, 1, 1.0, "child")
    with entries.leased(["grandchild"]):
        assert not entries.put("new", 0, 1, 1.0)
    assert entries.put("new", 0, 1, 1.0)
    assert "grandchild" not in entries
    assert entries.put("other", 0, 1, 1.0)
    assert "child" not in entries
    assert "parent" in entries
    assert not entries.put("orphan", 0, 1, 1.0, "child")
    assert not entries.put("too large", 0, 4, 1.0)
    assert entries.drop("parent") == 1


def test_a_chain_longer_than_the_stack_of_python_is_dropped() -> None:
    entries = _entries("lru", 5_000)
    for number in range(5_000):
        entries.put(str(number), 0, 1, 1.0, str(number - 1) if number else "")
    assert entries.drop("10") == 4_990
    assert entries.bytes == len(entries) == 10


def test_what_is_evicted_is_read_and_needed_by_nobody() -> None:
    entries = _entries("lru", 10)
    for key, parent in (("a", ""), ("b", "a"), ("c", "")):
        entries.put(key, 0, 1, 1.0, parent)
    with entries.leased(["b"]):
        assert entries.evict()
        assert "c" not in entries
        assert not entries.evict()
    assert entries.evict()
    assert entries.evict()
    assert not entries.evict()
    assert entries.evictions == 3


def test_an_entry_expires() -> None:
    entries = _entries("lru", 10, ttl=0.01)
    entries.put("a", 0, 1, 1.0)
    time.sleep(0.02)
    assert entries.get("a") is None
    assert entries.bytes == 0


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "get", "drop", "lease"]), st.integers(0, 12), st.integers(1, 9)
    ),
    max_size=80,
)


@settings(max_examples=100, deadline=None)
@given(steps=_STEPS, policy=st.sampled_from(sorted(POLICIES)))
def test_after_any_steps_the_counts_hold(steps: list[tuple[str, int, int]], policy: str) -> None:
    entries = _entries(policy, 20)
    for step, number, size in steps:
        key, parent = str(number), str(number - 1) if number % 3 else ""
        if step == "put":
            entries.put(key, number, size, 1.0, parent)
        elif step == "get":
            found = entries.get(key)
            assert found is None or found.value == number
        elif step == "drop":
            entries.drop(key)
        else:
            with entries.leased([key]):
                was = key in entries
                entries.put("x", 0, size, 1.0)
                assert (key in entries) == was
        held = list(entries._entries.values())
        assert entries.bytes == sum(entry.use.size for entry in held) <= 20
        for entry in held:
            assert not entry.parent or entry.parent in entries
            assert entry.children == {other.key for other in held if other.parent == entry.key}


def test_ten_thousand_operations_by_threads_stay_within_the_budget() -> None:
    entries = _entries("gdsf", 500)
    worst = []

    def run(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(2_500):
            key = str(chosen.randrange(300))
            if chosen.random() < 0.5:
                entries.put(key, 0, chosen.randrange(1, 20), chosen.random())
            else:
                with entries.leased([key]):
                    entries.get(key)
            worst.append(entries.bytes)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 10_000
    assert max(worst) <= 500
    assert entries.bytes == sum(entry.use.size for entry in entries._entries.values())


def test_old_places_do_not_gather() -> None:
    entries = _entries("lru", 10)
    for number in range(10):
        entries.put(str(number), 0, 1, 1.0)
    for number in range(20_000):
        entries.get(str(number % 10))
    assert len(entries._heap) < 200
