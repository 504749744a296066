"""Gradients: of torch's own, and of the op that records its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from torchyard import UnsupportedError
from torchyard_kernels.recurrent._validation import cells
from torchyard_kernels.recurrent.contract import RecurrentKind
from torchyard_kernels.recurrent.reference import exact_forward

from .cases import Case, cases, forwards

RECORDING = "kernels.steps"
_JUMPING = RecurrentKind.RNN_RELU


def leaves(call):
    """Return a call whose tensors want gradients, and these tensors."""
    flat = [weight for cell in call.weights for weight in cell if weight is not None]
    wanted = [call.input, call.hidden, *([] if call.cell is None else [call.cell]), *flat]
    wanted = [tensor.detach().clone().requires_grad_() for tensor in wanted]
    has_cell = call.cell is not None
    changed = replace(
        call,
        input=wanted[0],
        hidden=wanted[1],
        cell=wanted[2] if has_cell else None,
        weights=cells(wanted[2 + has_cell :], call.num_layers, call.bidirectional),
    )
    return changed, wanted


def slopes(result, seed=3):
    """Return random gradients of a result's tensors."""
    generator = torch.Generator().manual_seed(seed)
    tensors = [item for item in (result.output, result.hidden, result.cell) if item is not None]
    return tensors, [
        torch.randn(item.shape, generator=generator, dtype=torch.float64).to(item.dtype)
        for item in tensors
    ]


def gradients(case, call, **more):
    given, wanted = leaves(call)
    return torch.autograd.grad(*_pair(case.run(given, **more), wanted))


def _pair(result, wanted):
    tensors, grads = slopes(result)
    return tensors, wanted, grads


def exact_gradients(call):
    double = replace(
        call,
        input=call.input.double(),
        hidden=call.hidden.double(),
        cell=None if call.cell is None else call.cell.double(),
        weights=tuple(
            type(cell)(*(None if w is None else w.double() for w in cell)) for cell in call.weights
        ),
    )
    given, wanted = leaves(double)
    result = exact_forward(given)
    tensors, grads = slopes(result)
    # The very slopes that the rounded computation gets.
    grads = [grad.to(call.input.dtype).double() for grad in grads]
    return torch.autograd.grad(tensors, wanted, grads)


@given(case=cases((torch.float64,), most=6))
@settings(max_examples=40)
def test_recorded_gradients_are_those_of_the_equations(case):
    call = case.call()
    exact = exact_gradients(call)
    for name in ("kernels.aten", RECORDING):
        for ours, right in zip(gradients(case, call, implementation=name), exact, strict=True):
            torch.testing.assert_close(ours, right)


# Not relu: where a sum is within a rounding of 0, its gradient jumps.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", [kind for kind in RecurrentKind if kind is not _JUMPING])
def test_gradients_in_low_precision_are_no_worse_than_torchs_own(kind, dtype):
    case = Case(kind, dtype, steps=9, batch=6, hidden=24, inputs=10, layers=2, bidirectional=True)
    call = case.call()
    exact = exact_gradients(call)
    naive = gradients(case, call, implementation="kernels.aten")
    for name in forwards(call, reserve=True):
        got = gradients(case, call, implementation=name)
        for ours, rough, right in zip(got, naive, exact, strict=True):
            size = float(right.abs().max())
            allowed = 2 * float((rough.double() - right).abs().max())
            allowed += 2 * torch.finfo(dtype).eps * size
            assert float((ours.double() - right).abs().max()) <= allowed, name


@pytest.mark.sweep
@pytest.mark.parametrize("kind", list(RecurrentKind))
@pytest.mark.parametrize("ragged", [False, True], ids=["whole", "ragged"])
def test_gradcheck_of_every_input(kind, ragged):
    proj = 2 if kind is RecurrentKind.LSTM else 0
    case = Case(kind, torch.float64, 3, 2, 2, 3, proj, bidirectional=True, ragged=ragged)
    given, wanted = leaves(case.call())

    def function(*tensors):
        has_cell = given.cell is not None
        changed = replace(
            given,
            input=tensors[0],
            hidden=tensors[1],
            cell=tensors[2] if has_cell else None,
            weights=cells(tensors[2 + has_cell :], 1, True),
        )
        result = case.run(changed, implementation=RECORDING)
        return tuple(
            item for item in (result.output, result.hidden, result.cell) if item is not None
        )

    assert torch.autograd.gradcheck(function, wanted)


def test_a_gradient_of_one_output_alone():
    case = Case(RecurrentKind.LSTM, torch.float64)
    for pick in ("output", "hidden", "cell"):
        found = []
        for name in ("kernels.aten", RECORDING):
            given, wanted = leaves(case.call())
            result = case.run(given, implementation=name)
            found.append(torch.autograd.grad(getattr(result, pick).sin().sum(), wanted))
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_nothing_beyond_a_sequences_end_reaches_a_gradient():
    case = Case(RecurrentKind.GRU, torch.float64, steps=5, batch=4, bidirectional=True, ragged=True)
    call = case.call()
    there = torch.arange(case.steps)[:, None] < call.lengths
    assert not there.all()
    dirty = replace(call, input=call.input.masked_fill(~there[..., None], float("nan")))
    clean = gradients(case, call, implementation=RECORDING)
    for ours, right in zip(gradients(case, dirty, implementation=RECORDING), clean, strict=True):
        torch.testing.assert_close(ours, right)
    assert not clean[0][~there].any()


@pytest.mark.parametrize("kind", list(RecurrentKind))
def test_gradients_of_gradients_are_those_of_the_equations(kind):
    case = Case(kind, torch.float64, steps=3, bidirectional=True, ragged=True)
    given, wanted = leaves(case.call())
    found = []
    for name in (RECORDING, "kernels.reference"):
        result = case.run(given, implementation=name)
        outputs = result.output.sin().sum() + result.hidden.cos().sum()
        first = torch.autograd.grad(outputs, wanted, create_graph=True)
        loss = sum(one.square().sum() for one in first)
        found.append(torch.autograd.grad(loss, wanted))
    for ours, right in zip(*found, strict=True):
        torch.testing.assert_close(ours, right)


def test_an_op_that_recorded_nothing_says_so():
    case = Case(RecurrentKind.GRU)
    given, wanted = leaves(case.call())
    flat = wanted[2:]
    outputs = torch.ops.torchyard_kernels.recurrent(
        given.input, given.hidden, None, flat, None, "gru", 1, False, False, ""
    )
    with pytest.raises(RuntimeError, match="reserve=False"):
        outputs[0].sum().backward()


def test_a_demand_for_an_implementation_that_cannot_record_is_refused_in_a_graph():
    case = Case(RecurrentKind.GRU)
    given, wanted = leaves(case.call())
    with pytest.raises(UnsupportedError, match=r"kernels\.aten"):
        torch.ops.torchyard_kernels.recurrent(
            given.input, given.hidden, None, wanted[2:], None, "gru", 1, False, True, "kernels.aten"
        )
