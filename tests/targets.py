"""Say, for every accelerator that torchyard knows, why this machine cannot verify it.

``python tests/targets.py`` prints a JSON object: target -> reason, the empty string where the
device is present. A reason comes from the host where the host alone can rule the device out, and
otherwise from torch, where torch can be imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["ACCELERATORS", "absence"]

ACCELERATORS: Final = ("cuda", "rocm", "xpu", "mps")

# Files of which a Linux host has at least one wherever torch could find the device.
_NODES: Final = {
    "cuda": ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvmap"),
    "rocm": ("/dev/kfd", "/dev/dxg"),
    "xpu": ("/dev/dri", "/dev/dxg"),
}
_IN_TORCH: Final[dict[str, Callable[[ModuleType], bool]]] = {
    "cuda": lambda torch: torch.version.hip is None and torch.cuda.is_available(),
    "rocm": lambda torch: torch.version.hip is not None and torch.cuda.is_available(),
    "xpu": lambda torch: torch.xpu.is_available(),
    "mps": lambda torch: torch.backends.mps.is_available(),
}


def absence(
    target: str,
    *,
    system: str = sys.platform,
    exists: Callable[[str], bool] = lambda path: Path(path).exists(),
    torch: ModuleType | None = None,
) -> str:
    """Return why the target cannot be verified; the empty string where nothing speaks against it.

    Args:
        target: one of ACCELERATORS.
        system: ``sys.platform`` of the machine in question.
        exists: whether a path exists on that machine.
        torch: the imported torch, or None where there is none to ask.
    """
    if target == "mps" and system != "darwin":
        return f"Metal needs macOS; this system is {system}"
    nodes = _NODES.get(target, ())
    if nodes and system == "linux" and not any(exists(node) for node in nodes):
        return f"no device: none of {', '.join(nodes)} exists"
    if torch is not None and not _IN_TORCH[target](torch):
        return f"torch {torch.__version__} finds no {target} device"
    return ""


def _main() -> None:
    torch = __import__("torch") if find_spec("torch") is not None else None
    print(json.dumps({target: absence(target, torch=torch) for target in ACCELERATORS}))


if __name__ == "__main__":
    _main()
