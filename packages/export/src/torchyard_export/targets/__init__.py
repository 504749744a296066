"""The targets of this package; the registry finds them here, and nothing else imports them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_export.contract import CONTRACT, ExportRequest
from torchyard_export.targets._device import supports_device

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return what this plugin offers; imports no torch."""
    if contract != CONTRACT:
        return []
    return [
        Implementation(CONTRACT, "export.pt2", _always, _load_pt2),
        Implementation(CONTRACT, "export.aten", _always, _load_aten),
        Implementation(CONTRACT, "export.onnx", _onnx, _load_onnx),
        Implementation(CONTRACT, "export.executorch", _executorch, _load_executorch),
        Implementation(CONTRACT, "export.aotinductor", supports_device, _load_portable),
        Implementation(CONTRACT, "export.aotinductor_native", supports_device, _load_native),
    ]


def _always(request: ExportRequest, platform: Platform) -> Verdict:
    return Verdict.yes("torch's own form of a program")


def _onnx(request: ExportRequest, platform: Platform) -> Verdict:
    for module in ("onnx", "onnxruntime", "onnxscript"):
        if find_spec(module) is None:
            text = f"expected the package {module!r}, found none"
            return Verdict.no(ReasonCode.DEPENDENCY, text, "pip install 'torchyard-export[onnx]'")
    return Verdict.yes("ONNX, run by onnxruntime on the CPU")


def _executorch(request: ExportRequest, platform: Platform) -> Verdict:
    if find_spec("executorch") is None:
        text = "expected the package 'executorch', found none"
        hint = "pip install 'torchyard-export[executorch]'"
        return Verdict.no(ReasonCode.DEPENDENCY, text, hint)
    return Verdict.yes("a program for small devices, run by ExecuTorch's runtime")


def _load_pt2() -> Callable[..., Any]:
    from torchyard_export.targets.pt2 import Pt2

    return Pt2


def _load_aten() -> Callable[..., Any]:
    from torchyard_export.targets.aten import Aten

    return Aten


def _load_onnx() -> Callable[..., Any]:
    from torchyard_export.targets.onnx import Onnx

    return Onnx


def _load_executorch() -> Callable[..., Any]:
    from torchyard_export.targets.executorch import ExecuTorch

    return ExecuTorch


def _load_portable() -> Callable[..., Any]:
    from torchyard_export.targets.aotinductor import AotInductor

    return partial(AotInductor, portable=True)


def _load_native() -> Callable[..., Any]:
    from torchyard_export.targets.aotinductor import AotInductor

    return AotInductor
