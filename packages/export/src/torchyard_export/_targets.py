"""Targets by name, through the registry."""

from __future__ import annotations

from torch.export import ExportedProgram

from torchyard import resolve
from torchyard_export.contract import CONTRACT, ExportRequest, Target


def implementation_of(name: str) -> str:
    """Return an implementation's whole name; a bare word is a target of this package."""
    return name if "." in name else f"export.{name}"


def find_target(name: str, request: ExportRequest) -> Target:
    """Return a target.

    Raises:
        UnsupportedError: no plugin offers it, or it refuses; the message holds the trace.
    """
    target: Target = resolve(CONTRACT, request, use=implementation_of(name))()
    return target


def request_of(program: ExportedProgram, device: str) -> ExportRequest:
    """Describe a program for the registry."""
    ops = frozenset(str(node.target) for node in program.graph.nodes if node.op == "call_function")
    return ExportRequest(device, ops, bool(program.range_constraints))
