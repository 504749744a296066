"""Small programs that say what the installed torch does of what it promises."""

from __future__ import annotations

from torchyard_compile.probes._running import Outcome, Probed, differences, probe, programs

__all__ = ["Outcome", "Probed", "differences", "probe", "programs"]
