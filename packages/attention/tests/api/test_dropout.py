"""Dropout drops the weights that the contract names, whoever computes, forward and backward."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import grad, vmap
from torch.utils.checkpoint import checkpoint

from torchyard import UnsupportedError, use
from torchyard_attention import AuxRequest, explain, flex_attention, varlen_attention
from torchyard_attention.dropout import Dropout, dropout_factors, philox
from torchyard_attention.implementations import dense, tiled
from torchyard_attention.testing import make_call

P = 0.3
SHAPE = (2, 4, 37, 8)


def normal(seed, *shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


QKV = [normal(seed, *SHAPE) for seed in range(3)]


def attend(*given, seed=5, **options):
    torch.manual_seed(seed)
    return flex_attention(*(given or QKV), dropout_p=P, **options)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
    ids=["zeros", "ones"],
)
def test_random_words_are_those_that_the_generators_authors_publish(word, expected):
    one = torch.tensor(word)
    assert tuple(philox((one, one, one, one), (one, one)).tolist()) == expected


def by_the_contract(seed, probability, sizes, q_heads):
    """Return the contract's sentence in Python's integers: which weights are kept."""

    def words(counter, key):
        a, b, c, d = counter
        low, high = key
        for _ in range(10):
            left, right = a * 0xD2511F53, c * 0xCD9E8D57
            a, b = (right >> 32) ^ b ^ low, right & 0xFFFFFFFF
            c, d = (left >> 32) ^ d ^ high, left & 0xFFFFFFFF
            low, high = low + 0x9E3779B9 & 0xFFFFFFFF, high + 0xBB67AE85 & 0xFFFFFFFF
        return a, b, c, d

    key = (seed[0] & 0xFFFFFFFF, seed[0] >> 32)
    kept = torch.zeros(sizes, dtype=torch.bool)
    for b, h, q, k in itertools.product(*(range(size) for size in sizes)):
        counter = (k // 4, q, b * q_heads + h, seed[1] & 0xFFFFFFFF)
        kept[b, h, q, k] = words(counter, key)[k % 4] >= round(probability * 2**32)
    return kept


def test_the_mask_is_the_contracts_whatever_the_tile():
    seed = (2**61 + 12345, 2**33 + 7)
    whole = by_the_contract(seed, P, (2, 3, 5, 11), 3)
    dropout = Dropout(P, torch.tensor(seed))
    b, h, q = torch.arange(2), torch.arange(3), torch.arange(5)
    for keys in (range(11), range(3, 10), (0, 1, 5, 6, 10), range(4, 8)):
        k = torch.tensor(list(keys))
        found = dropout_factors(dropout, (b[1:], h[1:], q[2:], k), 3, torch.float64)
        assert torch.equal(found != 0, whole[1:, 1:, 2:, k])
        assert torch.equal(found, whole[1:, 1:, 2:, k].double() / (1 - P))


def test_as_many_weights_are_dropped_as_asked_for():
    query = torch.zeros(4, 8, 64, 4)
    key, value = torch.zeros(4, 8, 256, 4), torch.ones(4, 8, 256, 1)
    torch.manual_seed(0)
    out = flex_attention(query, key, value, dropout_p=P)
    # out is a mean of 256 independent weights of variance P / (1 - P), and there are 2048 of it.
    variance = P / (1 - P) / 256
    assert abs(float(out.mean()) - 1) < 4 * (variance / out.numel()) ** 0.5
    assert float(out.var()) == pytest.approx(variance, rel=4 * (2 / out.numel()) ** 0.5)


def test_a_seed_gives_the_same_bits_and_another_one_others():
    assert torch.equal(attend(), attend())
    assert not torch.equal(attend(), attend(seed=6))
    torch.manual_seed(5)
    first, second = (flex_attention(*QKV, dropout_p=P) for _ in range(2))
    assert not torch.equal(first, second)


def test_without_dropout_nothing_is_drawn():
    state = torch.get_rng_state()
    expected = flex_attention(*QKV)
    for nothing in (0.0, 0, np.float32(0)):
        assert torch.equal(flex_attention(*QKV, dropout_p=nothing), expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_everything_may_be_dropped():
    leaves = [tensor.clone().requires_grad_() for tensor in QKV]
    out, aux = flex_attention(*leaves, dropout_p=1.0, return_aux=AuxRequest(lse=True))
    assert not out.any()
    torch.testing.assert_close(aux.lse, flex_attention(*QKV, return_aux=AuxRequest(True))[1].lse)
    assert not any(g.any() for g in torch.autograd.grad(out.sum(), leaves))


def test_the_log_sum_exp_is_of_all_keys():
    aux = AuxRequest(lse=True, max_scores=True)
    dropped, whole = attend(return_aux=aux)[1], flex_attention(*QKV, return_aux=aux)[1]
    torch.testing.assert_close(dropped.lse, whole.lse)
    torch.testing.assert_close(dropped.max_scores, whole.max_scores)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("score", [None, lambda s, b, h, q, k: s + 0.1 * (q - k)])
def test_implementations_agree_on_values_and_gradients(grouped, score):
    found = {}
    for name in ("attention.tiled", "attention.reference"):
        leaves = [tensor.double().requires_grad_() for tensor in QKV]
        given = [leaves[0], *(x[:, :2] if grouped else x for x in leaves[1:])]
        with use(attention=name, attention_backward=name):
            out = attend(*given, score_mod=score, enable_gqa=grouped)
            found[name] = [out, *torch.autograd.grad(out.square().sum(), leaves)]
    for mine, theirs in zip(*found.values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_threads_and_tiles_change_no_mask(monkeypatch):
    from torchyard_attention.implementations import _tiles

    call = make_call(batch=1, q_heads=2, q_length=80, kv_length=90, dropout_p=P)
    expected = dense.load()(call).out
    for rows, keys in ((16, 16), (64, 48), (128, 1024)):
        monkeypatch.setattr(_tiles, "ROWS", rows)
        monkeypatch.setattr(_tiles, "MAX_KEYS", keys)
        torch.testing.assert_close(tiled.load()(call).out, expected, rtol=2e-5, atol=2e-6)
    other = replace(call, dropout=Dropout(P, torch.tensor([1, 2])))
    assert not torch.allclose(dense.load()(other).out, expected, atol=1e-2)


@pytest.mark.sweep
def test_gradcheck_with_a_fixed_seed():
    def function(query, key, value, slopes):
        return attend(query, key, value, score_mod=lambda s, b, h, q, k: s * slopes[h])

    shapes = ((1, 2, 2, 2), (1, 2, 3, 2), (1, 2, 3, 1), (2,))
    inputs = [
        normal(seed, *shape, dtype=torch.float64).requires_grad_()
        for seed, shape in enumerate(shapes)
    ]
    assert torch.autograd.gradcheck(
        function, inputs, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(function, inputs)


def test_a_checkpoint_drops_the_same_weights_again():
    def gradients(run):
        leaves = [tensor.clone().requires_grad_() for tensor in QKV]
        torch.manual_seed(1)
        return torch.autograd.grad(run(*leaves).square().sum(), leaves)

    def plain(*given):
        return flex_attention(*given, dropout_p=P)

    found = gradients(lambda *given: checkpoint(plain, *given, use_reentrant=False))
    for mine, theirs in zip(found, gradients(plain), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.sweep)]
)
def test_compiled_code_draws_a_new_mask_and_uses_it_in_the_backward(backend):
    torch.compiler.reset()
    compiled = torch.compile(
        lambda *given: flex_attention(*given, dropout_p=P), fullgraph=True, backend=backend
    )
    value = torch.eye(SHAPE[2]).expand(*SHAPE[:2], -1, -1).clone().requires_grad_()
    torch.manual_seed(2)
    first = compiled(*QKV[:2], value)
    second = compiled(*QKV[:2], value)
    torch.manual_seed(2)
    assert torch.equal(compiled(*QKV[:2], value), first)
    assert not torch.equal(first, second)
    # value is the unit matrix, so out is the weights, and value's gradient their transpose.
    slope = normal(9, *first.shape)
    (found,) = torch.autograd.grad(first, value, slope)
    torch.testing.assert_close(found, first.detach().mT @ slope)


def test_vmap_needs_to_know_whether_masks_differ():
    queries = torch.stack([QKV[0], QKV[0]])

    def one(query):
        return flex_attention(query, *QKV[1:], dropout_p=P)

    with pytest.raises(RuntimeError, match="randomness"):
        vmap(one)(queries)
    same = vmap(one, randomness="same")(queries)
    assert torch.equal(same[0], same[1])
    other = vmap(one, randomness="different")(queries)
    assert not torch.equal(other[0], other[1])
    slopes = vmap(grad(lambda query: one(query).sum()), randomness="same")(queries)
    assert torch.equal(slopes[0], slopes[1])
    assert slopes.any()


def test_packed_sequences_drop_too():
    packed = normal(3, 20, 2, 8)
    starts = torch.tensor([0, 12, 20])
    found = []
    for _ in range(2):
        torch.manual_seed(4)
        found.append(varlen_attention(packed, packed, packed, starts, dropout_p=P))
    assert torch.equal(*found)
    assert not torch.allclose(found[0], varlen_attention(packed, packed, packed, starts))


def test_who_cannot_drop_says_so():
    state = torch.get_rng_state()
    decision = explain(*QKV, dropout_p=P)
    assert torch.equal(torch.get_rng_state(), state), "a seed was drawn to explain"
    assert decision.request.dropout
    assert decision.chosen.name == "attention.tiled"
    with pytest.raises(UnsupportedError, match="E_DROPOUT"):
        flex_attention(*QKV, dropout_p=P, implementation="attention.sdpa")
    assert explain(*QKV).request.dropout is False


@pytest.mark.parametrize(
    ("given", "error"),
    [
        *((number, ValueError) for number in (1.5, -0.1, float("nan"))),
        *((other, TypeError) for other in (True, "0.1", None, [0.1])),
    ],
    ids=str,
)
def test_what_is_no_probability_is_refused(given, error):
    with pytest.raises(error, match="dropout_p: expected a finite number of 0 to 1"):
        flex_attention(*QKV, dropout_p=given)
