"""The machine, read once and described as data."""

from __future__ import annotations

import os
import platform as _stdlib_platform
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Final

_CPUINFO: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Describe the accelerators of one model in a machine, as facts.

    A number that is not known is 0, a text that is not known is empty.

    Attributes:
        device: torch device type, such as ``cuda`` (AMD's too), ``xpu`` or ``mps``.
        architecture: what code is compiled for: ``sm_90``, ``gfx942``, ``bmg``, ``apple9``.
        name: the model, as its driver names it.
        count: how many of them there are.
        memory: bytes of memory of one of them.
        shared_memory: bytes of shared memory that one block of threads may have.
        multiprocessors: streaming multiprocessors, compute units, or cores.
        warp_size: threads that run in lockstep.
        core_clock: MHz that the multiprocessors reach at most.
        memory_clock: MHz that the memory reaches at most, as the driver counts them.
        driver: version of the driver.
        runtime: version of CUDA, ROCm or Level Zero that torch was built with.
    """

    device: str
    architecture: str
    name: str
    count: int = 1
    memory: int = 0
    shared_memory: int = 0
    multiprocessors: int = 0
    warp_size: int = 0
    core_clock: int = 0
    memory_clock: int = 0
    driver: str = ""
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class Platform:
    """Describe a machine; frozen and hashable, so that any machine can be written by hand.

    Attributes:
        system: ``Linux``, ``Darwin`` or ``Windows``.
        machine: ``x86_64``, ``aarch64``, ...
        cpu_features: lower-case names as Linux spells them (``avx2``, ``avx512f``, ``asimd``).
        cpu_cores: the cores that this process may use.
        python: ``3.11.7``.
        torch: the installed torch's version, or None. Read from metadata: torch is not imported.
        devices: torch device types that can be used now. Device types other than ``cpu`` are
            known only once torch is imported.
        accelerators: the facts of each model of accelerator. Of this machine they are read when a
            request for such a device is first decided, since reading them initialises the device.
        libraries: name and version of what kernels are compiled with or taken from, such as
            ``triton`` and ``cudnn``; read with the accelerators.
    """

    system: str
    machine: str
    cpu_features: frozenset[str]
    cpu_cores: int
    python: str
    torch: str | None
    devices: frozenset[str]
    accelerators: tuple[Accelerator, ...] = ()
    libraries: tuple[tuple[str, str], ...] = ()

    def accelerator(self, device: str) -> Accelerator | None:
        """Return the first accelerator of a torch device type; None where nothing is known."""
        return next((item for item in self.accelerators if item.device == device), None)

    def library(self, name: str) -> str | None:
        """Return a library's version; None where it is not installed, or not known."""
        return next((version for known, version in self.libraries if known == name), None)


def probe_platform() -> Platform:
    """Read this machine. The only function of the registry that does; not cached."""
    return Platform(
        system=_stdlib_platform.system(),
        machine=_stdlib_platform.machine(),
        cpu_features=_cpu_features(),
        cpu_cores=_cpu_cores(),
        python=_stdlib_platform.python_version(),
        torch=torch_version(),
        devices=_torch_devices(),
    )


def torch_version() -> str | None:
    """Return the version of torch that this process has or would import; None without one."""
    module = imported_torch()
    if module is not None:
        return str(module.__version__)
    return _installed_torch_version()


def imported_torch() -> ModuleType | None:
    """Return torch where this process has imported it whole; None before and in the middle."""
    module = sys.modules.get("torch")
    # Its last import is the one of its device plugins; accelerator comes well before that.
    return module if hasattr(module, "accelerator") else None


def privateuse1_name() -> str | None:
    """Return the name that holds torch's single PrivateUse1 slot in this process.

    None where torch is not imported or nobody has claimed the slot.
    """
    if imported_torch() is None:
        return None
    from torchyard import torch_compat

    name = torch_compat.privateuse1_backend_name()
    return None if name == "privateuseone" else name


@lru_cache(maxsize=1)
def _installed_torch_version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def cpu_model() -> str:
    """Return the processor's name for a bug report; the architecture where it is not told."""
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            key, colon, value = line.partition(":")
            if colon and key.strip() in {"model name", "Model"}:
                return value.strip()
    return _stdlib_platform.processor() or _stdlib_platform.machine()


def _cpu_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _cpu_features() -> frozenset[str]:
    if not _CPUINFO.is_file():
        return frozenset()
    for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
        key, colon, value = line.partition(":")
        # x86 calls the line "flags", arm64 "Features".
        if colon and key.strip() in {"flags", "Features"}:
            return frozenset(value.lower().split())
    return frozenset()


def _torch_devices() -> frozenset[str]:
    if torch_version() is None:
        return frozenset()
    module = imported_torch()
    found = {"cpu"}
    # torch 2.14 names an accelerator that it was built for even where none is present, so presence
    # is asked for separately.
    if module is not None and module.accelerator.is_available():
        current = module.accelerator.current_accelerator()
        if current is not None:
            found.add(str(current.type))
    return frozenset(found)
