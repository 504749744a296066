"""Which products of a quantized program a package of machine code computes in int8."""

from __future__ import annotations

import re
from typing import Final

import torch
from torch.export import ExportedProgram

from torchyard.evidence import raised_as
from torchyard.evidence.archives import read_zip
from torchyard_export._audit.rounding import LAYERS, ROUNDS, call_name, is_int8
from torchyard_export.contract import TargetError
from torchyard_export.targets._native_calls import PACKAGE_LIMITS

__all__ = ["int8_calls", "int8_layers", "rounds", "takes_signed_codes"]

_CODE: Final = re.compile(r"[^/]+/data/aotinductor/[^/]+/[^/]+\.wrapper\.cpp")
# oneDNN's products of codes, on a CPU and on Intel's GPUs; a declaration has no such call.
_CALL: Final = re.compile(rb"aoti_torch_\w+?__q(?:linear|conv)\w*_pointwise\w*\(")


def rounds(program: ExportedProgram) -> bool:
    """Return whether a program rounds activations to codes."""
    return any(call_name(node) in ROUNDS for node in program.graph.nodes)


def takes_signed_codes(program: ExportedProgram) -> bool:
    """Return whether activations become int8, as on Intel's GPUs; the CPU's kernels take uint8."""
    nodes = program.graph.nodes
    return any(call_name(node) in ROUNDS and node.args[-1] is torch.int8 for node in nodes)


def int8_layers(program: ExportedProgram) -> int:
    """Return how many layers of a program multiply codes."""
    nodes = program.graph.nodes
    return sum(call_name(node) in LAYERS and is_int8(node) for node in nodes)


def int8_calls(data: bytes) -> int:
    """Return how many products of codes the code of a package calls.

    Raises:
        TargetError: it is no package, or holds no code to be read.
    """
    with raised_as(lambda text: TargetError(f"expected an AOTInductor package: {text}")):
        found = read_zip(data, PACKAGE_LIMITS, folders=True, wanted=_CODE.fullmatch)
    if not found:
        raise TargetError("expected an AOTInductor package with its wrapper's code, found none")
    return sum(len(_CALL.findall(member.content)) for member in found.values())
