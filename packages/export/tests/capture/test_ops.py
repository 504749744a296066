"""The recurrent ops compute what torch's modules compute, gradients included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

import torchyard_export

_KINDS = {
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
    "rnn": (nn.RNN, {"nonlinearity": "relu"}),
}


def _called(name: str, module: Any, x: Tensor, lengths: Tensor | None, states: list[Tensor]) -> Any:
    op = getattr(torch.ops.torchyard_export, name)
    words = ("relu",) if name == "rnn" else ()
    return op(
        *(x, lengths, *states, module._flat_weights, module.bias),
        *(module.num_layers, module.bidirectional, *words),
    )


def _made(name: str, layers: int, both: bool, bias: bool, batch: int) -> tuple[Any, list[Tensor]]:
    kind, options = _KINDS[name]
    module = kind(3, 4, layers, bidirectional=both, bias=bias, **options).double()
    rows = layers * (2 if both else 1)
    count = 2 if name == "lstm" else 1
    return module, [torch.randn(rows, batch, 4, dtype=torch.float64) for _ in range(count)]


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(_KINDS)),
    layers=st.integers(1, 3),
    both=st.booleans(),
    bias=st.booleans(),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    seed=st.integers(0, 9),
)
def test_an_op_with_lengths_is_a_packed_module(
    name: str, layers: int, both: bool, bias: bool, lengths: list[int], seed: int
) -> None:
    torch.manual_seed(seed)
    module, states = _made(name, layers, both, bias, len(lengths))
    ends = torch.tensor(lengths)
    x = torch.randn(7, len(lengths), 3, dtype=torch.float64)
    state = tuple(states) if name == "lstm" else states[0]
    packed = pack_padded_sequence(x, ends, enforce_sorted=False)
    output, final = module(packed, state)
    padded, _ = pad_packed_sequence(output, total_length=7)
    finals = final if name == "lstm" else (final,)
    got = _called(name, module, x, ends, states)
    assert_close(list(got), [padded, *finals], rtol=0, atol=0)


@pytest.mark.parametrize("with_lengths", [False, True], ids=["padded", "lengths"])
@pytest.mark.parametrize("name", sorted(_KINDS))
def test_an_op_has_the_modules_gradients(name: str, with_lengths: bool) -> None:
    torch.manual_seed(0)
    module, states = _made(name, 2, True, True, 3)
    x = torch.randn(5, 3, 3, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([2, 5, 3]) if with_lengths else None
    state = tuple(states) if name == "lstm" else states[0]
    given: Any = x
    if lengths is not None:
        given = pack_padded_sequence(x, lengths, enforce_sorted=False)
    output, final = module(given, state)
    if lengths is not None:
        output = pad_packed_sequence(output)[0]
    last = final[1] if name == "lstm" else final
    wanted = torch.autograd.grad(
        output.square().sum() + last.sum(), [x, *module.parameters()], retain_graph=True
    )
    found = _called(name, module, x, lengths, states)
    got = torch.autograd.grad(found[0].square().sum() + found[-1].sum(), [x, *module.parameters()])
    assert_close(list(got), list(wanted), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(_KINDS))
def test_an_op_passes_torchs_own_checks(name: str) -> None:
    torch.manual_seed(0)
    module, states = _made(name, 1, False, True, 2)
    op = getattr(torch.ops.torchyard_export, name).default
    words = ("relu",) if name == "rnn" else ()
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    weights = [weight.detach() for weight in module._flat_weights]
    torch.library.opcheck(op, (x, None, *states, weights, True, 1, False, *words))
    lengths = torch.tensor([4, 1])
    torch.library.opcheck(op, (x, lengths, *states, weights, True, 1, False, *words))


def test_the_ops_come_with_the_package() -> None:
    assert torchyard_export.__name__ == torch.ops.torchyard_export.name
