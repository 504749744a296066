"""Kernels with one planted fault."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchyard_triton.lowering._modules import module_of

__all__ = ["mutated"]


def mutated(modules: Sequence[str], right: str, wrong: str) -> Any:
    """Return a module with the text of some modules of device functions, of which one differs.

    Args:
        modules: their names, each after those that it imports of them.
        right, wrong: the text that is replaced, which is there once or more, and by what.
    """
    parts = []
    for name in modules:
        source = Path(str(importlib.import_module(name).__file__)).read_text(encoding="utf-8")
        for imported in modules:
            source = re.sub(
                rf"^from {re.escape(imported)} import (\([^)]*\)|[^\n]*)\n", "", source, flags=re.M
            )
        parts.append(source.replace("from __future__ import annotations\n", ""))
    source = "\n".join(parts)
    assert right in source, f"no {right!r} in {modules}"
    broken = source.replace(right, wrong)
    return module_of(f"mutant{abs(hash(broken))}", broken)
