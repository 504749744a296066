"""Run a check in the process that a law starts for it."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from torchyard import registry
from torchyard_conformance._device._autocast import check_autocast
from torchyard_conformance._device._collectives import check_collectives
from torchyard_conformance._device._compile import check_compile
from torchyard_conformance._device._events import check_events
from torchyard_conformance._device._graphs import check_graphs
from torchyard_conformance._device._layers import check_layers
from torchyard_conformance._device._memory import check_pinned, check_serialisation
from torchyard_conformance._device._operators import check_operators
from torchyard_conformance._device._profiler import check_profiler
from torchyard_conformance._device._random import check_random
from torchyard_conformance._outcome import Unverified, Violated

__all__ = ["CHECKS", "observe"]

CHECKS: Final[Mapping[str, Callable[[str], None]]] = MappingProxyType(
    {
        "autocast": check_autocast,
        "collectives": check_collectives,
        "compile": check_compile,
        "events": check_events,
        "graphs": check_graphs,
        "layers": check_layers,
        "operators": check_operators,
        "pinned": check_pinned,
        "profiler": check_profiler,
        "random": check_random,
        "serialisation": check_serialisation,
    }
)


def observe(check: str, device: str, path: str) -> None:
    """Try a check on a device, and write down what became of it.

    Args:
        check: a key of :data:`CHECKS`.
        device: the device's type.
        path: of the file: ``violated``, ``unverified`` or ``passed``, with a text.
    """
    outcome, text = "passed", ""
    status = registry().probe_device(device)
    if not status.available:
        outcome, text = "unverified", f"device {device!r}: {status.text}"
    else:
        try:
            CHECKS[check](device)
        except Violated as error:
            outcome, text = "violated", str(error)
        except Unverified as error:
            outcome, text = "unverified", str(error)
        except Exception as error:  # the device's, of whatever kind
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({last.name})"
            outcome = "violated"
    Path(path).write_text(json.dumps([outcome, text]), encoding="utf-8")
