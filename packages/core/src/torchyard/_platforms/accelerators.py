"""Facts of this machine's accelerators, read through torch's public functions."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from torchyard import arguments
from torchyard._platforms.platform import Accelerator, Platform, imported_torch

# Library -> the distributions that bring it: torch's builds for ROCm and XPU have a Triton of
# their own.
_DISTRIBUTIONS: Final = {
    # PyPI's distribution of the name aiter is another package.
    "aiter": ("amd-aiter",),
    "cudnn-frontend": ("nvidia-cudnn-frontend",),
    "flash-attn": ("flash-attn",),
    "flash-attn-4": ("flash-attn-4",),
    "triton": ("triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-xpu"),
}
_NVIDIA_DRIVER: Final = Path("/proc/driver/nvidia/version")
_AMD_DRIVER: Final = Path("/sys/module/amdgpu/version")


def with_accelerators(platform: Platform, device: str) -> Platform:
    """Return a platform with the facts of this machine's accelerators of one device type.

    It initialises the device, as using it does.

    Args:
        platform: this machine.
        device: torch device type; of one that torch does not build, its module's
            ``get_device_properties(index)`` says ``name``, and may say ``architecture``,
            ``total_memory``, ``shared_memory_per_block``, ``multi_processor_count``,
            ``warp_size``, and in kHz ``clock_rate`` and ``memory_clock_rate``. Where it has no such
            function nothing is added.
    """
    arguments.instance("with_accelerators", "platform", platform, Platform)
    arguments.text("with_accelerators", "device", device)
    torch = imported_torch()
    if torch is None or device not in platform.devices:
        return platform
    read = _READERS.get(device)
    found = tuple(_of_other(torch, device) if read is None else read(torch))
    if not found:
        return platform
    others = tuple(item for item in platform.accelerators if item.device != device)
    return dataclasses.replace(
        platform,
        accelerators=(*others, *found),
        libraries=tuple(sorted({**dict(platform.libraries), **_libraries(torch)}.items())),
    )


def _libraries(torch: Any) -> dict[str, str]:
    found = {}
    for name, distributions in _DISTRIBUTIONS.items():
        for distribution in distributions:
            try:
                found[name] = version(distribution)
            except PackageNotFoundError:
                continue
            break
    # MIOpen answers as cuDNN does where torch was built for ROCm.
    number = torch.backends.cudnn.version() if torch.version.cuda else None
    if number is not None:
        found["cudnn"] = _cudnn_version(int(number))
    # RCCL answers as NCCL does.
    distributed = torch.distributed
    if torch.version.cuda and distributed.is_available() and distributed.is_nccl_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()[:3]))
    return found


def _cudnn_version(number: int) -> str:
    """Return ``9.15.1`` for 91501; before cuDNN 9 the major number had three digits behind it."""
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _of_cuda(torch: Any) -> Iterable[Accelerator]:
    hip = torch.version.hip
    driver = _text(_AMD_DRIVER) if hip else _nvidia_driver(_text(_NVIDIA_DRIVER))
    found = []
    # Torch reports the current device's clocks in the place of any other's. To make another device
    # current would take memory on it, so the clocks of another model stay unknown.
    timed = str(torch.cuda.get_device_properties(torch.cuda.current_device()).name)
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        clocks = facts if str(facts.name) == timed else None
        architecture = (
            # What follows a colon says which features are on, such as gfx942:sramecc+:xnack-.
            str(facts.gcnArchName).partition(":")[0] if hip else f"sm_{facts.major}{facts.minor}"
        )
        shared = getattr(facts, "shared_memory_per_block_optin", 0)
        found.append(
            Accelerator(
                device="cuda",
                architecture=architecture,
                name=str(facts.name),
                memory=int(facts.total_memory),
                shared_memory=int(shared or getattr(facts, "shared_memory_per_block", 0)),
                multiprocessors=int(facts.multi_processor_count),
                warp_size=int(facts.warp_size),
                core_clock=_megahertz(clocks, "clock_rate"),
                memory_clock=_megahertz(clocks, "memory_clock_rate"),
                driver=driver,
                runtime=str(hip or torch.version.cuda or ""),
            )
        )
    return _counted(found)


def _of_xpu(torch: Any) -> Iterable[Accelerator]:
    found = []
    for index in range(torch.xpu.device_count()):
        facts = torch.xpu.get_device_properties(index)
        found.append(
            Accelerator(
                device="xpu",
                architecture=hex(int(facts.architecture)) if hasattr(facts, "architecture") else "",
                name=str(facts.name),
                memory=int(facts.total_memory),
                shared_memory=int(getattr(facts, "local_mem_size", 0)),
                multiprocessors=int(facts.max_compute_units),
                warp_size=max(map(int, facts.sub_group_sizes), default=0),
                # MHz already; the cores' is not among torch's facts.
                memory_clock=int(getattr(facts, "memory_clock_rate", 0)),
                driver=str(facts.driver_version),
                runtime=str(torch.version.xpu or ""),
            )
        )
    return _counted(found)


def _of_mps(torch: Any) -> Iterable[Accelerator]:
    # Torch has neither the size of a threadgroup's memory nor that of a SIMD group.
    yield Accelerator(
        device="mps",
        architecture="",
        name=str(torch.backends.mps.get_name()),
        memory=int(torch.mps.recommended_max_memory()),
        multiprocessors=int(torch.backends.mps.get_core_count()),
    )


def _of_other(torch: Any, device: str) -> Iterable[Accelerator]:
    module = getattr(torch, device, None)
    read = getattr(module, "get_device_properties", None)
    if module is None or read is None:
        return []
    found = []
    for index in range(module.device_count()):
        facts = read(index)
        found.append(
            Accelerator(
                device=device,
                architecture=str(getattr(facts, "architecture", "")),
                name=str(facts.name),
                memory=int(getattr(facts, "total_memory", 0)),
                shared_memory=int(getattr(facts, "shared_memory_per_block", 0)),
                multiprocessors=int(getattr(facts, "multi_processor_count", 0)),
                warp_size=int(getattr(facts, "warp_size", 0)),
                core_clock=_megahertz(facts, "clock_rate"),
                memory_clock=_megahertz(facts, "memory_clock_rate"),
            )
        )
    return _counted(found)


def _megahertz(facts: Any, name: str) -> int:
    """Return a clock that torch reports in kHz; 0 where it does not."""
    return round(int(getattr(facts, name, 0)) / 1000)


def _counted(found: Iterable[Accelerator]) -> list[Accelerator]:
    return [dataclasses.replace(item, count=n) for item, n in Counter(found).items()]


def _nvidia_driver(text: str) -> str:
    """Return ``580.65.06`` of the first line that the kernel's module writes of itself."""
    match = re.search(r"Kernel Module\s.*?(\d+\.\d+(\.\d+)?)", text)
    return "" if match is None else match[1]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


_READERS: Final[dict[str, Callable[[Any], Iterable[Accelerator]]]] = {
    "cuda": _of_cuda,
    "mps": _of_mps,
    "xpu": _of_xpu,
}
