"""What the packages of torchyard contain, so that an error can name the one that is missing.

The manifest of a plugin that is not installed cannot be read. A test compares this table with the
manifests.
"""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {
    "autotune": "cpu",
    "cache": "cache",
    "certify": "conformance",
    "demo": "attention",
    "demo-ranks": "context-parallel",
    "export": "export",
    "flight": "collectives",
    "probe": "compile",
    "release": "release",
}
"""Command -> the package that has it."""

OPS: Final = {
    "attention": "attention",
    "attention_backward": "attention",
    "export_target": "export",
    "graph_capture": "kernels",
    "linear": "kernels",
    "pointwise": "kernels",
    "recurrent": "kernels",
    "recurrent_backward": "kernels",
    "shared_memory": "collectives",
    "topk": "kernels",
}
"""Op of a contract -> the package whose component defines it."""

DEVICES: Final = frozenset({"cpu", "cuda", "mps", "xpu"})
"""Device types of torch's own for which there is a package of that name."""

HIP_DEVICES: Final = {"cuda": "rocm"}
"""Device type of a torch that is built for ROCm -> the package for it, where that is another."""

IMPLEMENTED_ELSEWHERE: Final = {"shared_memory": "cpu"}
"""Op that its component defines and does not implement -> the package that does."""


def how_to_install(package: str) -> str:
    """Return the command that installs a package of torchyard."""
    return f"pip install torchyard[{package}]"


def owner_of(contract: str) -> str:
    """Return who would define a contract, and how to have it, to be put after a phrase.

    Empty where no package of torchyard would.

    Args:
        contract: ``op`` or ``op/version``.
    """
    package = OPS.get(contract.partition("/")[0], "")
    if not package:
        return ""
    return f"; it is a contract of torchyard-{package}: {how_to_install(package)}"
