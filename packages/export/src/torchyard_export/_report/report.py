"""The report of an export: what was asked, what was tried, how far off it was."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from torchyard.evidence.documents import structure
from torchyard_export._audit.parity import Stage
from torchyard_export._finding import Finding
from torchyard_export._report.quantization import QuantizationReport

NO_DIMENSION: Final = "none: the program takes the example's sizes alone; dynamic= frees them"


@dataclass(frozen=True, slots=True)
class Report:
    """What an export or a verification found.

    Attributes:
        model: the class of the model.
        dimensions: what was asked for, as ``name:least..most``.
        ruler: what results are measured against: ``float64``, or why not.
        sizes: the calls that were compared: sizes by dimension.
        stages: each form of the program, in the order in which they were made.
        accepted: findings that ``accept=`` let pass.
        notes: what could not be judged, and why; what is another version than before.
        versions: of torch and what else took part.
        quantization: of a model that :func:`torchyard_export.quantize` made; else None.
    """

    model: str
    dimensions: tuple[str, ...]
    ruler: str
    sizes: tuple[dict[str, int], ...]
    stages: tuple[Stage, ...]
    accepted: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    quantization: QuantizationReport | None = None

    @property
    def passed(self) -> bool:
        """Whether there was a stage, and every stage passed."""
        return bool(self.stages) and all(stage.passed for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            **asdict(self),
            "stages": [stage.to_json() for stage in self.stages],
            "accepted": [finding.to_json() for finding in self.accepted],
            "passed": self.passed,
        }

    @classmethod
    def from_json(cls, data: object) -> Report:
        """Read what :meth:`to_json` wrote; DocumentError where it is not."""
        # Whether it passed follows from the stages, and is no field.
        return structure(data, cls, "report", ignore_unknown=True)

    def render(self) -> str:
        """Return the report as text, a line per stage."""
        rows = [("stage", "cases", "wrong", "from float64", "of the bound", "seconds")]
        rows += [
            (
                s.name,
                str(s.cases),
                str(s.wrong),
                f"{s.error:.2e}",
                f"{s.ratio:.2f}",
                f"{s.seconds:.2f}",
            )
            for s in self.stages
        ]
        widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
        lines = [f"{self.model}: {'passed' if self.passed else 'REFUSED'}"]
        lines += [f"  dimension {text}" for text in self.dimensions or (NO_DIMENSION,)]
        lines.append(f"  measured against {self.ruler}")
        lines += [
            "  "
            + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        for stage in self.stages:
            lines += [f"  {stage.name}: {finding.render()}" for finding in stage.findings]
        lines += [f"  accepted: {finding.render()}" for finding in self.accepted]
        lines += [f"  note: {text}" for text in self.notes]
        if self.quantization is not None:
            lines += [f"  {text}" for text in self.quantization.lines()]
        return "\n".join(lines)
