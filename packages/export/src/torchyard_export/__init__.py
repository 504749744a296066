"""Export that verifies what it made, recurrent models with dynamic time included."""

from __future__ import annotations

from torchyard_export._artifact import Artifact, load
from torchyard_export._dimension import Dimension
from torchyard_export._errors import ArtifactError, ExportError, InputError
from torchyard_export._export import export
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._parity import Stage
from torchyard_export._report import Report
from torchyard_export._runner import write_runner

__all__ = [
    "Artifact",
    "ArtifactError",
    "Dimension",
    "ExportError",
    "Finding",
    "FindingKind",
    "InputError",
    "Report",
    "Stage",
    "export",
    "load",
    "write_runner",
]
