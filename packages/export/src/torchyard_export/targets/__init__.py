"""The targets of this package; the registry finds them here, and nothing else imports them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchyard import Implementation, Platform, Verdict, hookimpl
from torchyard_export.contract import CONTRACT, ExportRequest

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return what this plugin offers; imports no torch."""
    if contract != CONTRACT:
        return []
    return [Implementation(CONTRACT, "export.pt2", _always, _load_pt2)]


def _always(request: ExportRequest, platform: Platform) -> Verdict:
    return Verdict.yes("torch's own form of a program")


def _load_pt2() -> Callable[..., Any]:
    from torchyard_export.targets.pt2 import Pt2

    return Pt2
