"""Discovery: every plugin has a state before any of its code runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest

from packages.core.tests.broken_plugins import plugin
from packages.core.tests.conftest import Make
from packages.core.tests.distribution import Distribution
from packages.core.tests.toys import GOOD, TOY
from torchyard import ManifestError, Platform, PluginSource, PolicyError, Registry
from torchyard._plugins.discovery import read_manifest


def _state(registry: Registry, name: str) -> tuple[str, str, str]:
    found = registry.plugin(name)
    return str(found.state), str(found.code or ""), found.reason


def _defines(name: str, *contracts: str) -> Distribution:
    tables = "".join(
        f'[[defines]]\ncontract = "{contract}"\nmodule = "x.y"\n' for contract in contracts
    )
    return plugin(name, manifest=tables)


def _device(name: str, device: str, slot: str = "", architectures: str = "") -> Distribution:
    entry = f'name = "{device}"\nslot = "{slot}"\narchitectures = "{architectures}"\n'
    return plugin(name, manifest=f"[[devices]]\n{entry}")


def test_a_plugin_is_discovered_without_being_imported(make_registry: Make) -> None:
    registry = make_registry(TOY, GOOD)
    assert _state(registry, "good") == ("discovered", "", "")
    assert "torchyard_good" not in sys.modules


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", {"toy": "discovered", "good": "discovered"}),
        ("toy", {"toy": "discovered", "good": "blocked"}),
        ("-good", {"toy": "discovered", "good": "blocked"}),
        ("toy, good, -good", {"toy": "discovered", "good": "blocked"}),
        ("none", {"toy": "blocked", "good": "blocked"}),
    ],
)
def test_plugins_are_allowed_and_blocked_by_name(
    make_registry: Make, setting: str, expected: dict[str, str]
) -> None:
    registry = make_registry(TOY, GOOD, environ={"TORCHYARD_PLUGINS": setting})
    assert {plugin.name: str(plugin.state) for plugin in registry.plugins} == expected


def test_none_stands_alone(make_registry: Make) -> None:
    with pytest.raises(PolicyError, match="'none' stands alone, got 'none,toy'"):
        make_registry(TOY, environ={"TORCHYARD_PLUGINS": "none,toy"})


def test_a_blocked_plugin_still_tells_what_it_would_offer(make_registry: Make) -> None:
    registry = make_registry(TOY, GOOD, environ={"TORCHYARD_PLUGINS": "-good"})
    manifest = registry.plugin("good").manifest
    assert manifest is not None
    assert manifest.summary == "adds one, fast, in float32"


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("torchyard-dup", "yard-dup"), "torchyard-dup"),
        (("yard-dup", "torchyard_DUP"), "torchyard_DUP"),
        (("yard-dup", "yard-too"), None),
    ],
)
def test_of_a_name_that_several_announce_the_distribution_of_that_name_keeps_it(
    make_registry: Make, names: tuple[str, str], kept: str | None
) -> None:
    registry = make_registry(*(plugin("dup", distribution=name) for name in names))
    states = {item.source.distribution: item for item in registry.plugins}
    for name in names:
        assert states[name].usable == (name == kept)
    assert registry.plugin("dup").usable == (kept is not None)


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("toy", "taker"), "toy"),
        (("toy", "toy_backward"), "toy"),
        (("toy_backward", "taker"), "toy_backward"),
        (("one", "two"), None),
    ],
)
def test_of_a_contract_that_several_define_the_component_of_that_name_keeps_it(
    make_registry: Make, names: tuple[str, str], kept: str | None
) -> None:
    registry = make_registry(*(_defines(name, "toy_backward/1") for name in names))
    for name in names:
        state, code, reason = _state(registry, name)
        if name == kept:
            assert state == "discovered"
        else:
            assert (state, code) == ("incompatible", "E_PLUGIN")
            assert "defines contract toy_backward/1, which is also defined by" in reason


@pytest.mark.parametrize(
    ("one", "two", "both"), [("a_", "b_", True), ("a_", "a_1", False), ("", "b_", False)]
)
def test_several_own_a_device_where_each_declares_other_architectures(
    make_registry: Make, one: str, two: str, both: bool
) -> None:
    registry = make_registry(
        _device("first", "warp", architectures=one), _device("second", "warp", architectures=two)
    )
    owners = [plugin.name for plugin, _ in registry.devices()]
    assert sorted(owners) == (["first", "second"] if both else [])
    if not both:
        _, code, reason = _state(registry, "first")
        assert code == "E_DEVICE"
        assert f"declares device 'warp'{f' for {one}*' if one else ''}" in reason


@pytest.mark.parametrize(("names", "kept"), [(("warp", "taker"), "warp"), (("one", "two"), None)])
def test_of_a_device_that_several_declare_the_plugin_of_that_name_keeps_it(
    make_registry: Make, names: tuple[str, str], kept: str | None
) -> None:
    registry = make_registry(*(_device(name, "warp") for name in names))
    assert {name for _, name in registry.devices()} == ({"warp"} if kept else set())
    for name in names:
        state, code, reason = _state(registry, name)
        if name != kept:
            assert (state, code) == ("incompatible", "E_DEVICE")
            assert "declares device 'warp', which is also declared by:" in reason


def _claimants() -> Sequence[Distribution]:
    return [_device(name, name, "PrivateUse1") for name in ("first", "second")]


def test_a_single_claimant_has_the_slot(make_registry: Make) -> None:
    assert _state(make_registry(_claimants()[0]), "first")[0] == "discovered"


def test_of_two_claimants_none_has_the_slot(make_registry: Make) -> None:
    registry = make_registry(*_claimants())
    for name in ("first", "second"):
        assert _state(registry, name)[:2] == ("unavailable", "E_SLOT")
        assert "claimed by: first, second" in _state(registry, name)[2]


def test_of_two_claimants_the_one_that_the_user_names_has_the_slot(make_registry: Make) -> None:
    registry = make_registry(*_claimants(), environ={"TORCHYARD_PRIVATEUSE1": "second"})
    assert _state(registry, "second")[0] == "discovered"
    assert _state(registry, "first")[1] == "E_SLOT"


def _on_request() -> Distribution:
    device = '[[devices]]\nname = "rehearsed"\nslot = "PrivateUse1"\non_request = true\n'
    return plugin("rehearsed", manifest=device)


@pytest.mark.parametrize(
    ("named", "usable"),
    [("", (True, True)), ("real", (True, True)), ("rehearsed", (False, True))],
)
def test_who_takes_the_slot_on_request_keeps_nobody_from_it(
    make_registry: Make, named: str, usable: tuple[bool, bool]
) -> None:
    distributions = (_device("real", "real", "PrivateUse1"), _on_request())
    registry = make_registry(*distributions, environ={"TORCHYARD_PRIVATEUSE1": named})
    assert tuple(registry.plugin(name).usable for name in ("real", "rehearsed")) == usable


def _install_torch(monkeypatch: pytest.MonkeyPatch, slot: str) -> None:
    """Put a torch in place whose PrivateUse1 slot a device has, and what reads it."""
    compat = SimpleNamespace(privateuse1_backend_name=lambda: slot)
    monkeypatch.setattr("torchyard.torch_compat", compat, raising=False)
    monkeypatch.setitem(sys.modules, "torch", _torch_with(slot))


def _torch_with(slot: str) -> ModuleType:
    torch = ModuleType("torch")
    torch.__dict__.update(
        __version__="2.13.0",
        accelerator=ModuleType("accelerator"),
    )
    torch.accelerator.__dict__["is_available"] = lambda: True
    torch.accelerator.__dict__["current_accelerator"] = lambda: ModuleType("device")
    torch.accelerator.current_accelerator = lambda: _Device(slot)
    return torch


class _Device:
    def __init__(self, kind: str) -> None:
        self.type = kind


@pytest.mark.parametrize("holder", ["first", "second"])
def test_who_holds_the_slot_in_torch_keeps_it(
    make_registry: Make, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    _install_torch(monkeypatch, holder)
    registry = make_registry(*_claimants(), platform=None)
    for name in ("first", "second"):
        assert registry.plugin(name).usable == (name == holder)


def test_a_torch_that_is_imported_later_is_taken_in(
    make_registry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    registry = make_registry(_claimants()[0], platform=None)
    assert registry.plugin("first").usable
    assert "elsewhere" not in registry.platform.devices
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert "elsewhere" not in registry.platform.devices, "torch is in the middle of its import"
    _install_torch(monkeypatch, "elsewhere")
    assert "elsewhere" in registry.platform.devices
    assert _state(registry, "first")[1] == "E_SLOT"
    assert "device 'elsewhere' holds it in this process" in _state(registry, "first")[2]


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        ("2.13.0", ("discovered", "")),
        ("2.13.0a0+git1234567", ("discovered", "")),
        ("2.10.1", ("incompatible", "E_VERSION")),
        ("3.0", ("incompatible", "E_VERSION")),
        ("built by hand", ("incompatible", "E_VERSION")),
        (None, ("unavailable", "E_DEPENDENCY")),
    ],
)
def test_torch_must_be_in_the_range_that_the_manifest_names(
    make_registry: Make, machine: Platform, torch: str | None, expected: tuple[str, str]
) -> None:
    registry = make_registry(
        plugin("needs", requires='torch = ">=2.11,<3"\n'), platform=replace(machine, torch=torch)
    )
    assert _state(registry, "needs")[:2] == expected


def test_a_plugin_may_implement_several_versions_of_a_component(make_registry: Make) -> None:
    entries = "".join(
        f'[[implements]]\ncontract = "toy/{version}"\nmodule = "x.v{version}"\ndevices = ["*"]\n'
        for version in (1, 2)
    )
    registry = make_registry(TOY, plugin("both", manifest=entries))
    assert registry.plugin("both").usable


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("torchyard_toy", "expected 'package:file.toml' with a top-level package"),
        ("torchyard_toy.inner:torchyard.toml", "expected 'package:file.toml'"),
        ("torchyard_toy:../torchyard.toml", "expected 'package:file.toml'"),
        ("torchyard_toy:/torchyard.toml", "expected 'package:file.toml'"),
        ("torchyard_toy:gone.toml", "gone.toml: expected inside package 'torchyard_toy'"),
        ("torchyard_toy:contract.py/x.toml", "expected 'package:file.toml'"),
        ("package_that_nobody_has:torchyard.toml", "expected a package, found none"),
        ("json:torchyard.toml", "torchyard.toml: expected inside package 'json', not there"),
        ("abc:torchyard.toml", "package 'abc': expected a package, found none"),
    ],
)
def test_an_entry_point_that_leads_nowhere_says_so(
    make_registry: Make, value: str, words: str
) -> None:
    make_registry(TOY)
    with pytest.raises(ManifestError) as caught:
        read_manifest(PluginSource("toy", value, "torchyard-toy", "1.0"))
    assert words in str(caught.value)


def test_an_unknown_plugin_is_an_error_that_lists_the_known_ones(make_registry: Make) -> None:
    with pytest.raises(LookupError, match="'gone': not installed; installed plugins: good, toy"):
        make_registry(TOY, GOOD).plugin("gone")
