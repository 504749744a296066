"""What a score_mod or mask_mod does is recorded completely, or refused with a remedy."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.nn.attention.flex_attention import _vmap_for_bhqkv

from torchyard_attention import ProgramError
from torchyard_attention._mods._evaluate import TracedMod, scalar_function
from torchyard_attention._mods._trace import CAUSAL, IDENTITY, MASK_INPUTS, SCORE_INPUTS, trace
from torchyard_attention.testing import traced_score_mod
from torchyard_programs import parse

SIZES = (2, 3, 5, 7)
torch.manual_seed(0)
SLOPES = torch.rand(SIZES[1])
BIAS = torch.randn(SIZES[1], SIZES[2], SIZES[3])
DOCUMENT = torch.randint(0, 2, (SIZES[0], 12))
EMBEDDING = torch.randn(12, 4)
DOUBLE = torch.tensor(0.3, dtype=torch.float64)

POINTWISE = {
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "relative": lambda s, b, h, q, k: s + (q - k),
    "bias": lambda s, b, h, q, k: s + BIAS[h, q, k],
    "softcap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
    "document": lambda s, b, h, q, k: torch.where(
        DOCUMENT[b, q] == DOCUMENT[b, k], s, -float("inf")
    ),
    "float64 scalar": lambda s, b, h, q, k: s * DOUBLE,
    "reversed operators": lambda s, b, h, q, k: (
        1.0 / (2 + q) + 3 ** k.float() - (5 - s) + 7 % (k + 1) + 9 // (q + 1)
    ),
    "integers": lambda s, b, h, q, k: s + (q // 2) % 3 + (-q).abs() + (k / q.clamp(min=1)),
    "constant": lambda s, b, h, q, k: torch.zeros_like(s),
    "new tensor": lambda s, b, h, q, k: torch.where(q >= k, s, s.new_full((), -1e9)),
    "methods": lambda s, b, h, q, k: s.sigmoid().mul(2).sub(1).clamp(max=0.5),
    "functional": lambda s, b, h, q, k: torch.nn.functional.silu(s) + torch.special.expit(s),
    "bits": lambda s, b, h, q, k: s + ((q & 1) | (k ^ 2)).to(torch.float32),
    "infinity": lambda s, b, h, q, k: torch.minimum(s, torch.full_like(s, math.inf)),
}
GENERAL = {
    "dot": lambda s, b, h, q, k: s + torch.dot(EMBEDDING[q], EMBEDDING[k]),
    "sum": lambda s, b, h, q, k: s + (EMBEDDING[q] * EMBEDDING[k]).sum(),
    "slice": lambda s, b, h, q, k: s + EMBEDDING[q, :].max(),
}


def traced(function, dtype=torch.float32):
    text, captured = trace(function, "score_mod", SCORE_INPUTS, dtype, torch.device("cpu"))
    return TracedMod(text, tuple(captured))


def indices():
    return tuple(torch.arange(size) for size in SIZES)


@pytest.mark.parametrize("name", [*POINTWISE, *GENERAL])
def test_tile_evaluation_equals_torchs_own_vmap(name):
    function = {**POINTWISE, **GENERAL}[name]
    score = torch.randn(SIZES)
    with TransformGetItemToIndex():
        expected = _vmap_for_bhqkv(function, (0,))(score, *indices())

    result = traced(function).apply(score, *indices())

    # A float64 scalar is combined with a float32 score: the program computes in float64, torch's
    # vmap rounds the scalar first. Everything else is the same to the bit.
    rtol = torch.finfo(torch.float32).eps if name == "float64 scalar" else 0
    expected = expected.to(torch.float32).expand(SIZES)
    torch.testing.assert_close(result, expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_functions_are_recognised(name):
    assert traced(POINTWISE[name]).pointwise(torch.float32)


@pytest.mark.parametrize("name", GENERAL)
def test_functions_with_vectors_inside_are_not_pointwise(name):
    assert not traced(GENERAL[name]).pointwise(torch.float32)


@pytest.mark.parametrize("name", [*POINTWISE, *GENERAL])
def test_scalar_function_agrees_with_the_original(name):
    function = {**POINTWISE, **GENERAL}[name]
    mod = traced(function)
    inputs = (torch.tensor(0.7), *(torch.tensor(i) for i in (1, 2, 3, 4)))

    result = scalar_function(mod.text)(*inputs, *mod.captured)

    torch.testing.assert_close(torch.as_tensor(result), torch.as_tensor(function(*inputs)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "sub", "mul", "maximum", "where", "tanh", "neg"]),
            st.integers(0, 5),
            st.floats(-3, 3, allow_nan=False, width=32),
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=60)
def test_any_chain_of_pointwise_steps_evaluates_as_written(steps):
    def function(s, b, h, q, k):
        operands = (s, q.float(), k.float(), SLOPES[h], b.float(), BIAS[h, q, k])
        for word, operand, number in steps:
            other = operands[operand]
            if word == "add":
                s = s + other
            elif word == "sub":
                s = number - s - other
            elif word == "mul":
                s = number * s
            elif word == "maximum":
                s = torch.maximum(s, other)
            elif word == "where":
                s = torch.where(other > number, s, other)
            elif word == "tanh":
                s = s.tanh()
            else:
                s = -s
        return s

    score = torch.randn(SIZES)
    b, h, q, k = indices()
    expected = function(
        score,
        b.view(-1, 1, 1, 1).expand(SIZES),
        h.view(-1, 1, 1).expand(SIZES),
        q.view(-1, 1).expand(SIZES),
        k.expand(SIZES),
    )
    torch.testing.assert_close(traced(function).apply(score, b, h, q, k), expected)


def test_equal_structure_gives_equal_text_and_other_tensors():
    def make(tensor):
        return traced(lambda s, b, h, q, k: s + tensor[h])

    first, second = make(torch.rand(3)), make(torch.rand(3))

    assert first.text == second.text
    assert first.captured[0] is not second.captured[0]


def test_a_tensor_used_twice_is_captured_once():
    assert len(traced(lambda s, b, h, q, k: s + SLOPES[h] * SLOPES[h]).captured) == 1


def test_the_identity_is_recognised():
    assert traced(lambda s, b, h, q, k: s).text == IDENTITY


@pytest.mark.parametrize(
    "function", [lambda b, h, q, k: q >= k, lambda b, h, q, k: k <= q], ids=["q>=k", "k<=q"]
)
def test_the_causal_mask_is_recognised(function):
    text, _ = trace(function, "mask_mod", MASK_INPUTS, torch.float32, torch.device("cpu"))
    assert text in CAUSAL


def test_steps_that_lead_nowhere_are_left_out():
    def wasteful(s, b, h, q, k):
        s.exp()
        return s + 1

    assert [step.word for step in parse(traced(wasteful).text).operations] == ["add"]


def test_gradients_reach_score_and_captured_tensors():
    weight = torch.rand(SIZES[1], dtype=torch.float64, requires_grad=True)
    score = torch.randn(SIZES, dtype=torch.float64, requires_grad=True)
    mod = traced(lambda s, b, h, q, k: torch.tanh(s) * weight[h], torch.float64)

    def run(score, weight):
        return mod.apply(score, *indices(), weight)

    assert torch.autograd.gradcheck(run, (score, weight))


REFUSED = {
    "python if": (lambda s, b, h, q, k: s if q > k else 2 * s, "torch.where"),
    "python max": (lambda s, b, h, q, k: max(s, 0.0), "torch.maximum"),
    "in place": (lambda s, b, h, q, k: s.add_(1), "use .add()"),
    "list": (lambda s, b, h, q, k: s + [1, 2, 3][h], "index a tensor instead of a list"),
    "math": (lambda s, b, h, q, k: math.sqrt(s), "torch functions instead of math"),
    "foreign object": (lambda s, b, h, q, k: s + object(), "got object"),
    "other device": (lambda s, b, h, q, k: s + torch.ones(2, device="meta")[q], "on meta; move it"),
    "no result": (lambda s, b, h, q, k: None, "returns a tensor or a number, got None"),
    "two results": (lambda s, b, h, q, k: (s, s), "returns one value, got a tuple"),
    "two arguments": (lambda s, b: s, "a function that takes (s, b, h, q, k), got <lambda>(s, b)"),
    "no function": ("alibi", "a function that takes (s, b, h, q, k), got str"),
    "dtype of a result": (lambda s, b, h, q, k: torch.ones((), dtype=(s + 1).dtype), "score.dtype"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_recorded_is_refused_with_the_remedy(name):
    function, remedy = REFUSED[name]
    with pytest.raises(ProgramError, match=remedy.replace("(", r"\(").replace(")", r"\)")) as error:
        traced(function)
    assert str(error.value).startswith("score_mod: ")


def test_a_call_for_another_device_takes_along_what_its_score_mod_captures():
    moved = traced_score_mod(POINTWISE["alibi"], "meta")
    assert [tensor.device.type for tensor in moved.captured] == ["meta"]
    with pytest.raises(ProgramError, match="expected captured tensors on meta"):
        trace(POINTWISE["alibi"], "score_mod", SCORE_INPUTS, torch.float32, torch.device("meta"))
