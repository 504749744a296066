"""What ``torchyard doctor`` shows beside an AMD GPU itself: the driver, and faults of torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from torchyard import Check, CheckStatus, hookimpl

__all__ = ["attention_check", "compile_check", "driver_check", "torchyard_checks"]

# Of the module that is not part of Linux itself, which has no version.
_DRIVER: Final = Path("/sys/module/amdgpu/version")
# Major version of ROCm -> the oldest driver that AMD's matrix of user and kernel space supports
# with each of its releases, written from memory: ROCm 6.0 brought 6.3, ROCm 6.2 brought 6.8.
_OLDEST: Final = {6: (6, 3), 7: (6, 8)}
# Of torch.backends.cuda.preferred_rocm_fa_library (torch 2.13) -> what computes.
_ATTENTION: Final = {
    "Default": "AOTriton's, torch's default",
    "AOTriton": "AOTriton's",
    "Ck": "composable kernel's",
}
# Fails on a host without a GPU (pytorch/pytorch issue 189194); fixed in later versions.
_WITHOUT_ISA: Final = (2, 13)


@hookimpl
def torchyard_checks() -> Sequence[Check]:
    """Judge driver and torch; imports torch, and nothing where it is not built for ROCm."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.version.hip:
        return []
    return list(_checks(torch))


def _checks(torch: Any) -> Iterator[Check]:
    runtime = str(torch.version.hip)
    if torch.cuda.is_available():
        driver = _DRIVER.read_text(encoding="utf-8").strip() if _DRIVER.is_file() else ""
        yield driver_check(driver, runtime)
        yield attention_check(torch.backends.cuda.preferred_rocm_fa_library().name)
    else:
        yield compile_check(str(torch.__version__))


def driver_check(driver: str, runtime: str) -> Check:
    """Compare the driver with what torch's ROCm needs.

    Args:
        driver: version of the kernel's module amdgpu; empty where it is Linux' own.
        runtime: the version of ROCm that torch was built for.
    """
    name = "driver of ROCm"
    if not driver:
        return Check(name, CheckStatus.PASS, "amdgpu is part of the kernel, and has no version")
    oldest = _OLDEST.get(_numbers(runtime)[:1][0] if _numbers(runtime) else 0)
    if oldest is None:
        text = f"amdgpu {driver}; nothing is known of drivers for ROCm {runtime}"
        return Check(name, CheckStatus.UNVERIFIED, text)
    if _numbers(driver)[:2] < oldest:
        least = ".".join(map(str, oldest))
        return Check(
            name,
            CheckStatus.WARN,
            f"amdgpu {driver} is older than {least}, the oldest for every ROCm {runtime[0]}",
            "install AMD's driver of this ROCm: amdgpu-install --usecase=dkms",
        )
    return Check(name, CheckStatus.PASS, f"amdgpu {driver} for ROCm {runtime}")


def attention_check(preferred: str) -> Check:
    """Say whose FlashAttention scaled_dot_product_attention, and so attention.sdpa, computes with.

    Args:
        preferred: the name of what ``torch.backends.cuda.preferred_rocm_fa_library()`` returns.
    """
    name = "FlashAttention of torch"
    whose = _ATTENTION.get(preferred)
    if whose is None:
        text = f"expected one of {', '.join(_ATTENTION)}, got {preferred}"
        return Check(name, CheckStatus.UNVERIFIED, text)
    return Check(
        name,
        CheckStatus.PASS,
        f"{whose}; torch.backends.cuda.preferred_rocm_fa_library() changes it",
    )


def compile_check(version: str) -> Check:
    """Say whether torch.compile works for the CPU of a host without a GPU.

    Args:
        version: torch's.
    """
    name = "torch.compile on the CPU"
    if _numbers(version)[:2] != _WITHOUT_ISA:
        return Check(name, CheckStatus.PASS, f"no fault is known of torch {version} without a GPU")
    return Check(
        name,
        CheckStatus.WARN,
        f"torch {version} finds no vector instructions of the CPU on a host without ROCm's "
        f'libraries, and fails with "Can\'t detect vectorized ISA for CPU"',
        "compile on a host with ROCm, or install torch's build for the CPU there",
    )


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return () if match is None else tuple(map(int, match[0].split(".")))
