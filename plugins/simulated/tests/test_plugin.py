"""The plugin as torchyard sees it: manifest, probe and checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchyard import CheckStatus, PluginState, registry
from torchyard_simulated.checks import torchyard_checks
from torchyard_simulated.device import torchyard_probe_device

FreshPython = Callable[..., str]


def test_the_probe_reports_two_devices() -> None:
    status = torchyard_probe_device(device="simulated")
    assert status.available
    assert status.count == 2
    assert "8 GiB" in status.text


def test_the_plugins_checks_pass() -> None:
    assert [check.status for check in torchyard_checks()] == [CheckStatus.PASS]


def test_the_probe_and_the_checks_report_a_failure(
    fresh_python: FreshPython, tmp_path: Path
) -> None:
    program = """
import torch
torch.utils.rename_privateuse1_backend("vendor")
from torchyard_simulated.checks import torchyard_checks
from torchyard_simulated.device import torchyard_probe_device
status = torchyard_probe_device(device="simulated")
print(status.available, status.count, "taken by another device" in status.text, bool(status.hint))
(check,) = torchyard_checks()
print(check.status, "Traceback" in check.text)
"""
    lines = fresh_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0").splitlines()
    assert lines == ["False 0 True True", "fail True"]


def test_a_device_that_nobody_asked_for_is_neither_probed_nor_checked(
    fresh_python: FreshPython,
) -> None:
    program = """
import torch
from torchyard import registry
status = registry().probe_device("simulated")
print(status.available, "TORCHYARD_PRIVATEUSE1=simulated" in status.hint)
(plugin,) = (plugin for plugin in registry().plugins if plugin.name == "simulated")
print([str(check.status) for check in registry().checks(plugin)], plugin.usable)
print(hasattr(torch, "simulated"), torch.accelerator.current_accelerator(check_available=True))
"""
    lines = fresh_python(program, TORCHYARD_PRIVATEUSE1="").splitlines()
    assert lines == ["False True", "['unverified'] True", "False None"]


def test_torchyard_finds_the_plugin_healthy() -> None:
    (plugin,) = (plugin for plugin in registry().plugins if plugin.name == "simulated")
    assert plugin.state in {PluginState.DISCOVERED, PluginState.ACTIVE}, plugin


def test_this_torch_has_every_private_part() -> None:
    from torchyard_simulated._torch_compat import missing

    assert missing() == ()
