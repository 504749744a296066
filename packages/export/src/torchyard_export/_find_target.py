"""Targets by name, through the registry."""

from __future__ import annotations

from torch.export import ExportedProgram

from torchyard import Outcome, ReasonCode, UnsupportedError, resolve
from torchyard_export.contract import CONTRACT, ExportRequest, Target, TargetError


def implementation_of(name: str) -> str:
    """Return an implementation's whole name; a bare word is a target of this package."""
    return name if "." in name else f"export.{name}"


def find_target(name: str, request: ExportRequest) -> Target:
    """Return a target.

    Raises:
        TargetError: no plugin offers it, and which are offered; or it refuses, and why.
    """
    wanted = implementation_of(name)
    try:
        target: Target = resolve(CONTRACT, request, use=wanted)()
    except UnsupportedError as error:
        trace = error.decision.trace
        verdict = next(item.verdict for item in trace if item.name == wanted)
        if verdict.code is not ReasonCode.MISSING:
            hint = f"; {verdict.hint}" if verdict.hint else ""
            raise TargetError(f"{verdict.text}{hint}") from error
        offered = [item.name for item in trace if item.outcome is Outcome.NOT_ASKED]
        names = ", ".join(sorted(item.removeprefix("export.") for item in offered))
        raise TargetError(f"expected one of {names}; got {name!r}") from error
    return target


def request_of(program: ExportedProgram, device: str) -> ExportRequest:
    """Describe a program for the registry."""
    ops = frozenset(str(node.target) for node in program.graph.nodes if node.op == "call_function")
    return ExportRequest(device, ops, bool(program.range_constraints))
