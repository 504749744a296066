"""Findings: ways in which a program would not do what its model does, by name."""

from __future__ import annotations

import linecache
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from torchyard import arguments


class FindingKind(StrEnum):
    """Every way to lie that export knows; the values are stable and are used in ``accept=``."""

    SPECIALISED_DIMENSION = "specialised-dimension"
    NARROWED_DIMENSION = "narrowed-dimension"
    DATA_DEPENDENT_BRANCH = "data-dependent-branch"
    PYTHON_NUMBER = "python-number-from-tensor"
    INPUT_MUTATION = "input-mutation"
    TRAINING_BEHAVIOUR = "training-behaviour"
    BAKED_DEVICE = "baked-device"
    LAYOUT_ASSUMPTION = "layout-assumption"
    DTYPE_PROMOTION = "dtype-promotion"
    RANDOM_STATE = "random-state"
    HIDDEN_GLOBAL = "hidden-global"
    STALE_BUFFER = "stale-buffer"
    GRU_RESET_ORDER = "gru-reset-order"
    WRONG_RESULT = "wrong-result"
    MODEL_REFUSES = "model-refuses"
    NOT_TRACEABLE = "not-traceable"
    TARGET_REFUSES = "target-refuses"
    NOTHING_QUANTIZED = "nothing-quantized"
    FLOAT_KERNELS = "float-kernels"


REMEDIES: Final = {
    FindingKind.SPECIALISED_DIMENSION: "compute from x.shape with tensor operations instead of a "
    "Python loop or a constant, or leave the dimension out of dynamic=",
    FindingKind.NARROWED_DIMENSION: "make the line hold for the whole range, or ask for the "
    "range that it holds for",
    FindingKind.DATA_DEPENDENT_BRANCH: "choose with torch.where or torch.cond, or decide outside "
    "of the model",
    FindingKind.PYTHON_NUMBER: "keep the number in a tensor",
    FindingKind.INPUT_MUTATION: "clone the input before the model changes it",
    FindingKind.TRAINING_BEHAVIOUR: "call model.eval(), and pass training=self.training to "
    "functional dropout",
    FindingKind.BAKED_DEVICE: "make tensors on the input's device: device=x.device, or a buffer",
    FindingKind.LAYOUT_ASSUMPTION: "use reshape instead of view and as_strided, and decide nothing "
    "by strides",
    FindingKind.DTYPE_PROMOTION: "give constants the model's dtype: dtype=x.dtype",
    FindingKind.RANDOM_STATE: "make randomness an input",
    FindingKind.HIDDEN_GLOBAL: "make the value an attribute of the module or an input; a constant "
    "is written in capitals",
    FindingKind.STALE_BUFFER: "register the tensor as a buffer that forward does not change, or "
    "make state an input and an output",
    FindingKind.GRU_RESET_ORDER: "apply the reset gate behind the recurrent matrix, as nn.GRU does",
    FindingKind.WRONG_RESULT: "report it with the case that is named; where forward uses the data "
    "of a packed sequence other than row by row, pad it first: a program has padded rows there",
    FindingKind.MODEL_REFUSES: "narrow the ranges, give value ranges with values=, or draw inputs "
    "with sample=",
    FindingKind.NOT_TRACEABLE: "change the line so that torch.export can record it",
    FindingKind.TARGET_REFUSES: "do what the reason says, or leave the target out of targets=",
    FindingKind.FLOAT_KERNELS: "quantize with keep= of the layers that gain nothing, or compile on "
    "a processor for which torch has int8 kernels",
    FindingKind.NOTHING_QUANTIZED: "export the model itself, or quantize one with linear or "
    "convolution layers whose weights are stored",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which a program would differ from its model.

    Attributes:
        kind: its name.
        text: what was expected and what came.
        where: ``file:line`` of the user's code; empty where no line is to blame.
    """

    kind: FindingKind
    text: str
    where: str = ""

    def __post_init__(self) -> None:
        arguments.instance("Finding", "kind", self.kind, FindingKind)
        for name in ("text", "where"):
            arguments.instance("Finding", name, getattr(self, name), str, "a string")

    @property
    def line(self) -> str:
        """The user's source line; empty where it cannot be read."""
        name, _, number = self.where.rpartition(":")
        return linecache.getline(name, int(number)).strip() if number.isdigit() else ""

    @property
    def remedy(self) -> str:
        """What to do about findings of this kind."""
        return REMEDIES[self.kind]

    def render(self) -> str:
        """Return the finding for a person: kind, text, line, remedy."""
        parts = [f"{self.kind}: {self.text}"]
        if self.where:
            parts.append(f"  at {self.where}" + (f"\n    {self.line}" if self.line else ""))
        parts.append(f"  remedy: {self.remedy}")
        return "\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return asdict(self)
