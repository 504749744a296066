"""State of the whole process, which no implementation may leave changed."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

__all__ = ["changed_settings", "changed_state", "note_settings", "process_state"]

_NOTED: dict[str, object] = {}


def process_state() -> dict[str, object]:
    """Return what results depend on: the settings, and what changes in honest use as well."""
    return {
        **_settings(),
        "the state of torch's random numbers": bytes(torch.get_rng_state().tolist()),
        "the gradient mode": torch.is_grad_enabled(),
        "the inference mode": torch.is_inference_mode_enabled(),
        "the number of threads": torch.get_num_threads(),
        "the filters of warnings": list(warnings.filters),
    }


def changed_state(before: dict[str, object]) -> str:
    """Return what is not as it was, in words; empty where everything is."""
    after = process_state()
    return ", ".join(name for name, value in before.items() if after[name] != value)


def note_settings() -> None:
    """Record the settings as they are before any implementation was called."""
    if not _NOTED:
        _NOTED.update(_settings())


def changed_settings() -> str:
    """Return which settings are not as they were noted: what an earlier call changed for good."""
    now = _settings()
    return ", ".join(name for name, value in _NOTED.items() if now[name] != value)


def _settings() -> dict[str, object]:
    return {
        "the default dtype": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "the deterministic mode": torch.are_deterministic_algorithms_enabled(),
        "the precision of float32 products": torch.get_float32_matmul_precision(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "the treatment of denormal numbers": _keeps_denormals(),
        "the working folder": Path.cwd(),
    }


def _keeps_denormals() -> bool:
    smallest = torch.tensor(torch.finfo(torch.float32).smallest_normal)
    return bool(smallest / 2 > 0)
