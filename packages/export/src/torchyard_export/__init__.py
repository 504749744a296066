"""Export that verifies what it made, recurrent models with dynamic time included."""

from __future__ import annotations

from torchyard_export._api import export
from torchyard_export._artifact.artifact import Artifact, load
from torchyard_export._audit.parity import Stage
from torchyard_export._capture.dimension import Dimension
from torchyard_export._errors import ArtifactError, ExportError, InputError
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._quantization.api import Quantized, quantize
from torchyard_export._report.quantization import Accuracy, FloatLayer, QuantizationReport
from torchyard_export._report.report import Report
from torchyard_export._runner import write_runner

__all__ = [
    "Accuracy",
    "Artifact",
    "ArtifactError",
    "Dimension",
    "ExportError",
    "Finding",
    "FindingKind",
    "FloatLayer",
    "InputError",
    "QuantizationReport",
    "Quantized",
    "Report",
    "Stage",
    "export",
    "load",
    "quantize",
    "write_runner",
]
