"""What doctor says of a driver and of torch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from torchyard import CheckStatus
from torchyard_rocm.checks import (
    _checks,
    attention_check,
    compile_check,
    driver_check,
    torchyard_checks,
)
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


@pytest.mark.parametrize(
    ("preferred", "whose"),
    [("Default", "AOTriton"), ("AOTriton", "AOTriton"), ("Ck", "composable")],
)
def test_whose_attention_torch_computes_with(preferred: str, whose: str) -> None:
    found = attention_check(preferred)
    assert found.status is CheckStatus.PASS
    assert whose in found.text


def test_an_attention_that_is_not_known_is_unverified() -> None:
    assert attention_check("Other").status is CheckStatus.UNVERIFIED
    assert attention_check("Other").text.endswith("got Other")


def test_torch_names_its_attention_as_the_check_knows_it() -> None:
    preferred = torch.backends.cuda.preferred_rocm_fa_library().name
    assert attention_check(preferred).status is CheckStatus.PASS


@pytest.mark.parametrize(
    ("available", "names"),
    [
        (True, ["driver of ROCm", "FlashAttention of torch"]),
        (False, ["torch.compile on the CPU"]),
    ],
)
def test_a_device_and_a_host_without_one_are_judged_by_other_facts(
    available: bool, names: list[str]
) -> None:
    library = SimpleNamespace(name="Ck")
    found = SimpleNamespace(
        __version__="2.13.0+rocm7.0",
        version=SimpleNamespace(hip="7.0.51831"),
        cuda=SimpleNamespace(is_available=lambda: available),
        backends=SimpleNamespace(
            cuda=SimpleNamespace(preferred_rocm_fa_library=lambda: library),
        ),
    )
    assert [check.name for check in _checks(found)] == names
