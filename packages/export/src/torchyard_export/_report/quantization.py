"""What quantization did to a model: layers, bytes, distance from float."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from torch import nn

__all__ = ["Accuracy", "FloatLayer", "QuantizationReport", "attach", "attached"]

_KEY: Final = "torchyard_export.quantization"


@dataclass(frozen=True, slots=True)
class FloatLayer:
    """A layer that stays in float.

    Attributes:
        name: of its module.
        kind: such as ``linear``.
        reason: why.
    """

    name: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far one output is from the float model's.

    Attributes:
        output: its path; empty where there is one output.
        sqnr: power of the float output over power of the difference, in decibels; None where
            nothing differs.
        max_error: greatest difference of an element.
        same_top: share of rows (of the last axis) whose greatest element is at the same place; it
            says something of scores of classes. None where rows have one element.
    """

    output: str
    sqnr: float | None
    max_error: float
    same_top: float | None


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """What was quantized, and what it cost.

    Attributes:
        model: the class of the model.
        target, activations: as they were asked for.
        calibration: how many calls the scales are of.
        int8: kind of layer -> how many multiply int8 codes.
        float_layers: the layers that do not, with the reason.
        float_products: operator -> how many products of two activations, which stay in float.
        float_bytes, int8_bytes: of all weights, before and after.
        accuracy: of each floating output.
        compared: how many calls that was measured on, and of which kind they were.
        torchao: its version.
    """

    model: str
    target: str
    activations: str
    calibration: int
    int8: dict[str, int]
    float_layers: tuple[FloatLayer, ...]
    float_products: dict[str, int]
    float_bytes: int
    int8_bytes: int
    accuracy: tuple[Accuracy, ...]
    compared: str
    torchao: str

    @property
    def layers(self) -> int:
        """How many layers with a weight there are."""
        return sum(self.int8.values()) + len(self.float_layers)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the report, a statement per line."""
        return [
            *self._statements(),
            f"against the float model, on {self.compared}:",
            *(f"  {', '.join(_cells(item))}" for item in self.accuracy),
        ]

    def _statements(self) -> list[str]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.int8.items()))
        source = f"of {self.calibration} calls" if self.activations == "static" else "of each call"
        share = f"{sum(self.int8.values())} of {self.layers}"
        found = [
            f"quantized for {self.target}: {share} layers are int8 ({kinds or 'none'})",
            f"scales of activations: {self.activations}, {source}",
            f"weights: {self.float_bytes} bytes before, {self.int8_bytes} after",
        ]
        found += [
            f"in float: {layer.name} ({layer.kind}): {layer.reason}" for layer in self.float_layers
        ]
        found += [
            f"in float: {count} {name}, a product of two activations"
            for name, count in sorted(self.float_products.items())
        ]
        return found

    def renderable(self) -> RenderableType:
        """Return the report for a terminal, by rich."""
        table = Table("output", "SQNR", "greatest difference", "same greatest element")
        for item in self.accuracy:
            table.add_row(item.output or "the output", *_values(item))
        return Group(*self._statements(), f"against the float model, on {self.compared}:", table)


def _values(item: Accuracy) -> tuple[str, str, str]:
    return (
        "no difference" if item.sqnr is None else f"{item.sqnr:.1f} dB",
        f"{item.max_error:.3g}",
        "" if item.same_top is None else f"{item.same_top:.1%}",
    )


def _cells(item: Accuracy) -> list[str]:
    sqnr, most, top = _values(item)
    found = [f"{item.output or 'the output'}: SQNR {sqnr}", f"greatest difference {most}"]
    return [*found, f"same greatest element {top}"] if top else found


def attach(model: nn.Module, report: QuantizationReport) -> None:
    """Keep a report with its graph, for export to find."""
    meta: dict[str, Any] = model.meta  # type: ignore[assignment] # of a GraphModule
    meta[_KEY] = report


def attached(model: nn.Module) -> QuantizationReport | None:
    """Return the report that a graph was given; None where it has none."""
    meta = getattr(model, "meta", None)
    found = meta.get(_KEY) if isinstance(meta, dict) else None
    return found if isinstance(found, QuantizationReport) else None
