"""Ready-made score_mods against their formulas, with their gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention as torch_flex_attention

from torchyard_attention import AuxRequest, flex_attention, scores

B, H, SQ, SK, D = 2, 3, 20, 26, 8
Q, K = torch.arange(SQ)[:, None], torch.arange(SK)


def inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((B, H, SQ, D), (B, H, SK, D), (B, H, SK, D))
    return tuple(
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    )


def parameter(*shape):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def raw(query, key):
    return query @ key.mT / D**0.5


BUCKETS = scores.t5_buckets(8, 10)
DISTANCE = (K - Q).clamp(-10, 10) + 10

# Name -> (shape of the parameter, score_mod of it, the scores by their formula).
SCORES = {
    "alibi": (
        (H,),
        scores.alibi,
        lambda s, p: s + p[:, None, None] * (K - Q),
    ),
    "alibi to both sides": (
        (H,),
        lambda p: scores.alibi(p, symmetric=True),
        lambda s, p: s - p[:, None, None] * (K - Q).abs(),
    ),
    "relative bias": (
        (H, 7),
        scores.relative_bias,
        lambda s, p: s + p[:, (K - Q).clamp(-3, 3) + 3],
    ),
    "relative bias in buckets": (
        (H, 8),
        lambda p: scores.relative_bias(p, buckets=BUCKETS),
        lambda s, p: s + p[:, BUCKETS[DISTANCE]],
    ),
    "bias": ((SQ, SK), scores.learnable_bias, lambda s, p: s + p),
    "bias of heads": ((H, SQ, SK), scores.learnable_bias, lambda s, p: s + p),
    "bias of batches": ((B, 1, SQ, SK), scores.learnable_bias, lambda s, p: s + p),
    "bias of all": ((B, H, SQ, SK), scores.learnable_bias, lambda s, p: s + p),
    "chain": (
        (H,),
        lambda p: scores.chain(scores.softcap(2.0), scores.alibi(p)),
        lambda s, p: 2 * torch.tanh(s / 2) + p[:, None, None] * (K - Q),
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_values_and_gradients_follow_the_formula(name):
    shape, make, formula = SCORES[name]
    query, key, value = inputs()
    learned = parameter(*shape)
    out = flex_attention(query, key, value, score_mod=make(learned))
    expected = formula(raw(query, key), learned).softmax(dim=-1) @ value
    torch.testing.assert_close(out, expected)

    weight = torch.randn_like(out)
    gradients = torch.autograd.grad((out * weight).sum(), (query, key, value, learned))
    wanted = torch.autograd.grad((expected * weight).sum(), (query, key, value, learned))
    for got, right in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize("name", SCORES)
def test_torchs_flex_attention_takes_the_score_mod(name):
    shape, make, formula = SCORES[name]
    query, key, value = (tensor.detach().float() for tensor in inputs())
    learned = parameter(*shape).detach().float()
    out = torch_flex_attention(query, key, value, score_mod=make(learned))
    expected = formula(raw(query, key), learned).softmax(dim=-1) @ value
    torch.testing.assert_close(out, expected)


@pytest.mark.sweep
@pytest.mark.parametrize("name", SCORES)
def test_compiled_functions_take_the_score_mod(name):
    shape, make, formula = SCORES[name]
    query, key, value = inputs()
    learned = parameter(*shape)
    torch.compiler.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def attend(query, key, value, learned):
        return flex_attention(query, key, value, score_mod=make(learned))

    out = attend(query, key, value, learned)
    expected = formula(raw(query, key), learned).softmax(dim=-1) @ value
    torch.testing.assert_close(out, expected)
    (gradient,) = torch.autograd.grad(out.square().sum(), learned)
    (wanted,) = torch.autograd.grad(expected.square().sum(), learned)
    torch.testing.assert_close(gradient, wanted)


def test_softcap_bounds_the_scores():
    query, key, value = inputs()
    out = flex_attention(query, key, value, score_mod=scores.softcap(0.5))
    expected = (0.5 * torch.tanh(raw(query, key) / 0.5)).softmax(dim=-1) @ value
    torch.testing.assert_close(out, expected)


def test_slopes_are_the_published_ones():
    eight = [2.0**-power for power in range(1, 9)]
    assert scores.alibi_slopes(8).tolist() == eight
    more = scores.alibi_slopes(12).tolist()
    assert more[:8] == eight
    torch.testing.assert_close(
        torch.tensor(more[8:]), torch.tensor([2.0**-power for power in (0.5, 1.5, 2.5, 3.5)])
    )
    assert scores.alibi_slopes(1).tolist() == [2.0**-8]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_buckets_are_those_of_its_formula(bidirectional):
    count, reach = 32, 128
    found = scores.t5_buckets(count, reach, bidirectional=bidirectional)
    distance = torch.arange(-reach, reach + 1)
    side = count // 2 if bidirectional else count
    offset = (distance > 0) * side if bidirectional else torch.zeros_like(distance)
    away = distance.abs() if bidirectional else (-distance).clamp(min=0)
    exact = side // 2
    grown = torch.log(away.double() / exact) / math.log(reach / exact) * (side - exact)
    far = (exact + grown.nan_to_num(neginf=0).long()).clamp(max=side - 1)
    assert torch.equal(found, offset + torch.where(away < exact, away, far))


@pytest.mark.parametrize("logit", [0.3, 40.0, -40.0, -math.inf])
def test_a_sink_is_a_key_with_its_logit_and_no_value(logit):
    query, key, value = inputs()
    logits = torch.tensor([logit, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    out, aux = flex_attention(query, key, value, return_aux=AuxRequest(lse=True))
    found = scores.sinks(out, aux.lse, logits)

    column = logits[:, None, None].expand(B, H, SQ, 1)
    whole = torch.cat([raw(query, key), column], dim=-1)
    expected = whole.softmax(dim=-1)[..., :-1] @ value
    torch.testing.assert_close(found.out, expected)
    torch.testing.assert_close(found.lse, whole.logsumexp(dim=-1))

    parameters = (query, key, value, logits)
    weight, lse_weight = torch.randn_like(expected), torch.randn(B, H, SQ, dtype=torch.float64)
    gradients = torch.autograd.grad(
        (found.out * weight).sum() + (found.lse * lse_weight).sum(), parameters
    )
    total = (expected * weight).sum() + (whole.logsumexp(dim=-1) * lse_weight).sum()
    for got, right in zip(gradients, torch.autograd.grad(total, parameters), strict=True):
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize("logit", [0.0, -math.inf])
def test_a_row_without_keys_stays_zero_under_a_sink(logit):
    out = torch.zeros(1, 1, 2, 4, requires_grad=True)
    lse = torch.full((1, 1, 2), -math.inf, requires_grad=True)
    logits = torch.tensor([logit], requires_grad=True)
    found = scores.sinks(out, lse, logits)
    assert torch.equal(found.out, torch.zeros(1, 1, 2, 4))
    assert torch.equal(found.lse, torch.full((1, 1, 2), logit))
    gradients = torch.autograd.grad(found.out.sum(), (out, lse, logits))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_sink_keeps_the_dtype_of_out():
    out, lse = torch.ones(1, 2, 3, 4, dtype=torch.bfloat16), torch.zeros(1, 2, 3)
    found = scores.sinks(out, lse, torch.zeros(2, dtype=torch.bfloat16))
    assert (found.out.dtype, found.lse.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(found.out, torch.full_like(out, 0.5))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: scores.alibi_slopes(0),
            ValueError,
            "heads: expected an int of 1 to ",
        ),
        (lambda: scores.alibi(torch.ones(2, 2)), ValueError, r"slopes: expected \[Hq\], got"),
        (lambda: scores.softcap(0.0), ValueError, "cap: expected a finite number above 0, got 0.0"),
        (lambda: scores.relative_bias(torch.ones(3)), ValueError, r"table: expected \[Hq, N"),
        (lambda: scores.relative_bias(torch.ones(3, 4)), ValueError, "table: expected 2 R \\+ 1"),
        (
            lambda: scores.relative_bias(torch.ones(3, 4), buckets=torch.ones(3)),
            TypeError,
            "buckets: expected int64",
        ),
        (lambda: scores.learnable_bias(torch.ones(3)), ValueError, r"bias: expected \[Sq, Sk\]"),
        (lambda: scores.t5_buckets(2), ValueError, "count: expected at least 4"),
        (lambda: scores.chain(3), TypeError, r"score_mods\[0\]: expected a function"),
        (
            lambda: scores.sinks(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 4), torch.ones(2)),
            ValueError,
            r"lse: expected \[1, 2, 3\], as out, got \[1, 2, 4\]",
        ),
        (
            lambda: scores.sinks(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3), torch.ones(3)),
            ValueError,
            r"logits: expected \[2\], got \[3\]",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()
