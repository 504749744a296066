"""Programs of a layer's functions, cached where a function is known to do the same again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.linear._functions.function import NAMES, Recorded, record, recording_of
from torchyard_programs import Recordings

__all__ = ["EPILOGUES", "GATED_EPILOGUES", "PROLOGUES", "recorded"]


def _of_role(role: str, gated: bool) -> Recordings:
    """Return the recordings of a role; their context is the dtype of the inputs."""

    def recording(
        function: Callable[..., Tensor], device: torch.device, dtype: torch.dtype
    ) -> tuple[str, list[Tensor]]:
        return recording_of(function, role, NAMES[role, gated], dtype, device)

    return Recordings(recording)


PROLOGUES: Final = _of_role("prologue", False)
EPILOGUES: Final = _of_role("epilogue", False)
GATED_EPILOGUES: Final = _of_role("epilogue", True)
_OF_ROLE: Final = {
    ("prologue", False): PROLOGUES,
    ("epilogue", False): EPILOGUES,
    ("epilogue", True): GATED_EPILOGUES,
}


def recorded(
    function: Callable[..., Tensor],
    role: str,
    gated: bool,
    x: Tensor,
    leaves: Sequence[Tensor] = (),
) -> Recorded:
    """Record a function, or return a cached recording; arguments as for `record`."""
    if torch.compiler.is_compiling():
        return record(function, role, gated, x, leaves)
    text, captured = _OF_ROLE[role, gated].recorded(function, x.device, x.dtype)
    return Recorded(text, tuple(captured), NAMES[role, gated])
