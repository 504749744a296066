"""What doctor says of a driver and of torch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from torchyard import CheckStatus
from torchyard_rocm.checks import compile_check, driver_check, torchyard_checks
from torchyard_rocm.device import _described


@pytest.mark.parametrize(
    ("driver", "runtime", "status"),
    [
        ("6.14.5", "7.0.51831", CheckStatus.PASS),
        ("6.8.5", "7.2", CheckStatus.PASS),
        ("6.3.6", "7.0", CheckStatus.WARN),
        ("6.3.6", "6.4", CheckStatus.PASS),
        ("5.18", "6.4", CheckStatus.WARN),
        ("", "7.0", CheckStatus.PASS),
        ("6.14.5", "9.0", CheckStatus.UNVERIFIED),
    ],
)
def test_a_driver_is_compared_with_what_its_rocm_needs(
    driver: str, runtime: str, status: CheckStatus
) -> None:
    found = driver_check(driver, runtime)
    assert found.status is status
    assert bool(found.hint) == (status is CheckStatus.WARN)


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("2.13.0+rocm7.0", CheckStatus.WARN),
        ("2.12.1+rocm7.0", CheckStatus.PASS),
        ("2.14.0+rocm7.2", CheckStatus.PASS),
    ],
)
def test_torch_that_compiles_nothing_without_a_gpu_is_named(
    version: str, status: CheckStatus
) -> None:
    assert compile_check(version).status is status


def test_of_a_torch_without_rocm_nothing_is_said() -> None:
    assert list(torchyard_checks()) == []


def test_a_device_is_described() -> None:
    facts = SimpleNamespace(
        name="AMD Instinct MI300X",
        gcnArchName="gfx942:sramecc+:xnack-",
        multi_processor_count=304,
        total_memory=192 << 30,
    )
    assert _described(facts) == "AMD Instinct MI300X, gfx942, 304 compute units, 192.0 GiB"
