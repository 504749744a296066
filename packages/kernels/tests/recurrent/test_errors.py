"""What does not fit is refused by name, with what was expected."""

from __future__ import annotations

import pytest
import torch

import torchyard_kernels as tk
from torchyard import UnsupportedError

T, B, INPUTS, H = 4, 3, 5, 6


def weights(layers=1, **more):
    return torch.nn.GRU(INPUTS, H, num_layers=layers, **more)._flat_weights


def run(given=None, state=None, flat=None, **more):
    given = torch.randn(T, B, INPUTS) if given is None else given
    return tk.gru(given, state, weights() if flat is None else flat, **more)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            {"given": torch.ones(T, B, INPUTS, dtype=torch.int64)},
            TypeError,
            "input: expected float32, bfloat16, float16 or float64, got torch.int64",
        ),
        ({"given": torch.randn(B)}, ValueError, r"input: expected \[T, B, I\]"),
        ({"given": torch.randn(0, B, INPUTS)}, ValueError, "at least 1 step, got 0"),
        (
            {"given": torch.randn(T, B, INPUTS + 1)},
            ValueError,
            r"weights\[0\] \(w_ih of layer 0\): expected \[18, 6\], got \[18, 5\]",
        ),
        (
            {"given": torch.randn(T, B, INPUTS, dtype=torch.float64)},
            TypeError,
            r"weights\[0\]: expected input's dtype and device, torch.float64 on cpu",
        ),
        ({"given": [[[1.0]]]}, TypeError, "input: expected a dense tensor .* got a list"),
        (
            {"flat": torch.nn.GRU(1, 1)},
            TypeError,
            r"weights: .* got a .*GRU; .*module.parameters\(\)",
        ),
        ({"num_layers": "1"}, TypeError, "num_layers: expected an int .* got '1'"),
        ({"num_layers": 0}, ValueError, "num_layers: expected an int of 1 to .* got 0"),
        (
            {"num_layers": 3},
            ValueError,
            "or 2 without biases, for each of 3 layers and 1 directions, got 4",
        ),
        ({"bidirectional": True, "flat": weights(2)[:-1]}, ValueError, "got 7"),
        (
            {"bidirectional": True, "flat": [*weights(bidirectional=True)[:-1], None]},
            TypeError,
            r"weights\[7\]: expected a dense tensor, got None",
        ),
        ({"flat": [torch.ones(18, 5), torch.ones(17, 6)]}, ValueError, r"weight_hh \[3 \* hidden"),
        ({"flat": [torch.ones(18, 5), torch.ones(18, 5)]}, ValueError, r"weights\[1\]"),
        ({"state": torch.randn(B, H)}, ValueError, r"state: expected shape \[1, 3, 6\]"),
        (
            {"state": torch.randn(1, B, H, dtype=torch.float64)},
            TypeError,
            "state: expected input's dtype and device, torch.float32 on cpu, got torch.float64",
        ),
        (
            {"state": (torch.randn(1, B, H),)},
            TypeError,
            "state: expected a dense tensor, got a tuple",
        ),
        ({"lengths": [1, 2, 3]}, TypeError, "lengths: expected a dense tensor .B., got a list"),
        ({"lengths": torch.ones(B)}, TypeError, "lengths: expected int64, got torch.flo"),
        (
            {"lengths": torch.ones(B + 1, dtype=torch.int64)},
            ValueError,
            r"lengths: expected shape \[3\], got \[4\]",
        ),
        (
            {"lengths": torch.tensor([1, 0, 2])},
            ValueError,
            "lengths: expected at least 1 step in each sequence, got 0; leave empty sequences out",
        ),
        (
            {"lengths": torch.tensor([1, 5, 2])},
            ValueError,
            "lengths: expected at most 4, the input's steps, got 5",
        ),
        (
            {"dropout": 1.5, "training": True},
            ValueError,
            "dropout: expected a finite number of 0 to 1, got 1.5",
        ),
    ],
)
def test_what_does_not_fit_is_named(arguments, error, text):
    with pytest.raises(error, match=text):
        run(**arguments)


def test_an_lstms_state_is_a_pair():
    flat = torch.nn.LSTM(INPUTS, H)._flat_weights
    given, hidden = torch.randn(T, B, INPUTS), torch.randn(1, B, H)
    for state in (hidden, (hidden,)):
        with pytest.raises(TypeError, match=r"state: expected \(hidden, cell\) or None"):
            tk.lstm(given, state, flat)
    with pytest.raises(ValueError, match=r"state\[1\]: expected shape \[1, 3, 6\]"):
        tk.lstm(given, (hidden, hidden[:, :1]), flat)


def test_an_lstm_may_have_a_projection_and_nothing_else_may():
    flat = torch.nn.LSTM(INPUTS, H, proj_size=2)._flat_weights
    given = torch.randn(T, B, INPUTS)
    assert tk.lstm(given, None, flat).output.shape == (T, B, 2)
    with pytest.raises(ValueError, match="weights: expected 4 tensors, or 2 without biases, for"):
        tk.rnn(given, None, flat)


def test_an_unknown_nonlinearity_is_named():
    flat = torch.nn.RNN(INPUTS, H)._flat_weights
    with pytest.raises(ValueError, match="nonlinearity: expected 'tanh' or 'relu', got 'gelu'"):
        tk.rnn(torch.randn(T, B, INPUTS), None, flat, nonlinearity="gelu")


def test_an_unknown_implementation_is_refused_with_the_whole_trace():
    with pytest.raises(UnsupportedError, match=r"kernels\.none[\s\S]*kernels\.steps"):
        run(implementation="kernels.none")
