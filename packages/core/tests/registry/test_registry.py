"""The registry: decisions that are kept, forgotten, told and shared between threads."""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchyard
from packages.core.tests.broken_plugins import plugin
from packages.core.tests.conftest import Make
from packages.core.tests.registry.warp import LISTED, ask, offer, warp
from packages.core.tests.toys import GOOD, TOY
from torchyard import (
    Accelerator,
    ContractId,
    Platform,
    Registry,
    UnknownContractError,
    UnsupportedError,
    round_size,
)


def test_a_plugin_is_imported_only_for_what_it_implements(make_registry: Make) -> None:
    registry = make_registry(TOY, GOOD)
    importlib.import_module("torchyard_toy.contract")
    registry.decide("toy/1", ask(device="warp"))
    assert "torchyard_good" not in sys.modules
    registry.decide("toy/1", ask())
    assert "torchyard_good.toy" in sys.modules


def test_the_owner_of_a_device_orders_before_the_component(make_registry: Make) -> None:
    registry = make_registry(TOY, GOOD, warp(offer()))
    contract = ContractId("toy", 1)
    assert registry.order(contract, "warp") == ("warp.add", "good.fast", "toy.reference")
    assert registry.order(contract, "cpu") == ("good.fast", "toy.reference")
    assert registry.order(ContractId("other", 1), "cpu") == ()
    assert registry.decide("toy/1", ask(device="warp")).name == "warp.add"


@pytest.mark.parametrize(
    ("architecture", "first"), [("w_9", "warp.other"), ("w_8", "warp.add"), ("", "warp.add")]
)
def test_an_architecture_may_have_a_list_of_its_own(
    make_registry: Make, machine: Platform, architecture: str, first: str
) -> None:
    manifest = LISTED + '"warp:w_9" = ["warp.other", "warp.add"]\n'
    found = Accelerator("warp", architecture, "Warp")
    platform = dataclasses.replace(machine, accelerators=(found,))
    registry = make_registry(TOY, GOOD, warp(offer(), manifest), platform=platform)
    contract = ContractId("toy", 1)
    assert registry.order(contract, "warp")[0] == first
    assert registry.order(contract, "cpu") == ("good.fast", "toy.reference")


def test_installing_a_plugin_changes_no_choice(make_registry: Make) -> None:
    registry = make_registry(TOY, plugin("newcomer"))
    decision = registry.decide("toy/1", ask())
    assert decision.name == "toy.reference"
    assert ("newcomer.add", "not listed") in [
        (candidate.name, str(candidate.outcome)) for candidate in decision.trace
    ]


def test_the_same_request_has_one_decision(make_registry: Make) -> None:
    registry = make_registry(TOY, warp(offer()))
    first = registry.decide("toy/1", ask(device="warp"))
    assert registry.decide("toy/1", ask(device="warp")) is first
    assert registry.decide(ContractId("toy", 1), ask(device="warp")) is first
    assert registry.decide("toy/1", ask(device="warp", size=2)) is not first
    assert sys.modules["yard_warp.toy"].calls == ["toy/1"]


def test_the_same_implementation_is_loaded_once(make_registry: Make) -> None:
    registry = make_registry(TOY)
    first = registry.resolve("toy/1", ask())
    assert first([1]) == [2]
    assert registry.resolve("toy/1", ask(size=9)) is first


def test_memory_is_bounded(make_registry: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchyard._registry.registry._KEPT_DECISIONS", 8)
    registry = make_registry(TOY)
    for size in range(100):
        registry.resolve("toy/1", ask(size=size))
    assert len(registry._decisions) <= 8
    assert len(registry._resolved) <= 8


# What is given, and the process's own, which is looked at as little as can be.
environments = pytest.mark.parametrize("environ", [os.environ, None], ids=["given", "own"])


@environments
def test_a_decision_cache_lasts_as_long_as_what_decides(
    make_registry: Make, monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str] | None
) -> None:
    for name in ("TORCHYARD_USE", "TORCHYARD_ENLIST", "TORCHYARD_LOCK"):
        monkeypatch.delenv(name, raising=False)
    registry = make_registry(TOY, GOOD)
    registry._environ = environ
    first = registry.decision_cache()
    first["mine"] = 1
    registry.resolve("toy/1", ask())
    assert registry.decision_cache() is first
    for name in ("TORCHYARD_USE", "TORCHYARD_ENLIST", "TORCHYARD_LOCK"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "toy=toy.reference")
            assert registry.decision_cache() == {}
        assert registry.decision_cache() is first
    with torchyard.use(toy="toy.reference"):
        assert registry.decision_cache() == {}
        with torchyard.use(toy_v1="good.fast"):
            registry.decision_cache()["mine"] = 2
        assert registry.decision_cache() == {}
    assert registry.decision_cache() is first


@environments
def test_a_decision_cache_does_not_outlive_a_plugin(
    make_registry: Make, environ: Mapping[str, str] | None
) -> None:
    registry = make_registry(TOY, warp(offer(load="lambda: 1 / 0")))
    registry._environ = environ
    registry.decision_cache()["mine"] = 1
    registry.resolve("toy/1", ask(device="warp"))
    assert registry.decision_cache() == {}


def test_a_decision_cache_does_not_outlive_what_torch_reported(
    make_registry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = make_registry(TOY, platform=None)
    registry.decision_cache()["mine"] = 1
    monkeypatch.setattr(registry, "_saw_torch", False)
    monkeypatch.setattr("torchyard._registry.registry.imported_torch", lambda: sys)
    monkeypatch.setattr("torchyard._plugins.catalog.privateuse1_name", lambda: None)
    monkeypatch.setattr("torchyard._plugins.catalog.probe_platform", lambda: registry._platform)
    assert registry.decision_cache() == {}


def test_decision_caches_of_endless_settings_are_bounded(
    make_registry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = make_registry(TOY, environ=os.environ)
    for number in range(1000):
        monkeypatch.setenv("TORCHYARD_LOCK", str(number))
        registry.decision_cache()["mine"] = number
    assert len(registry._decision_caches) <= 64


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ("lambda: 1 / 0", "load() of warp.add: ZeroDivisionError: division by zero"),
        ("lambda: 'no callable'", "load() of warp.add: expected a callable, got str"),
        ("lambda: exit(3)", "load() of warp.add: SystemExit: 3"),
    ],
)
def test_an_implementation_that_cannot_be_loaded_is_gone_without_and_said(
    make_registry: Make, caplog: pytest.LogCaptureFixture, load: str, words: str
) -> None:
    registry = make_registry(TOY, warp(offer(load=load)))
    assert registry.decide("toy/1", ask(device="warp")).name == "warp.add"
    assert registry.resolve("toy/1", ask(device="warp"))([1]) == [2]
    assert str(registry.plugin("warp").state) == "failed"
    assert registry.plugin("warp").reason.startswith(words)
    assert words in caplog.text
    decision = registry.decide("toy/1", ask(device="warp"))
    skipped = decision.skipped()[0]
    assert (skipped.name, skipped.verdict.code) == ("warp.add", "E_PLUGIN")


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ("lambda: __import__('gone_for_good')", "No module named 'gone_for_good'"),
        ("lambda: __import__('json', fromlist=['x']) and _raised()", "libgone.so is missing"),
    ],
)
def test_a_library_that_cannot_be_imported_costs_the_implementation_that_needs_it(
    make_registry: Make, caplog: pytest.LogCaptureFixture, load: str, words: str
) -> None:
    code = offer(load=load) + "\n\ndef _raised():\n    raise ImportError('libgone.so is missing')\n"
    registry = make_registry(TOY, warp(code))
    assert registry.resolve("toy/1", ask(device="warp"))([1]) == [2]

    assert str(registry.plugin("warp").state) == "active"
    assert words in registry.plugin("warp").notes[-1]
    assert words in caplog.text
    skipped = registry.decide("toy/1", ask(device="warp")).skipped()[0]
    assert (skipped.name, skipped.verdict.code) == ("warp.add", "E_DEPENDENCY")
    assert ("gone_for_good" in skipped.verdict.hint) is ("gone_for_good" in load)
    with pytest.raises(UnsupportedError, match=f"E_DEPENDENCY.*{words}"):
        registry.resolve("toy/1", ask(device="warp"), use="warp.add")


def test_a_module_of_its_own_that_cannot_be_imported_is_the_plugins_fault(
    make_registry: Make,
) -> None:
    registry = make_registry(TOY, warp(offer(load="lambda: __import__(__package__ + '.gone')")))
    registry.resolve("toy/1", ask(device="warp"))
    assert str(registry.plugin("warp").state) == "failed"


def test_a_demand_for_what_cannot_be_loaded_is_the_error(make_registry: Make) -> None:
    registry = make_registry(TOY, warp(offer(load="lambda: 1 / 0")))
    with pytest.raises(UnsupportedError, match="ZeroDivisionError: division by zero"):
        registry.resolve("toy/1", ask(device="warp"), use="warp.add")


def test_decisions_do_not_outlive_the_plugin_that_they_chose(make_registry: Make) -> None:
    manifest = LISTED.replace('name = "warp"', 'name = "warp"\nmodule = "{package}.toy"', 1)
    registry = make_registry(TOY, warp(offer(), manifest))
    assert registry.resolve("toy/1", ask(device="warp"))([1]) == "warped"
    # The module has no such hook, which only asking for it shows.
    assert not registry.probe_device("warp").available
    assert str(registry.plugin("warp").state) == "failed"
    assert registry.decide("toy/1", ask(device="warp")).name == "toy.reference"
    assert registry.resolve("toy/1", ask(device="warp"))([1]) == [2]


@pytest.mark.parametrize(
    ("requires", "code"),
    [('torch = ">=99"\n', "E_VERSION"), ('modules = ["gone_for_good"]\n', "E_DEPENDENCY")],
)
def test_a_listed_plugin_that_cannot_be_used_is_not_silently_gone_without(
    make_registry: Make, caplog: pytest.LogCaptureFixture, requires: str, code: str
) -> None:
    registry = make_registry(TOY, plugin("warp", requires=requires, manifest=LISTED, code=offer()))
    registry.resolve("toy/1", ask(device="warp"))
    assert f"skipped warp.add ({code}: plugin warp is" in caplog.text


def test_a_skipped_candidate_is_told_once(
    make_registry: Make, caplog: pytest.LogCaptureFixture
) -> None:
    registry = make_registry(TOY, GOOD)
    for size in range(5):
        registry.resolve("toy/1", ask(dtype="float64", size=size))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "toy/1 on cpu is computed by toy.reference; skipped good.fast (E_DTYPE" in caplog.text


@pytest.mark.parametrize(
    ("environ", "use"), [({"TORCHYARD_NOTICES": "off"}, None), ({}, "toy.reference")]
)
def test_nothing_is_told_where_the_user_wants_it_so(
    make_registry: Make,
    caplog: pytest.LogCaptureFixture,
    environ: dict[str, str],
    use: str | None,
) -> None:
    registry = make_registry(TOY, GOOD, environ=environ)
    registry.resolve("toy/1", ask(dtype="float64"), use=use)
    assert caplog.records == []


def test_nothing_is_told_where_nothing_was_skipped(
    make_registry: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    make_registry(TOY, GOOD).resolve("toy/1", ask())
    assert caplog.records == []


def test_what_is_made_for_other_requests_is_passed_over_without_a_word(
    make_registry: Make, caplog: pytest.LogCaptureFixture
) -> None:
    no = "lambda request, platform: Verdict.no('E_PURPOSE', 'made for others')"
    registry = make_registry(TOY, warp(offer(supports=no)))
    assert registry.resolve("toy/1", ask(device="warp"))([1]) == [2]
    assert registry.decide("toy/1", ask(device="warp")).skipped()[0].name == "warp.add"
    assert "warp.add" not in caplog.text


def test_a_lock_is_followed_and_its_failure_is_an_error(
    make_registry: Make, tmp_path: Path
) -> None:
    lock = tmp_path / "lock.json"
    buckets = {"cpu float32 small": "toy.reference", "cpu float64 small": "good.fast"}
    lock.write_text(json.dumps({"schema": 1, "made_with": {}, "decisions": {"toy/1": buckets}}))
    registry = make_registry(TOY, GOOD, environ={"TORCHYARD_LOCK": str(lock)})
    assert registry.decide("toy/1", ask()).name == "toy.reference"
    assert registry.decide("toy/1", ask(size=9)).name == "good.fast"
    with pytest.raises(UnsupportedError, match="decided by lock"):
        registry.resolve("toy/1", ask(dtype="float64"))


def test_a_contract_is_found_by_its_op(make_registry: Make) -> None:
    registry = make_registry(TOY)
    assert registry.contract("toy") == registry.contract("toy/1") == ContractId("toy", 1)
    assert registry.definition(ContractId("toy", 1)).summary == "adds one"
    with pytest.raises(UnknownContractError, match="known contracts: toy/1"):
        registry.contract("toi")
    with pytest.raises(UnknownContractError, match="no usable component defines it"):
        registry.definition(ContractId("toi", 1))


@pytest.mark.parametrize(
    "code", ["", "DEFINITIONS = 3", "DEFINITIONS = {'toy/1': 3}", "raise ImportError('gone')"]
)
def test_a_component_whose_definition_is_broken_says_so(make_registry: Make, code: str) -> None:
    manifest = '[[defines]]\ncontract = "toy/1"\nmodule = "{package}.toy"\n'
    registry = make_registry(plugin("toy", manifest=manifest, code=code))
    with pytest.raises(UnknownContractError, match="contract 'toy/1': "):
        registry.definition(ContractId("toy", 1))


@pytest.mark.parametrize(
    ("device", "available", "words"),
    [
        ("warp", True, "torch has it"),
        ("hyper", False, "torch does not offer it in this process"),
        ("cpu", False, "no usable plugin owns this device type"),
    ],
)
def test_a_device_without_a_probe_is_asked_of_torch(
    make_registry: Make, device: str, available: bool, words: str
) -> None:
    manifest = '[[devices]]\nname = "warp"\n[[devices]]\nname = "hyper"\n'
    status = make_registry(plugin("two", manifest=manifest)).probe_device(device)
    assert (status.available, status.text) == (available, words)


def test_checks_of_a_plugin_that_raise_are_failed_checks_and_no_more(make_registry: Make) -> None:
    manifest = '[doctor]\nmodule = "{package}.toy"\n'
    broken = plugin("warp", manifest=manifest, code="raise OSError('no driver')\n")
    registry = make_registry(broken, GOOD)
    checks = registry.checks(registry.plugin("warp"))
    assert [str(check.status) for check in checks] == ["fail"]
    assert "OSError: no driver" in checks[0].text
    assert registry.plugin("warp").usable
    assert registry.checks(registry.plugin("good"))[0].text == "as fast as ever"


def test_two_registries_do_not_share_states(make_registry: Make) -> None:
    broken = warp("raise OSError\n")
    first = make_registry(TOY, broken)
    second = Registry([plugin.source for plugin in first.plugins], platform=first.platform)
    first.decide("toy/1", ask(device="warp"))
    assert not first.plugin("warp").usable
    assert second.plugin("warp").usable


@given(st.integers(0, 1 << 40))
def test_a_size_is_rounded_up_to_the_next_of_few(size: int) -> None:
    rounded = round_size(size)
    assert size <= rounded <= max(16, 2 * size)
    assert round_size(rounded) == rounded
    assert rounded == size if size <= 16 else rounded.bit_count() == 1


def test_settings_that_nobody_set_are_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether anything that decides has changed is asked by identity, at every call."""
    known = Registry(())
    assert known.settings() is known.settings() is Registry(()).settings()
    monkeypatch.setenv("TORCHYARD_TUNED", "off")
    assert known.settings() == ("", "", "", "off")
    assert Registry((), environ={}).settings() == ("", "", "", "")
