"""Whose device torch's PrivateUse1 slot is given to where a plugin is judged."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest

from torchyard import Plugin, registry
from torchyard_conformance._subjects._slot import slot_holder


def _plugin(name: str) -> Plugin:
    return next(plugin for plugin in registry().plugins if plugin.name == name)


@pytest.mark.parametrize(("name", "holder"), [("simulated", "simulated"), ("cpu", None)])
def test_a_plugin_with_a_device_on_the_slot_has_it(name: str, holder: str | None) -> None:
    assert slot_holder(_plugin(name)) == holder


def test_kernels_for_another_plugins_device_are_judged_on_it() -> None:
    plugin = _plugin("cpu")
    assert plugin.manifest is not None
    entries = tuple(replace(entry, devices=("simulated",)) for entry in plugin.manifest.implements)
    guest = copy(plugin)
    guest.manifest = replace(plugin.manifest, implements=entries)
    assert slot_holder(guest) == "simulated"
