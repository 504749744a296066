"""Twelve models that a plain export turns into programs that lie, and the name each is caught by.

``python -m packages.export.tests.programs.lies`` prints the table, with what
``torch.export.export`` alone makes of each model.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn

from torchyard_export import ExportError, FindingKind, export

temperature = 2.0
AXES = {"x": {0: "batch:1..8", 1: "time:1..32"}}


@dataclass(frozen=True, slots=True)
class Lie:
    """A model, how it is called, and what it must be caught by."""

    name: str
    kind: FindingKind
    make: Callable[[], nn.Module]
    dynamic: dict[str, Any] = field(default_factory=lambda: dict(AXES))
    args: Callable[[], tuple[Any, ...]] = field(default=lambda: (torch.randn(3, 7, 4),))
    targets: tuple[str, ...] = ("pt2",)


class SpecialisedDimension(nn.Module):
    """Its loop over time is written out at the example's length."""

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], x.shape[2])
        for step in range(x.shape[1]):
            state = torch.tanh(state + x[:, step])
        return state


class DataDependentBranch(nn.Module):
    """The branch that the example takes would be the only one."""

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 0:
            return x + 1
        return x - 1


class InPlaceOnInput(nn.Module):
    """It normalises the caller's tensor."""

    def forward(self, x: Tensor) -> Tensor:
        x -= x.mean(-1, keepdim=True)
        return x * 2


class DropoutLeftOn(nn.Module):
    """Functional dropout does not know of evaluation mode."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.1)


class BakedDevice(nn.Module):
    """Positions are made on the CPU, wherever the input is."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[1], dtype=x.dtype, device="cpu")[:, None]


class NonContiguousAssumption(nn.Module):
    """The output depends on the memory order of the elements."""

    def forward(self, x: Tensor) -> Tensor:
        if x.is_contiguous():
            return x * 2
        return x * 3


class WrongDtypePromotion(nn.Module):
    """A constant in float64 widens everything behind it."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.full((1,), 0.5, dtype=torch.float64, device=x.device)


class CapturedRandomState(nn.Module):
    """The number that is drawn while recording stays."""

    def forward(self, x: Tensor) -> Tensor:
        return x * random.random()


class HiddenGlobal(nn.Module):
    """It reads a variable of its module, which anybody may set later."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x / temperature, -1)


class StaleBuffer(nn.Module):
    """A mask is kept from the first call on."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.ones(x.shape[1], x.shape[1]).tril()
        return self.mask.to(x.dtype) @ x


class PythonNumber(nn.Module):
    """The greatest element becomes a Python number."""

    def forward(self, x: Tensor) -> Tensor:
        scale = int(x.abs().max()) + 1
        return x / scale


class WrongResetOrder(nn.Module):
    """A GRU, which this target computes with the reset gate before the recurrent matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.rnn(x)[0]
        return output


LIES = (
    Lie("specialised dimension", FindingKind.SPECIALISED_DIMENSION, SpecialisedDimension),
    Lie("data-dependent branch", FindingKind.DATA_DEPENDENT_BRANCH, DataDependentBranch),
    Lie("in-place on input", FindingKind.INPUT_MUTATION, InPlaceOnInput),
    Lie("dropout left on", FindingKind.TRAINING_BEHAVIOUR, DropoutLeftOn),
    Lie("baked device", FindingKind.BAKED_DEVICE, BakedDevice),
    Lie("non-contiguous assumption", FindingKind.LAYOUT_ASSUMPTION, NonContiguousAssumption),
    Lie("wrong dtype promotion", FindingKind.DTYPE_PROMOTION, WrongDtypePromotion),
    Lie("captured random state", FindingKind.RANDOM_STATE, CapturedRandomState),
    Lie("hidden global", FindingKind.HIDDEN_GLOBAL, HiddenGlobal),
    Lie("stale buffer", FindingKind.STALE_BUFFER, StaleBuffer),
    Lie("python int from tensor", FindingKind.PYTHON_NUMBER, PythonNumber),
    Lie(
        *("wrong GRU reset order", FindingKind.GRU_RESET_ORDER, WrongResetOrder),
        targets=("lying.reset",),
    ),
)


def caught(lie: Lie) -> ExportError | None:
    """Export a lie; return what caught it."""
    torch.manual_seed(0)
    try:
        export(lie.make().eval(), lie.args(), dynamic=lie.dynamic, targets=lie.targets)
    except ExportError as error:
        return error
    return None


def stock(lie: Lie) -> str:
    """Say what ``torch.export.export`` alone makes of the model."""
    torch.manual_seed(0)
    auto = {"x": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
    try:
        # It prints the graph of what fails.
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            torch.export.export(lie.make().eval(), lie.args(), dynamic_shapes=auto)
    except Exception as error:
        return f"{type(error).__name__}"
    return "exports it"


def main() -> int:
    """Print the table; return the number of models that were not caught by name."""
    from packages.export.tests.programs.lying import offered

    # What torch logs of a failure is not part of the table.
    logging.disable(logging.WARNING)
    missed = 0
    with offered():
        for lie in LIES:
            error = caught(lie)
            kinds = [finding.kind for finding in error.findings] if error else []
            first = error.findings[kinds.index(lie.kind)] if error and lie.kind in kinds else None
            missed += first is None
            where = ""
            if first is not None and first.where:
                where = f"{first.where.rpartition('/')[2]}: {first.line}"
            verdict = f"caught: {lie.kind}" if first else f"MISSED: {', '.join(kinds)}"
            print(f"{lie.name:26} {verdict:36} stock: {stock(lie):28} {where}")
    print(f"{len(LIES) - missed} of {len(LIES)} caught by name")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
