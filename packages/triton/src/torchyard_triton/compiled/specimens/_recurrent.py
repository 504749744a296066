"""The launches of recurrent layers that are compiled."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from torchyard_kernels.recurrent.contract import (
    BACKWARD,
    FORWARD,
    CellWeights,
    RecurrentCall,
    RecurrentKind,
    gates,
    reserve_columns,
)
from torchyard_triton._launch import Launch
from torchyard_triton.compiled.specimens._specimen import Specimen
from torchyard_triton.recurrent._backward import BackwardSteps
from torchyard_triton.recurrent._forward import ForwardSteps

__all__ = ["recurrent_specimens"]

_STEPS, _BATCH, _SIZE = 8, 64, 512


def recurrent_specimens(architecture: str) -> Iterator[Specimen]:
    """Yield a step and its gradients, by kind; of any architecture the same."""
    del architecture
    for kind in (RecurrentKind.LSTM, RecurrentKind.GRU, RecurrentKind.RNN_TANH):
        yield Specimen(FORWARD, "recurrent_step", str(kind), partial(_step, kind))
        yield Specimen(BACKWARD, "recurrent_step_gradient", str(kind), partial(_gradient, kind))


def _call(kind: RecurrentKind) -> RecurrentCall:
    count = gates(kind) * _SIZE

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16)

    weights = CellWeights(empty(count, _SIZE), empty(count, _SIZE), empty(count), empty(count))
    state = empty(1, _BATCH, _SIZE)
    return RecurrentCall(
        *(kind, empty(_STEPS, _BATCH, _SIZE), state),
        state if kind is RecurrentKind.LSTM else None,
        *((weights,), 1, False),
        torch.full((_BATCH,), _STEPS),
        reserve=True,
    )


def _reserve(kind: RecurrentKind) -> torch.Tensor:
    return torch.empty((_STEPS, _BATCH, reserve_columns(kind, _SIZE, _SIZE)))


def _step(kind: RecurrentKind) -> Launch:
    call = _call(kind)
    sums = torch.empty((_STEPS, _BATCH, gates(kind) * _SIZE))
    run = ForwardSteps(
        *(call, 0, sums, torch.empty_like(call.input), torch.empty(_BATCH, dtype=torch.int32)),
        reserve=_reserve(kind),
        tiles=None,
    )
    return run.launch(3)


def _gradient(kind: RecurrentKind) -> Launch:
    call = _call(kind)
    run = BackwardSteps(
        *(call, 0, _reserve(kind), torch.empty_like(call.input), None, None),
        tiles=None,
    )
    return run.launches()[3]
