"""``flex_attention``'s arguments: torch's meaning, and an error that names what does not fit."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex

from torchyard_attention import AuxOutput, AuxRequest, create_block_mask, flex_attention
from torchyard_programs import ProgramError


def causal(b, h, q, k):
    return q >= k


def tensors(batch=2, heads=4, kv_heads=4, length=33, kv_length=40, head_dim=8, value_dim=8):
    torch.manual_seed(0)
    return (
        torch.randn(batch, heads, length, head_dim),
        torch.randn(batch, kv_heads, kv_length, head_dim),
        torch.randn(batch, kv_heads, kv_length, value_dim),
    )


@pytest.fixture(autouse=True)
def torch_in_eager(monkeypatch):
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("value_dim", [8, 24])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_outputs_equal_torchs(kv_heads, value_dim, scale):
    query, key, value = tensors(kv_heads=kv_heads, value_dim=value_dim)
    slopes = torch.rand(4)

    def score_mod(score, b, h, q, k):
        return torch.tanh(score) + slopes[h] * (k - q)

    common = {"score_mod": score_mod, "scale": scale, "enable_gqa": True}
    expected = torch_flex.flex_attention(
        query,
        key,
        value,
        block_mask=torch_flex.create_block_mask(causal, None, None, 33, 40, device="cpu"),
        **common,
    )
    ours = flex_attention(
        query,
        key,
        value,
        block_mask=create_block_mask(causal, None, None, 33, 40, device="cpu"),
        **common,
    )
    torch.testing.assert_close(ours, expected)


def test_auxiliary_outputs_are_natural_logarithms_and_greatest_scores():
    query, key, value = tensors()
    scores = query @ key.transpose(-1, -2) / 8**0.5
    out, aux = flex_attention(query, key, value, return_aux=AuxRequest(lse=True, max_scores=True))
    torch.testing.assert_close(aux.lse, scores.logsumexp(-1))
    torch.testing.assert_close(aux.max_scores, scores.amax(-1))
    torch.testing.assert_close(out, scores.softmax(-1) @ value)


def test_torchs_own_aux_request_is_understood():
    query, key, value = tensors()
    result = flex_attention(query, key, value, return_aux=torch_flex.AuxRequest(lse=True))
    assert isinstance(result[1], AuxOutput)
    assert result[1].lse is not None
    assert result[1].max_scores is None


def test_return_lse_gives_a_pair():
    query, key, value = tensors()
    out, lse = flex_attention(query, key, value, return_lse=True)
    assert out.shape == (2, 4, 33, 8)
    assert lse.shape == (2, 4, 33)


def test_one_batch_of_keys_is_used_for_every_batch_of_queries():
    query, key, value = tensors()
    shared = flex_attention(query, key[:1], value[:1])
    torch.testing.assert_close(shared[1:], flex_attention(query[1:], key[:1], value[:1]))


def test_a_row_that_sees_nothing_is_zero_with_an_lse_of_minus_infinity():
    query, key, value = tensors()
    mask = create_block_mask(lambda b, h, q, k: k < q - 30, None, None, 33, 40, device="cpu")
    out, aux = flex_attention(
        query, key, value, block_mask=mask, return_aux=AuxRequest(lse=True, max_scores=True)
    )
    assert torch.equal(out[:, :, :31], torch.zeros_like(out[:, :, :31]))
    assert torch.isneginf(aux.lse[:, :, :31]).all()
    assert torch.isneginf(aux.max_scores[:, :, 0]).all()
    assert out[:, :, 31:].abs().min() > 0


REFUSED = {
    "three dimensions": (
        lambda q, k, v: (q[0], k, v),
        {},
        ValueError,
        r"query: expected \[B, H, S",
    ),
    "integers": (lambda q, k, v: (q.long(), k, v), {}, TypeError, "query: expected float32"),
    "mixed dtypes": (
        lambda q, k, v: (q, k.double(), v),
        {},
        TypeError,
        "key: expected query's dtype and device",
    ),
    "head size": (lambda q, k, v: (q, k[..., :4], v), {}, ValueError, "key: expected head size 8"),
    "value's length": (
        lambda q, k, v: (q, k, v[:, :, :7]),
        {},
        ValueError,
        "value: expected key's batch, heads and length",
    ),
    "heads without enable_gqa": (
        lambda q, k, v: (q, k[:, :2], v[:, :2]),
        {},
        ValueError,
        "enable_gqa=True",
    ),
    "heads that do not divide": (
        lambda q, k, v: (q, k[:, :3], v[:, :3]),
        {"enable_gqa": True},
        ValueError,
        "query: expected a multiple of key's 3 heads",
    ),
    "batches": (
        lambda q, k, v: (torch.cat([q, q]), k, v),
        {},
        ValueError,
        "key: expected batch 4",
    ),
    "both returns": (
        lambda q, k, v: (q, k, v),
        {"return_lse": True, "return_aux": AuxRequest()},
        ValueError,
        "return_lse, return_aux: expected at most one",
    ),
    "a backend of torch": (
        lambda q, k, v: (q, k, v),
        {"kernel_options": {"BACKEND": "TRITON"}},
        ValueError,
        "kernel_options: BACKEND='TRITON'",
    ),
    "a mask of another length": (
        lambda q, k, v: (q, k, v),
        {"block_mask": create_block_mask(causal, None, None, 64, 40, device="cpu")},
        ValueError,
        "block_mask: expected lengths",
    ),
    "a mask of other heads": (
        lambda q, k, v: (q, k, v),
        {"block_mask": create_block_mask(causal, None, 3, 33, 40, device="cpu")},
        ValueError,
        "block_mask: expected batch 1 or 2 and heads 1 or 4",
    ),
    "a dense mask": (
        lambda q, k, v: (q, k, v),
        {"block_mask": torch.ones(33, 40, dtype=torch.bool)},
        TypeError,
        "block_mask: expected a BlockMask",
    ),
    "an unknown implementation": (
        lambda q, k, v: (q, k, v),
        {"implementation": "nowhere.kernel"},
        RuntimeError,
        "no usable plugin offers it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_by_name(name):
    change, options, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        flex_attention(*change(*tensors()), **options)


def test_tensors_of_a_score_mod_lie_where_the_query_does():
    query = torch.randn(1, 2, 4, 8)
    slopes = torch.randn(2, device="meta")
    for _ in range(2):
        with pytest.raises(ProgramError, match="score_mod: expected captured tensors on cpu"):
            flex_attention(query, query, query, lambda s, b, h, i, j: s * slopes[h])


def test_zeros_of_a_score_mod_need_not_be_stored():
    query = torch.randn(1, 2, 4, 8)
    zeros = torch._efficientzerotensor((2,), dtype=torch.float32)
    expected = flex_attention(query, query, query)
    for _ in range(2):
        found = flex_attention(query, query, query, lambda s, b, h, i, j: s + zeros[h])
        torch.testing.assert_close(found, expected)


def test_torchs_sliced_mask_is_refused_with_the_remedy():
    query, key, value = tensors()
    mask = torch_flex.create_block_mask(causal, 2, 4, 33, 40, device="cpu")[0:1]
    with pytest.raises(ValueError, match="loses its mask_mod when it is sliced"):
        flex_attention(query, key, value, block_mask=mask)


@pytest.mark.sweep
def test_the_warning_of_a_prototype_names_the_callers_line():
    # In a process of its own, since each process is warned once.
    program = (
        "import warnings, torch\n"
        "from torchyard_attention import flex_attention\n"
        "x = torch.empty(1, 1, 8, 8, device='meta')\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    flex_attention(x, x, x)\n"
        "print([w.filename for w in seen if 'prototype' in str(w.message)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "['<string>']", done.stdout + done.stderr
