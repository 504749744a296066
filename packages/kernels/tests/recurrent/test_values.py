"""Every implementation computes the equations; torch's modules are one way to write them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import hypothesis
import pytest
import torch
from hypothesis import given, settings
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torchyard_kernels as tk
from torchyard_kernels.recurrent.contract import RecurrentKind

from .cases import Case, cases, forwards, misses

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.sweep
@given(case=cases((*FLOATS, torch.float64)))
@settings(max_examples=120)
def test_every_implementation_is_as_near_to_float64_as_its_dtype_allows(case):
    call = case.call()
    found = forwards(call)
    assert {"kernels.steps", "kernels.reference", "kernels.aten"} <= set(found)
    for name, forward in found.items():
        with torch.no_grad():
            result = forward(call)
        hypothesis.note(f"{name}: {case}")
        assert not misses(result, call), name


@given(case=cases((torch.float64,)))
@settings(max_examples=60)
def test_the_functions_give_what_torchs_modules_give(case):
    call = case.call()
    weights = [weight for cell in call.weights for weight in cell if weight is not None]
    kind = {RecurrentKind.LSTM: torch.nn.LSTM, RecurrentKind.GRU: torch.nn.GRU}
    settings_of = {
        "num_layers": case.layers,
        "bidirectional": case.bidirectional,
        "bias": case.bias,
        "dtype": case.dtype,
    }
    if case.proj:
        settings_of["proj_size"] = case.proj
    if case.kind is RecurrentKind.RNN_RELU:
        settings_of["nonlinearity"] = "relu"
    module = kind.get(case.kind, torch.nn.RNN)(case.inputs, case.hidden, **settings_of)
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            parameter.copy_(weight)
        state = call.hidden if call.cell is None else (call.hidden, call.cell)
        if call.lengths is None:
            output, end = module(call.input, state)
        else:
            packed = pack_padded_sequence(call.input, call.lengths, enforce_sorted=False)
            packed, end = module(packed, state)
            output, _ = pad_packed_sequence(packed, total_length=case.steps)
        result = case.run(call)

    torch.testing.assert_close(result.output, output)
    ends = (end,) if call.cell is None else end
    for ours, theirs in zip((result.hidden, result.cell), ends, strict=False):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", list(RecurrentKind))
def test_sequences_in_pieces_give_what_they_give_whole(kind, dtype):
    case = Case(kind, dtype, steps=12, hidden=24, layers=2)
    call = case.call()
    whole = case.run(call)
    state, outputs = call, []
    for piece in call.input.split([1, 4, 7]):
        result = case.run(replace(state, input=piece))
        outputs.append(result.output)
        state = replace(state, hidden=result.hidden, cell=result.cell)
    # Between calls an lstm's cell state is rounded to the dtype; what else there is, always.
    if kind is RecurrentKind.LSTM:
        pieces = replace(whole, output=torch.cat(outputs), hidden=state.hidden, cell=state.cell)
        assert not misses(pieces, call)
    elif dtype == torch.float32:
        torch.testing.assert_close(torch.cat(outputs), whole.output, rtol=0, atol=1e-6)
    else:
        torch.testing.assert_close(
            torch.cat(outputs), whole.output, rtol=0, atol=2 * torch.finfo(dtype).eps
        )


@pytest.mark.parametrize("kind", list(RecurrentKind))
def test_nothing_beyond_a_sequences_end_reaches_a_result(kind):
    case = Case(kind, steps=6, batch=4, layers=2, bidirectional=True, ragged=True)
    call = case.call()
    there = torch.arange(case.steps)[:, None] < call.lengths
    poisoned = call.input.masked_fill(~there[..., None], float("nan"))
    assert poisoned.isnan().any()
    for name, forward in forwards(call).items():
        with torch.no_grad():
            clean, dirty = forward(call), forward(replace(call, input=poisoned))
        assert torch.equal(clean.output, dirty.output), name
        assert torch.equal(clean.hidden, dirty.hidden), name
        assert not clean.output[~there].any(), name


@pytest.mark.parametrize(
    ("kind", "batch_first"), list(itertools.product(RecurrentKind, [False, True])), ids=str
)
def test_one_sequence_needs_no_batch(kind, batch_first):
    case = Case(kind, batch=1, layers=2, bidirectional=True)
    call = case.call()
    batched = case.run(call)
    weights = [weight for cell in call.weights for weight in cell if weight is not None]
    more = {"num_layers": 2, "bidirectional": True, "batch_first": batch_first}
    given, hidden = call.input[:, 0], call.hidden[:, 0]
    if call.cell is not None:
        output, (hidden, cell) = tk.lstm(given, (hidden, call.cell[:, 0]), weights, **more)
        assert torch.equal(cell, batched.cell[:, 0])
    elif kind is RecurrentKind.GRU:
        output, hidden = tk.gru(given, hidden, weights, **more)
    else:
        nonlinearity = "tanh" if kind is RecurrentKind.RNN_TANH else "relu"
        output, hidden = tk.rnn(given, hidden, weights, nonlinearity=nonlinearity, **more)
    assert torch.equal(output, batched.output[:, 0])
    assert torch.equal(hidden, batched.hidden[:, 0])


def test_no_state_is_a_state_of_zeros():
    case = Case(RecurrentKind.LSTM, layers=2, state=False)
    call = case.call()
    weights = [weight for cell in call.weights for weight in cell if weight is not None]
    output, (hidden, cell) = tk.lstm(call.input, None, weights, num_layers=2)
    expected = case.run(call)
    assert torch.equal(output, expected.output)
    assert torch.equal(hidden, expected.hidden)
    assert torch.equal(cell, expected.cell)


def test_dropout_acts_between_layers_while_training_alone():
    case = Case(layers=2, batch=8, hidden=32)
    call = case.call()
    torch.manual_seed(1)
    dropped = case.run(call, dropout=0.5, training=True)
    torch.manual_seed(1)
    again = case.run(call, dropout=0.5, training=True)
    everything = case.run(call, dropout=1.0, training=True)
    kept = case.run(call, dropout=0.5)

    assert torch.equal(dropped.output, again.output)
    assert torch.equal(kept.output, case.run(call).output)
    assert not torch.equal(dropped.output, kept.output)
    # The first layer's state is from before any dropout; the second layer sees zeros at last.
    torch.testing.assert_close(dropped.hidden[0], kept.hidden[0])
    blind = case.run(
        replace(call, input=torch.full_like(call.input, 3.0)), dropout=1.0, training=True
    )
    assert torch.equal(everything.output, blind.output)
