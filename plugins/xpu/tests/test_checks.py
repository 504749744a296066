"""What doctor says of a driver and of torch, and which architecture a model has."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from torchyard import Accelerator, CheckStatus, Registry, read_platform_file
from torchyard_xpu._vendor import arch_of
from torchyard_xpu.checks import driver_check, graph_check, torchyard_checks
from torchyard_xpu.device import _described


@pytest.mark.parametrize(
    ("driver", "status"),
    [
        ("1.6.34303", CheckStatus.PASS),
        ("1.3.29735+27", CheckStatus.PASS),
        ("1.3.26241", CheckStatus.WARN),
        ("", CheckStatus.UNVERIFIED),
    ],
)
def test_a_driver_is_compared_with_the_oldest(driver: str, status: CheckStatus) -> None:
    assert driver_check(driver).status is status


def test_a_fault_of_graphs_is_named_for_its_torch() -> None:
    platform = read_platform_file("arc-b580").platform
    check = graph_check(Registry(platform=platform, environ={}))
    assert check.status is CheckStatus.WARN
    assert "_scaled_dot_product_fused_attention_overrideable" in check.text
    assert "_scaled_dot_product_flash_attention" in check.text
    assert "SDPBackend.MATH" in check.hint
    (accelerator,) = platform.accelerators
    newer = replace(accelerator, runtime="20260000")
    sound = replace(platform, torch="2.15.0+xpu", accelerators=(newer,))
    assert graph_check(Registry(platform=sound, environ={})).status is CheckStatus.UNVERIFIED


def test_without_what_captures_no_fault_is_claimed() -> None:
    check = graph_check(Registry([], environ={}))
    assert check.status is CheckStatus.UNVERIFIED
    assert "absent" in check.text


def test_of_a_torch_without_xpu_nothing_is_said() -> None:
    assert list(torchyard_checks()) == []


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("Intel(R) Data Center GPU Max 1550", "pvc"),
        ("Intel(R) Arc(TM) B580 Graphics", "bmg"),
        ("Intel(R) Arc(TM) Pro B60 Graphics", "bmg"),
        ("Intel(R) Arc(TM) 140V GPU", "lnl"),
        ("Intel(R) Arc(TM) A770 Graphics", "0x3000"),
    ],
)
def test_the_model_tells_the_architecture(name: str, architecture: str) -> None:
    assert arch_of(Accelerator("xpu", "0x3000", name)) == architecture


def test_a_device_is_described() -> None:
    facts = SimpleNamespace(
        name="Intel(R) Arc(TM) B580 Graphics",
        max_compute_units=160,
        total_memory=12 << 30,
        driver_version="1.6.34303",
    )
    text = "Intel(R) Arc(TM) B580 Graphics, 160 vector engines, 12.0 GiB, driver 1.6.34303"
    assert _described(facts) == text
