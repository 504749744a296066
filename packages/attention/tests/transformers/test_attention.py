"""The attention function for transformers, given a layer's tensors; and its registration."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask as torch_create_block_mask

import torchyard
from torchyard_attention import create_block_mask, masks
from torchyard_attention.transformers import UnsupportedArgumentError, _given, register
from torchyard_attention.transformers._attention import attention
from torchyard_attention.transformers._mask import prepare

BATCH, HEADS, KEY_HEADS, LENGTH, HEAD_DIM = 2, 4, 2, 150, 16


class Layer(nn.Module):
    """As much of a model's layer as an attention looks at."""

    def __init__(self, is_causal: bool | None = None) -> None:
        super().__init__()
        if is_causal is not None:
            self.is_causal = is_causal


def _inputs(q_length: int = LENGTH, kv_length: int = LENGTH) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(BATCH, HEADS, q_length, HEAD_DIM, generator=generator)
    key = torch.randn(BATCH, KEY_HEADS, kv_length, HEAD_DIM, generator=generator)
    value = torch.randn(BATCH, KEY_HEADS, kv_length, HEAD_DIM, generator=generator)
    return query, key, value


def _written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visible: Tensor | None = None,
    added: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    scaling: float = HEAD_DIM**-0.5,
) -> Tensor:
    """Return [B, Sq, Hq, V] in float64, over all pairs and with the sink as one key more."""
    query = query.double()
    key, value = (x.double().repeat_interleave(HEADS // KEY_HEADS, dim=1) for x in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if added is not None:
        scores = scores + added
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    if sinks is not None:
        column = sinks.double()[:, None, None].expand(BATCH, -1, scores.shape[2], 1)
        scores = torch.cat([scores, column], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2)


def _check(found: tuple[Tensor, None], wanted: Tensor) -> None:
    out, weights = found
    assert weights is None
    assert out.is_contiguous()
    torch.testing.assert_close(out.double(), wanted, atol=4e-6, rtol=0.0)


CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


def test_a_prepared_mask() -> None:
    listed = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    listed[1, 140:] = False
    mask = prepare(BATCH, LENGTH, LENGTH, attention_mask=listed)
    wanted = _written_out(*_inputs(), visible=CAUSAL & listed[:, None, None, :])
    _check(attention(None, Layer(), *_inputs(), mask), wanted)


def test_a_prepared_mask_leaves_keys_away_and_the_biases_with_them() -> None:
    inputs = _inputs(1, LENGTH)
    bias = torch.randn(1, HEADS, 1, LENGTH)
    window = masks.sliding_window(10)
    mask = prepare(
        BATCH,
        1,
        LENGTH,
        99,
        0,
        transformers.masking_utils.and_masks(
            transformers.masking_utils.sliding_window_overlay(10),
            transformers.masking_utils.causal_mask_function,
        ),
    )
    assert (mask.start, mask.stop) == (90, 100)
    place = torch.arange(LENGTH)
    visible = window(place, place, torch.tensor(99), place)
    wanted = _written_out(*inputs, visible=visible, added=bias.double())
    _check(attention(None, Layer(), *inputs, mask, position_bias=bias), wanted)


def test_softcap_bias_and_sinks_in_their_order() -> None:
    bias, sinks = 3 * torch.randn(BATCH, HEADS, LENGTH, LENGTH), torch.linspace(-1, 3, HEADS)
    mask = prepare(BATCH, LENGTH, LENGTH)
    options = {"softcap": 2.0, "scaling": 0.7}
    wanted = _written_out(*_inputs(), visible=CAUSAL, added=bias.double(), sinks=sinks, **options)
    found = attention(None, Layer(), *_inputs(), mask, position_bias=bias, s_aux=sinks, **options)
    _check(found, wanted)


@pytest.mark.parametrize("shape", [(1, 1, LENGTH, LENGTH), (BATCH, HEADS, LENGTH, LENGTH)])
def test_masks_of_a_user_are_boolean_or_added(shape: tuple[int, ...]) -> None:
    visible = (torch.rand(shape) < 0.5) | torch.eye(LENGTH, dtype=torch.bool)
    _check(
        attention(None, Layer(), *_inputs(), visible),
        _written_out(*_inputs(), visible=visible),
    )
    added = torch.randn(shape, requires_grad=True)
    _check(
        attention(None, Layer(), *_inputs(), added),
        _written_out(*_inputs(), added=added.detach().double()),
    )
    attention(None, Layer(), *_inputs(), added)[0].square().sum().backward()
    assert added.grad is not None


def test_masks_of_a_user_may_be_the_same_for_every_query() -> None:
    visible = torch.ones(BATCH, 1, 1, LENGTH, dtype=torch.bool)
    visible[1, :, :, 77:] = False
    _check(attention(None, Layer(), *_inputs(), visible), _written_out(*_inputs(), visible=visible))
    lowest = torch.finfo(torch.float32).min
    added = torch.zeros(visible.shape).masked_fill(~visible, lowest)
    _check(attention(None, Layer(), *_inputs(), added), _written_out(*_inputs(), visible=visible))


def test_a_boolean_mask_is_made_a_block_mask_once_and_again_when_it_changed() -> None:
    visible = CAUSAL[None, None].clone()
    query, key, _ = _inputs()
    kept = [_given.given_mask(Layer(), query, key, visible, None, None).blocks for _ in range(2)]
    assert kept[0] is kept[1]
    visible[..., 0] = False
    visible[..., 0, 0] = True
    _check(attention(None, Layer(), *_inputs(), visible), _written_out(*_inputs(), visible=visible))


@pytest.mark.parametrize("make", [create_block_mask, torch_create_block_mask])
def test_block_masks_are_taken_as_they_are(make) -> None:
    mask = make(lambda b, h, q, k: q >= k, None, None, LENGTH, LENGTH, device="cpu")
    _check(attention(None, Layer(), *_inputs(), mask), _written_out(*_inputs(), visible=CAUSAL))


@pytest.mark.parametrize(
    ("layer", "is_causal", "causal"),
    [
        (Layer(True), None, True),
        (Layer(False), None, False),
        (Layer(True), False, False),
        (Layer(False), True, True),
        (Layer(), True, True),
    ],
)
def test_without_a_mask_the_call_decides_and_then_the_layer(layer, is_causal, causal) -> None:
    found = attention(None, layer, *_inputs(), None, is_causal=is_causal)
    _check(found, _written_out(*_inputs(), visible=CAUSAL if causal else None))


def test_without_a_mask_one_query_sees_everything_and_more_see_from_the_first_key_on() -> None:
    _check(attention(None, Layer(True), *_inputs(1), None), _written_out(*_inputs(1)))
    visible = torch.ones(20, LENGTH, dtype=torch.bool).tril()
    _check(
        attention(None, Layer(True), *_inputs(20), None),
        _written_out(*_inputs(20), visible=visible),
    )


def test_a_layer_that_says_nothing_without_a_mask_is_refused() -> None:
    with pytest.raises(UnsupportedArgumentError, match="attention_mask: Layer gives none"):
        attention(None, Layer(), *_inputs(), None)
    with pytest.raises(UnsupportedArgumentError, match="sliding_window: expected a mask that hol"):
        attention(None, Layer(True), *_inputs(), None, sliding_window=20)
    attention(None, Layer(True), *_inputs(), None, sliding_window=LENGTH)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_attentions": True}, "output_attentions: expected False, got True"),
        ({"block_indices": torch.zeros(1)}, "block_indices: Layer passes it to attention"),
        ({"memory": object()}, "memory: Layer passes it to attention"),
        ({"s_aux": torch.zeros(3)}, r"s_aux: expected a sink per head, \[4\], got \[3\]"),
        ({"position_bias": torch.zeros(4, 9)}, r"position_bias: expected .* got \[4, 9\]"),
        ({"cu_seq_lens_q": torch.tensor([0, 4, LENGTH])}, "cu_seq_lens_q: says that several"),
        ({"seq_idx": torch.tensor([[0, 0, 1]])}, "seq_idx: says that several sequences"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_attention_does_not_do_is_refused_by_name(options, message: str) -> None:
    with pytest.raises(UnsupportedArgumentError, match=message):
        attention(None, Layer(True), *_inputs(), None, **options)


def test_kernel_options_are_those_of_flex_attention() -> None:
    with pytest.raises(ValueError, match="kernel_options"):
        attention(None, Layer(True), *_inputs(), None, kernel_options={"BACKEND": "FLASH"})


def test_what_changes_nothing_is_taken() -> None:
    plain, _ = attention(None, Layer(True), *_inputs(), None)
    told, _ = attention(
        None,
        Layer(True).eval(),
        *_inputs(),
        None,
        dropout=0.1,
        output_attentions=False,
        position_ids=torch.arange(LENGTH)[None],
        deterministic=False,
        use_cache=True,
        cu_seq_lens_q=torch.tensor([0, LENGTH]),
        seq_idx=torch.zeros(1, LENGTH, dtype=torch.int32),
        block_indices=None,
    )
    assert torch.equal(plain, told)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (prepare(BATCH, 5, LENGTH, LENGTH - 5), "attends to other keys than its mask"),
        (prepare(3, LENGTH, LENGTH), "attends to other keys than its mask"),
        (torch.ones(BATCH, LENGTH, dtype=torch.bool), r"expected bool or floating .* \[2, 150\]"),
        (torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.int64), "got torch.int64"),
        (torch.zeros(1, 1, LENGTH, 7), r"attention_mask: expected .* got \[1, 1, 150, 7\]"),
    ],
)
def test_a_mask_for_another_call_is_refused(mask, message: str) -> None:
    with pytest.raises(UnsupportedArgumentError, match=message):
        attention(None, Layer(True), *_inputs(), mask)


def test_register_puts_attention_and_mask_under_one_name() -> None:
    register("torchyard-here")
    attentions, made = transformers.AttentionInterface(), transformers.AttentionMaskInterface()
    assert "torchyard-here" in attentions.valid_keys()
    assert made["torchyard-here"] is prepare


def test_register_can_demand_an_implementation() -> None:
    register("torchyard-demand", implementation="attention.reference")
    found = transformers.AttentionInterface()["torchyard-demand"]
    _check(found(Layer(False), *_inputs(), None), _written_out(*_inputs()))
    register("torchyard-demand", implementation="attention.none")
    found = transformers.AttentionInterface()["torchyard-demand"]
    with pytest.raises(torchyard.UnsupportedError, match=r"attention\.none"):
        found(Layer(False), *_inputs(), None)


@pytest.mark.parametrize("name", ["sdpa", "my_flash", "paged|mine", "org/kernel"])
def test_register_refuses_a_name_that_transformers_takes_for_another(name: str) -> None:
    with pytest.raises(ValueError, match="name: expected one without"):
        register(name)


def test_register_refuses_an_empty_name() -> None:
    with pytest.raises(ValueError, match="name: expected a string that is not empty"):
        register("")


def test_register_says_what_a_transformers_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def old_mask(batch_size: int, cache_position: Tensor, kv_length: int) -> None: ...

    monkeypatch.setattr("transformers.masking_utils.sdpa_mask", old_mask)
    with pytest.raises(ImportError, match=r"transformers .*found no sdpa_mask\(q_length\)"):
        register()


@pytest.mark.sweep
def test_the_module_is_there_without_transformers() -> None:
    program = """
import sys
sys.modules["transformers"] = None
from torchyard_attention.transformers import register
try:
    register()
except ImportError as error:
    assert "pip install torchyard-attention[transformers]" in str(error)
else:
    raise AssertionError
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_registering_disturbs_no_other_module() -> None:
    register()
    # Its own attributes fail until it is whole.
    compiled = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    assert compiled(torch.zeros(1, 2)).shape == (1, 2)
