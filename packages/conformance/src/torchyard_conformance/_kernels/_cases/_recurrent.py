"""Kinds of cases of ``recurrent/1`` and ``recurrent_backward/1``; _recurrent_grids lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

import torchyard_kernels  # noqa: F401  (registers the ops)
from torchyard_conformance._kernels._case import (
    Case,
    Given,
    implementation,
)
from torchyard_conformance._kernels._cases._naive_recurrent import naive_recurrent
from torchyard_conformance._kernels._tensors import mapped, named
from torchyard_kernels.recurrent.contract import (
    BACKWARD,
    FORWARD,
    CellWeights,
    RecurrentCall,
    RecurrentKind,
    RecurrentRequest,
    RecurrentResult,
    gates,
)

__all__ = ["BackwardCase", "MovedCase", "RecordedCase", "RecurrentCase", "gradients_of"]

# The component's own forward that returns a reserve.
_STEPS: Final = "kernels.steps"


@dataclass(frozen=True)
class RecurrentCase(Case):
    """A layer, or several.

    Attributes:
        kind, dtype, steps, sequences, inputs, hidden, proj, layers, bidirectional, bias: of the
            call.
        ragged: whether sequences have lengths, of which one is 1 and one all steps.
        reserve: whether the forward returns what a backward needs.
        bad: ``padding``: NaN behind each sequence's end; ``sequence``: NaN in the second one.
    """

    kind: RecurrentKind = RecurrentKind.GRU
    dtype: str = "float32"
    steps: int = 5
    sequences: int = 4
    inputs: int = 7
    hidden: int = 9
    proj: int = 0
    layers: int = 1
    bidirectional: bool = False
    bias: bool = True
    ragged: bool = False
    reserve: bool = False
    bad: str = ""

    contract: ClassVar[str] = FORWARD
    batch: ClassVar[Mapping[str, int]] = {
        **dict.fromkeys(("input", "hidden", "cell", "output"), 1),
        "lengths": 0,
        "reserve": 2,
    }

    def make(self) -> Given:
        """Return the call."""
        return (self._call(),)

    def _call(self) -> RecurrentCall:
        generator = torch.Generator().manual_seed(11)
        dtype: torch.dtype = getattr(torch, self.dtype)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(dtype)

        directions = 2 if self.bidirectional else 1
        outputs, rows = self.proj or self.hidden, gates(self.kind) * self.hidden
        weights = []
        for cell in range(self.layers * directions):
            inputs = self.inputs if cell < directions else outputs * directions
            found: list[Any] = [normal(rows, inputs), normal(rows, outputs)]
            found += [normal(rows), normal(rows)] if self.bias else [None, None]
            found += [normal(self.proj, self.hidden)] if self.proj else [None]
            scaled: Any = [item if item is None else item * self.hidden**-0.5 for item in found]
            weights.append(CellWeights(*scaled))
        count = self.layers * directions
        lengths = None
        if self.ragged:
            lengths = torch.randint(1, self.steps + 1, (self.sequences,), generator=generator)
            lengths[0], lengths[-1] = 1, self.steps
        given = normal(self.steps, self.sequences, self.inputs)
        if self.bad == "padding" and lengths is not None:
            given[torch.arange(self.steps)[:, None] >= lengths] = torch.nan
        if self.bad == "sequence":
            given[1, 1, 2] = torch.nan
        return RecurrentCall(
            self.kind,
            given,
            normal(count, self.sequences, outputs).tanh(),
            normal(count, self.sequences, self.hidden) if self.kind is RecurrentKind.LSTM else None,
            tuple(weights),
            self.layers,
            self.bidirectional,
            lengths,
            self.reserve,
        )

    def request(self, given: Given) -> RecurrentRequest:
        """Describe the call."""
        call: RecurrentCall = given[0]
        return RecurrentRequest(
            call.input.device.type,
            self.dtype,
            self.kind,
            steps=call.input.shape[0],
            batch=call.input.shape[1],
            input_size=self.inputs,
            hidden_size=self.hidden,
            proj_size=self.proj,
            num_layers=self.layers,
            bidirectional=self.bidirectional,
            bias=self.bias,
            ragged=self.ragged,
            grad=self.reserve,
            reserve=self.reserve,
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )

    def exact(self, given: Given) -> dict[str, Tensor]:
        """Take the steps in float64, and round nowhere."""
        wide = mapped(given[0], _wide)
        found = dict(named(_reference(wide)))
        if self.reserve:
            found["reserve"] = implementation(FORWARD, _STEPS)(wide).reserve
        return found

    def naive(self, given: Given) -> dict[str, Tensor]:
        """Take the steps in the inputs' dtype."""
        return dict(named(naive_recurrent(given[0])))

    def public(self, given: Given) -> Any:
        """Call the op."""
        words = _words(given[0])
        found = torch.ops.torchyard_kernels.recurrent(*words, self.reserve, "")
        output, hidden, cell, reserve = found
        return [
            output,
            hidden,
            *([] if given[0].cell is None else [cell]),
            *([reserve] if self.reserve else []),
        ]


@dataclass(frozen=True)
class BackwardCase(RecurrentCase):
    """Gradients, from the reserve of the component's own forward.

    Attributes:
        reserve: always.
        whole: whether all outputs have gradients; else the output alone.
    """

    reserve: bool = True
    whole: bool = True

    contract: ClassVar[str] = BACKWARD
    batch: ClassVar[Mapping[str, int]] = {}
    contiguous: ClassVar[bool] = False

    def make(self) -> Given:
        """Return the call, the reserve, and gradients of the outputs."""
        call = self._call()
        forward: RecurrentResult = implementation(FORWARD, _STEPS)(replace(call, reserve=True))
        generator = torch.Generator().manual_seed(13)

        def gradient(of: Tensor | None) -> Tensor | None:
            if of is None:
                return None
            return torch.randn(of.shape, generator=generator).to(of.dtype)

        rest = (gradient(forward.hidden), gradient(forward.cell)) if self.whole else (None, None)
        return call, forward.reserve, gradient(forward.output), *rest

    def given(self, device: str = "cpu") -> Given:
        """Return what a backward is given; the reserve is contiguous, as a forward returns it."""
        call, reserve, *rest = super().given(device)
        return call, reserve.contiguous(), *rest

    def exact(self, given: Given) -> dict[str, Tensor]:
        """Differentiate float64 steps."""
        return gradients_of(_reference, mapped(given, _wide))

    def naive(self, given: Given) -> dict[str, Tensor]:
        """Differentiate naive steps."""
        return gradients_of(naive_recurrent, given)

    def public(self, given: Given) -> Any:
        """Call the op."""
        call, reserve, *rest = given
        found = torch.ops.torchyard_kernels.recurrent_backward(*_words(call), reserve, *rest)
        gradients, hidden, cell, weights = found
        return [gradients, hidden, *([] if call.cell is None else [cell]), weights]


@dataclass(frozen=True)
class RecordedCase(BackwardCase):
    """Gradients that torch records of a forward that says that it is differentiable."""

    reserve: bool = False
    contract: ClassVar[str] = FORWARD

    def request(self, given: Given) -> RecurrentRequest:
        """Describe the forward, whose gradients are asked for."""
        return replace(super().request(given), grad=True)


@dataclass(frozen=True)
class MovedCase(BackwardCase):
    """Gradients as a function of the call, to be differentiated in forward mode."""

    # It is computed of the rest, and an op takes it for that.
    constant: ClassVar[frozenset[str]] = frozenset({"[1]"})

    def naive(self, given: Given) -> dict[str, Tensor]:
        """Differentiate naive steps, in a form that forward mode goes through."""
        call, _, *rest = given
        leaves = {path: item for path, item in named(call) if item.is_floating_point()}

        def outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
            new = dict(zip(leaves, tensors, strict=True))
            found = naive_recurrent(mapped(call, lambda path, item: new.get(path, item)))
            made = (found.output, found.hidden, found.cell)
            pairs = zip(made, rest, strict=True)
            return tuple([one for one, slope in pairs if one is not None and slope is not None])

        _, pull, *_ = torch.func.vjp(outputs, *leaves.values())
        slopes = pull(tuple([slope for slope in rest if slope is not None]))
        return dict(zip(leaves, slopes, strict=True))


def gradients_of(forward: Callable[..., RecurrentResult], given: Given) -> dict[str, Tensor]:
    """Return the gradients that torch records of a forward, by the names of its inputs.

    Args:
        forward: differentiable.
        given: what a backward is given.

    Raises:
        RuntimeError: nothing was recorded, or not of all inputs.
    """
    call, _, *rest = given

    def leaf(path: str, tensor: Tensor) -> Tensor:
        return tensor.detach().requires_grad_(tensor.is_floating_point())

    with torch.enable_grad():
        call = mapped(call, leaf)
        found = forward(call)
        leaves = {name: tensor for name, tensor in named(call) if tensor.requires_grad}
        pairs = [
            (output, grad)
            for output, grad in zip((found.output, found.hidden, found.cell), rest, strict=True)
            if output is not None and grad is not None
        ]
        outputs, gradients = zip(*pairs, strict=True)
        slopes = torch.autograd.grad(outputs, list(leaves.values()), gradients)
    return dict(zip(leaves, slopes, strict=True))


def _wide(path: str, tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _reference(call: RecurrentCall) -> RecurrentResult:
    found: RecurrentResult = implementation(FORWARD, "kernels.reference")(call)
    return found


def _words(call: RecurrentCall) -> tuple[Any, ...]:
    weights = [tensor for path, tensor in named(call.weights)]
    states = (call.input, call.hidden, call.cell, weights, call.lengths)
    return *states, str(call.kind), call.num_layers, call.bidirectional
