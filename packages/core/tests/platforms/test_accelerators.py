"""Facts of accelerators, read through a torch that only the tests have."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from packages.core.tests.conftest import Make
from packages.core.tests.toys import GOOD, TOY
from torchyard import Accelerator, Platform, Registry
from torchyard._platforms import accelerators
from torchyard._platforms.accelerators import with_accelerators

_GIB = 1 << 30


def _torch(**parts: Any) -> Any:
    none = SimpleNamespace(version=lambda: None)
    defaults: dict[str, Any] = {
        "accelerator": object(),
        "version": SimpleNamespace(cuda=None, hip=None, xpu=None),
        "backends": SimpleNamespace(cudnn=none),
        "distributed": SimpleNamespace(is_available=lambda: True, is_nccl_available=lambda: True),
    }
    return SimpleNamespace(**{**defaults, **parts})


def _devices(*facts: Any) -> Any:
    return SimpleNamespace(
        current_device=lambda: 0,
        device_count=lambda: len(facts),
        get_device_properties=lambda index: facts[index],
        nccl=SimpleNamespace(version=lambda: (2, 27, 5)),
    )


_H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    total_memory=79 * _GIB,
    multi_processor_count=132,
    warp_size=32,
    shared_memory_per_block_optin=232448,
    clock_rate=1980000,
    memory_clock_rate=2619000,
)


@pytest.fixture
def gpu(machine: Platform) -> Platform:
    return dataclasses.replace(machine, devices=frozenset({"cpu", "cuda", "mps", "xpu"}))


def test_nvidia(monkeypatch: pytest.MonkeyPatch, gpu: Platform, tmp_path: Any) -> None:
    driver = tmp_path / "version"
    driver.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
        "GCC version:  gcc version 13.3.0\n"
    )
    monkeypatch.setattr(accelerators, "_NVIDIA_DRIVER", driver)
    torch = _torch(
        cuda=_devices(_H100, _H100),
        version=SimpleNamespace(cuda="13.0", hip=None),
        backends=SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 92000)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = with_accelerators(gpu, "cuda")
    assert found.accelerators == (
        Accelerator(
            device="cuda",
            architecture="sm_90",
            name="NVIDIA H100 80GB HBM3",
            count=2,
            memory=79 * _GIB,
            shared_memory=232448,
            multiprocessors=132,
            warp_size=32,
            core_clock=1980,
            memory_clock=2619,
            driver="580.65.06",
            runtime="13.0",
        ),
    )
    assert found.library("cudnn") == "9.20.0"
    assert found.library("nccl") == "2.27.5"


def test_clocks_of_another_model_are_not_those_of_the_current_device(
    monkeypatch: pytest.MonkeyPatch, gpu: Platform
) -> None:
    # As torch has it: the clocks in its facts are the current device's.
    other = SimpleNamespace(**{**vars(_H100), "name": "NVIDIA T4", "major": 7, "minor": 5})
    monkeypatch.setitem(sys.modules, "torch", _torch(cuda=_devices(_H100, other, _H100)))
    first, second = with_accelerators(gpu, "cuda").accelerators
    assert (first.count, first.core_clock, first.memory_clock) == (2, 1980, 2619)
    assert (second.architecture, second.core_clock, second.memory_clock) == ("sm_75", 0, 0)


def test_amd(monkeypatch: pytest.MonkeyPatch, gpu: Platform, tmp_path: Any) -> None:
    monkeypatch.setattr(accelerators, "_AMD_DRIVER", tmp_path / "none")
    card = SimpleNamespace(
        name="AMD Instinct MI300X",
        gcnArchName="gfx942:sramecc+:xnack-",
        major=9,
        minor=4,
        total_memory=192 * _GIB,
        multi_processor_count=304,
        warp_size=64,
        shared_memory_per_block=65536,
    )
    torch = _torch(cuda=_devices(card), version=SimpleNamespace(cuda=None, hip="7.0.2"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    [found] = with_accelerators(gpu, "cuda").accelerators
    assert (found.architecture, found.warp_size, found.shared_memory) == ("gfx942", 64, 65536)
    assert (found.runtime, found.driver) == ("7.0.2", "")
    # As of a torch that does not tell them.
    assert (found.core_clock, found.memory_clock) == (0, 0)


def test_intel_and_apple(monkeypatch: pytest.MonkeyPatch, gpu: Platform) -> None:
    card = SimpleNamespace(
        name="Intel(R) Arc(TM) B580 Graphics",
        architecture=0x500400,
        total_memory=12 * _GIB,
        local_mem_size=131072,
        max_compute_units=160,
        sub_group_sizes=[16, 32],
        driver_version="1.6",
        memory_clock_rate=2375,
    )
    torch = _torch(
        xpu=_devices(card),
        version=SimpleNamespace(cuda=None, hip=None, xpu="20250302"),
        mps=SimpleNamespace(recommended_max_memory=lambda: 16 * _GIB),
        backends=SimpleNamespace(
            mps=SimpleNamespace(get_name=lambda: "Apple M3", get_core_count=lambda: 10)
        ),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    both = with_accelerators(with_accelerators(gpu, "xpu"), "mps")
    xpu, mps = both.accelerators
    assert (xpu.architecture, xpu.warp_size, xpu.driver) == ("0x500400", 32, "1.6")
    assert (xpu.core_clock, xpu.memory_clock) == (0, 2375)
    assert (mps.name, mps.multiprocessors, mps.architecture) == ("Apple M3", 10, "")
    # A second reading replaces the first.
    assert len(with_accelerators(both, "xpu").accelerators) == 2


def test_what_torch_tells_nothing_of_adds_nothing(
    monkeypatch: pytest.MonkeyPatch, gpu: Platform, machine: Platform
) -> None:
    monkeypatch.setitem(sys.modules, "torch", _torch(cuda=_devices(_H100)))
    assert with_accelerators(gpu, "cpu") is gpu
    assert with_accelerators(machine, "cuda") is machine


@pytest.mark.parametrize(
    ("number", "version"), [(92000, "9.20.0"), (91501, "9.15.1"), (8907, "8.9.7")]
)
def test_numbers_of_cudnn(number: int, version: str) -> None:
    assert accelerators._cudnn_version(number) == version


def test_a_registry_reads_them_when_a_request_is_for_the_device(
    make_registry: Make, monkeypatch: pytest.MonkeyPatch, gpu: Platform
) -> None:
    asked: list[str] = []

    def add(platform: Platform, device: str) -> Platform:
        asked.append(device)
        if device == "cuda":
            return dataclasses.replace(
                platform, accelerators=(Accelerator("cuda", "sm_90", "a card"),)
            )
        return platform

    monkeypatch.setattr("torchyard._plugins.catalog.with_accelerators", add)
    registry: Registry = make_registry(TOY, GOOD, platform=None)
    registry._platform = gpu
    # As if torch were imported: nothing here asks it.
    registry._saw_torch = True
    definition = registry.definition(registry.contract("toy"))
    registry.decide("toy/1", definition.request({}))
    assert registry.platform.accelerators == ()
    registry.decide("toy/1", definition.request({"device": "cuda"}))
    registry.decide("toy/1", definition.request({"device": "cuda", "dtype": "float16"}))
    assert registry.platform.accelerator("cuda") is not None
    assert asked == ["cpu", "cuda"]


def test_a_registry_of_another_machine_reads_none(make_registry: Make, gpu: Platform) -> None:
    registry = make_registry(TOY, GOOD, platform=gpu)
    definition = registry.definition(registry.contract("toy"))
    registry.decide("toy/1", definition.request({"device": "cuda"}))
    assert registry.platform is gpu
