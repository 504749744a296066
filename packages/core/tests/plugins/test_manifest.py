"""A manifest says everything, or what is wrong with it."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard import ContractId, ManifestError
from torchyard._plugins.manifest import Manifest, MeasureEntry, parse_manifest

_WHOLE = """
schema = 1
name = "yard"
summary = "all keys"
[requires]
torchyard = ">=0.1"
torch = ">=2.11,<3"
modules = ["triton"]
[[devices]]
name = "warp"
module = "yard.device"
slot = "PrivateUse1"
[[defines]]
contract = "toy/2"
module = "yard.contract"
[[implements]]
contract = "toy/2"
module = "yard.toy"
devices = ["warp", "*"]
[[commands]]
name = "go"
target = "yard.go:command"
help = "Go."
[doctor]
module = "yard.checks"
[measure]
limits = "yard.limits"
workloads = "yard.work"
[optimize]
module = "yard.models"
[order."toy/2"]
warp = ["yard.fast", "yard.slow"]
"*" = ["yard.slow"]
"""
_DATA: dict[str, Any] = {
    "schema": 1,
    "name": "yard",
    "summary": "all keys",
    "requires": {"torchyard": ">=0.1", "torch": ">=2.11,<3", "modules": ["triton"]},
    "devices": [{"name": "warp", "module": "yard.device", "slot": "PrivateUse1"}],
    "defines": [{"contract": "toy/2", "module": "yard.contract"}],
    "implements": [{"contract": "toy/2", "module": "yard.toy", "devices": ["warp"]}],
    "commands": [{"name": "go", "target": "yard.go:command", "help": "Go."}],
    "doctor": {"module": "yard.checks"},
    "measure": {"limits": "yard.limits", "workloads": "yard.work"},
    "optimize": {"module": "yard.models"},
    "order": {"toy/2": {"warp": ["yard.fast"]}},
}


def _parse(text: str) -> Manifest:
    return parse_manifest(text, expected_name="yard")


def _toml(data: dict[str, Any]) -> str:
    """Write data as TOML: every table inline, so that any shape can be written."""

    def value(item: Any) -> str:
        if isinstance(item, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {value(v)}" for k, v in item.items()) + "}"
        if isinstance(item, list):
            return "[" + ", ".join(map(value, item)) + "]"
        return json.dumps(item)

    return "\n".join(f"{json.dumps(key)} = {value(item)}" for key, item in data.items())


def test_every_key_is_read() -> None:
    manifest = _parse(_WHOLE)
    assert manifest.requires.modules == ("triton",)
    assert manifest.devices[0].name == "warp"
    assert manifest.claims_privateuse1
    assert manifest.defines[0].contract == ContractId("toy", 2)
    assert manifest.implements[0].covers("anything")
    assert manifest.commands[0].target == "yard.go:command"
    assert manifest.doctor == "yard.checks"
    assert manifest.measure == MeasureEntry("yard.limits", "yard.work")
    assert manifest.optimize == "yard.models"
    assert [(order.device, order.names) for order in manifest.orders] == [
        ("warp", ("yard.fast", "yard.slow")),
        ("*", ("yard.slow",)),
    ]


def test_a_list_may_be_for_an_architecture() -> None:
    text = _WHOLE.replace(
        'warp = ["yard.fast"', '"warp:w_9" = ["yard.slow"]\nwarp = ["yard.fast"', 1
    )
    orders = [(order.device, order.architecture, order.names) for order in _parse(text).orders]
    assert orders[:2] == [
        ("warp", "w_9", ("yard.slow",)),
        ("warp", "", ("yard.fast", "yard.slow")),
    ]


def test_most_keys_may_be_left_out() -> None:
    manifest = _parse('schema = 1\nname = "yard"\nsummary = ""\n[requires]\ntorchyard = ">=0.1"\n')
    assert manifest.requires.torch == ""
    assert manifest == Manifest("yard", "", manifest.requires)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("schema = 1", "schema = 2"), "schema: expected 1, got 2; install a torchyard that reads"),
        (("schema = 1", ""), "schema: expected a int, got nothing"),
        (("schema = 1", "schema = true"), "schema: expected a int, got True"),
        (('name = "yard"', 'name = "other"'), "name: expected the entry point's name 'yard'"),
        (('torchyard = ">=0.1"', 'torchyard = ""'), "requires.torchyard: expected a version"),
        (('torchyard = ">=0.1"', 'torchyard = "new"'), "requires.torchyard: expected a version"),
        (('torchyard = ">=0.1"', ""), "requires.torchyard: expected a str, got nothing"),
        (('["triton"]', '["triton.language"]'), "requires.modules: expected top-level modules"),
        (
            ('slot = "PrivateUse1"', "on_request = true"),
            "devices[0].on_request: expected it beside slot = 'PrivateUse1', got no slot",
        ),
        (('"PrivateUse1"', '"PrivateUse9"'), "devices[0].slot: expected 'PrivateUse1' or nothing"),
        (('"yard.device"', '"yard device"'), "devices[0].module: expected a module's name"),
        (('contract = "toy/2"\nmodule = "yard.contract"', ""), "defines[0].contract"),
        (('["warp", "*"]', "[]"), "implements[0].devices: expected at least one device type"),
        (('["warp", "*"]', '["Warp!"]'), "implements[0].devices: expected at least one device"),
        (('"yard.go:command"', '"yard.go"'), "commands[0].target: expected 'module:attribute'"),
        (('[order."toy/2"]', '[order."toy"]'), "order.'toy': contract: expected 'op/version'"),
        (('[order."toy/2"]', '[order."toy/2.1"]'), "order.'toy/2.1': contract: expected 'op/vers"),
        (
            ('contract = "toy/2"\nmodule', 'contract = "toy/2."\nmodule'),
            "or 'op/version.minor' such",
        ),
        (('"yard.fast", "yard.slow"', '"fast"'), "order.'toy/2'.warp: expected '<plugin>."),
        (('"yard.fast", "yard.slow"', '"a.b", "a.b"'), "expected each implementation once"),
        (
            ('"*" = ["yard.slow"]', '"*:w_9" = ["yard.slow"]'),
            "or 'device:architecture', got '*:w_9'",
        ),
        (('"*" = ["yard.slow"]', '"warp:" = ["yard.slow"]'), "device:architecture', got 'warp:'"),
        (("[doctor]", "[docter]"), "docter: unknown key; known here:"),
        (('help = "Go."', 'help = "Go."\nhelper = 1'), "commands[0].helper: unknown key"),
        (('[order."toy/2"]', '[order."other/1"]\nwarp = 3\n[order."toy/2"]'), "other/1'.warp"),
    ],
)
def test_an_error_names_the_key_and_what_was_expected(change: tuple[str, str], words: str) -> None:
    assert change[0] in _WHOLE
    with pytest.raises(ManifestError) as caught:
        _parse(_WHOLE.replace(*change, 1))
    assert words in str(caught.value)


def test_a_list_for_another_plugins_device_is_refused() -> None:
    text = _WHOLE + '[order."other/1"]\ncpu = ["yard.fast"]\n'
    with pytest.raises(ManifestError, match="says before/after instead"):
        _parse(text)


@pytest.mark.parametrize("key", ["devices", "defines", "implements", "commands"])
def test_an_entry_that_is_there_twice_is_refused(key: str) -> None:
    data = {**_DATA, key: _DATA[key] * 2}
    with pytest.raises(ManifestError, match=f"^{key}: expected each .* once"):
        _parse(_toml(data))


def test_two_devices_on_the_one_slot_are_refused() -> None:
    data = {**_DATA, "devices": [{"name": n, "slot": "PrivateUse1"} for n in ("one", "two")]}
    with pytest.raises(ManifestError, match=r"expected at most one device.*\['one', 'two'\]"):
        _parse(_toml(data))


_VALUES = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=4,
)


def _paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        items = []
    return [here, *(path for key, item in items for path in _paths(item, (*here, key)))]


@given(st.sampled_from(_paths(_DATA)[1:]), _VALUES | st.none())
def test_a_value_of_any_kind_anywhere_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    data = copy.deepcopy(_DATA)
    parent: Any = data
    for key in path[:-1]:
        parent = parent[key]
    if value is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    with contextlib.suppress(ManifestError):
        _parse(_toml(data))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        _parse(text)


@given(st.integers(0, len(_WHOLE) - 1), st.integers(0, 40), st.text(max_size=8))
def test_a_damaged_file_is_read_or_refused(start: int, length: int, text: str) -> None:
    with contextlib.suppress(ManifestError):
        _parse(_WHOLE[:start] + text + _WHOLE[start + length :])


@pytest.mark.parametrize(
    "text",
    ["x = " + "[" * 9000 + "]" * 9000, "schema = " + "9" * 5000, "a." * 9000 + "b = 1", "\x00"],
    ids=["endless nesting", "endless number", "endless key", "no text"],
)
def test_what_breaks_the_parser_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        _parse(text)


@pytest.mark.parametrize(
    "text", ["toy", "toy/0", "toy/x", "Toy/1", "toy/1/2", "toy/1.2", "toy_v2/1", ""]
)
def test_a_contract_is_an_op_and_a_version(text: str) -> None:
    with pytest.raises(ValueError, match="expected 'op/version' such as 'attention/1'"):
        ContractId.parse(text)
