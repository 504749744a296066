"""Tell Dynamo and Inductor about the device."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from torchyard_simulated._loading import DEVICE, DeviceLoadError

__all__ = ["register"]


@cache
def _digest() -> str:
    """Return a digest of the sources that shape the generated programs."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def register() -> None:
    """Register the device with Dynamo and Inductor, once.

    Raises:
        DeviceLoadError: this torch's Inductor is another one than this package was written for.
    """
    try:
        from torchyard_simulated._inductor._interface import SimulatedInterface, SimulatedSource
        from torchyard_simulated._inductor._scheduling import SimulatedScheduling
        from torchyard_simulated._inductor._torch_compat import (
            CustomGraphModulePass,
            register_backend_for_device,
            register_device_op_overrides,
            register_interface_for_device,
        )
        from torchyard_simulated._inductor._wrapper import SimulatedWrapper
    except ImportError as error:
        raise DeviceLoadError(
            f"this torch's Inductor has not what the device extends: {error}",
            'use torch 2.13, or torch.compile(..., backend="aot_eager")',
        ) from error

    class _Sources(CustomGraphModulePass):
        """Changes no graph; its identity keeps programs of older sources out of the cache."""

        def __call__(self, gm: Any) -> None:
            return None

        def uuid(self) -> str:
            return _digest()

    for index in ("", *(f":{number}" for number in range(_count()))):
        register_interface_for_device(DEVICE + index, SimulatedInterface)
    register_device_op_overrides(DEVICE, SimulatedSource())
    register_backend_for_device(
        DEVICE, SimulatedScheduling, SimulatedWrapper, device_custom_pass=_Sources()
    )


def _count() -> int:
    from torchyard_simulated import runtime

    return runtime.device_count()
