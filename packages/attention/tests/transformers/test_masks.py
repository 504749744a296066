"""The mask function for transformers shows what transformers' own dense masks show."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import masking_utils as masking

from torchyard_attention._mask_blocks._structured import rows_of
from torchyard_attention.contract import MaskBlocks
from torchyard_attention.transformers import UnsupportedArgumentError, _mask, _patterns
from torchyard_attention.transformers._mask import prepare
from torchyard_attention.transformers._prepared import PreparedMask
from torchyard_attention.visibility import dense_visibility


def _dense(mask: PreparedMask) -> Tensor:
    """Return what a prepared mask shows: bool [B, 1, Sq, Sk]."""
    batch, q_length, kv_length = mask.sizes
    dense = torch.zeros((batch, 1, q_length, kv_length), dtype=torch.bool)
    seen = torch.ones((), dtype=torch.bool)
    if mask.blocks is not None:
        blocks = mask.blocks
        assert blocks.seq_lengths == (q_length, mask.stop - mask.start)
        names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
        lists = (getattr(blocks, name) for name in (*names, "bits", "first_partial"))
        seen = dense_visibility(MaskBlocks(blocks.BLOCK_SIZE, *lists), *blocks.seq_lengths)
    dense[..., mask.start : mask.stop] = seen
    return dense


@dataclass(frozen=True)
class Step:
    batch: int
    q_length: int
    kv_length: int
    q_offset: int
    kv_offset: int

    def check(self, function, attention_mask=None) -> PreparedMask:
        sizes = (self.batch, self.q_length, self.kv_length, self.q_offset, self.kv_offset)
        mask = prepare(*sizes, function, attention_mask)
        wanted = masking.sdpa_mask(*sizes, function, attention_mask, allow_is_causal_skip=False)
        assert mask.shape == (self.batch, 1, self.q_length, self.kv_length)
        torch.testing.assert_close(_dense(mask), wanted.expand(self.batch, 1, -1, -1))
        return mask


# A prompt, a piece of one after others, one token, with caches that grow, slide and stand still.
STEPS = st.one_of(
    st.builds(lambda b, n: Step(b, n, n, 0, 0), st.integers(1, 3), st.integers(1, 300)),
    st.builds(
        lambda b, q, past, more: Step(b, q, past + q + more, past, 0),
        st.integers(1, 3),
        st.sampled_from([1, 1, 2, 17, 130]),
        st.integers(0, 200),
        st.sampled_from([0, 0, 90]),
    ),
    st.builds(
        lambda b, q, past, window: Step(
            b, q, min(past, window - 1) + q, past, max(past - window + 1, 0)
        ),
        st.integers(1, 3),
        st.sampled_from([1, 1, 2, 150]),
        st.integers(0, 200),
        st.integers(1, 200),
    ),
)


@st.composite
def _functions(draw: st.DrawFn, batch: int, length: int):
    """Draw a mask function of positions below ``length``, as transformers puts them together."""
    window = draw(st.integers(1, 200))
    seeds = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    groups = torch.randint(-1, 3, (batch, 1 + length // 7), generator=seeds)
    groups = groups.repeat_interleave(7, dim=1)[:, :length]
    padding = torch.randint(0, 5, (batch,), generator=seeds)
    causal = masking.causal_mask_function
    return draw(
        st.sampled_from(
            [
                causal,
                masking.bidirectional_mask_function,
                masking.sliding_window_causal_mask_function(window),
                masking.sliding_window_bidirectional_mask_function(window),
                masking.chunked_causal_mask_function(window, padding),
                masking.or_masks(causal, masking.blockwise_overlay(groups)),
                # A model's own, of which nothing is known.
                masking.or_masks(causal, lambda b, h, q, k: (k % 5 == 0) & (q >= 3)),
                masking.and_masks(
                    masking.sliding_window_causal_mask_function(window),
                    lambda b, h, q, k: (q + k) % 3 != 0,
                ),
            ]
        )
    )


@st.composite
def _padding(draw: st.DrawFn, step: Step):
    """Draw which positions are tokens, for as many as were seen; None where all are."""
    seen = step.q_offset + step.q_length
    kind = draw(st.sampled_from(["none", "all", "left", "right", "holes"]))
    if kind == "none":
        return None
    listed = torch.ones((step.batch, seen), dtype=torch.bool)
    for row in range(step.batch):
        count = draw(st.integers(0, seen))
        if kind == "left":
            listed[row, :count] = False
        elif kind == "right":
            listed[row, seen - count :] = False
        elif kind == "holes":
            listed[row, count // 2 : count] = False
    return listed


@settings(max_examples=150)
@given(st.data())
def test_any_step_has_the_mask_that_transformers_writes_out(data: st.DataObject) -> None:
    step = data.draw(STEPS)
    length = max(step.q_offset + step.q_length, step.kv_offset + step.kv_length)
    function = data.draw(_functions(step.batch, length))
    step.check(function, data.draw(_padding(step)))


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=4), min_size=1, max_size=2))
def test_packed_sequences_have_the_mask_that_transformers_writes_out(lengths) -> None:
    size = max(sum(row) for row in lengths)
    rows = [[*row, size - sum(row)] for row in lengths]
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in rows])
    packed = masking.find_packed_sequence_indices(positions)
    step = Step(len(rows), size, size, 0, 0)
    for function in (
        masking.causal_mask_function,
        masking.sliding_window_causal_mask_function(20),
        masking.chunked_causal_mask_function(16, torch.zeros(len(rows), dtype=torch.int64)),
    ):
        if packed is None:
            step.check(function)
            continue
        # As create_causal_mask composes them.
        apart = masking.packed_sequence_mask_function(packed)
        remapped = masking.remap_positions_for_packed_sequence(function, positions)
        assert step.check(masking.and_masks(remapped, apart)).packed


def test_every_kind_of_function_that_transformers_has_is_recognised() -> None:
    assert len(_patterns._readers()) == len(list(_patterns._samples())) == 9
    assert set(_patterns._special()) == {"packed", "positions"}


def test_a_reader_that_disagrees_with_transformers_is_not_used() -> None:
    overlay = masking.sliding_window_overlay(3)
    assert _patterns._agrees(overlay, _patterns._window)
    assert not _patterns._agrees(overlay, _patterns._window_both_ways)
    assert not _patterns._agrees(overlay, lambda captured: captured["window"])


@pytest.mark.parametrize(
    "function",
    [
        masking.causal_mask_function,
        masking.sliding_window_causal_mask_function(100),
        masking.chunked_causal_mask_function(100, torch.zeros(1, dtype=torch.int64)),
    ],
)
def test_a_long_prompt_is_evaluated_nowhere(function, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a mask was evaluated")

    _mask._cached_mask.cache_clear()
    monkeypatch.setattr("torchyard_attention._mask_blocks._structured.block_bits", refuse)
    monkeypatch.setattr("torchyard_attention._mask_blocks._evaluation.evaluate_mask", refuse)
    listed = torch.ones((1, 65_536), dtype=torch.bool)
    listed[:, :700] = False
    for attention_mask in (None, listed):
        mask = prepare(1, 65_536, 65_536, 0, 0, function, attention_mask)
        assert mask.blocks is not None
        held = sum(x.numel() * x.element_size() for x in (mask.blocks.bits, mask.blocks.kv_indices))
        assert held < 65_536 * 100


@pytest.mark.parametrize("offset", [500, torch.tensor(500)], ids=["growing", "static"])
def test_one_query_without_padding_gets_a_range_of_keys_and_no_mask(offset) -> None:
    causal, window = masking.causal_mask_function, masking.sliding_window_causal_mask_function(64)
    listed = torch.ones((2, 501), dtype=torch.bool)
    for attention_mask in (None, listed):
        mask = prepare(2, 1, 1000, offset, 0, causal, attention_mask)
        assert (mask.start, mask.stop, mask.blocks) == (0, 501, None)
        mask = prepare(2, 1, 1000, offset, 0, window, attention_mask)
        assert (mask.start, mask.stop, mask.blocks) == (437, 501, None)


class _Operators(TorchDispatchMode):
    """Keeps the operators that run, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_a_step_of_decoding_asks_only_whether_all_listed_keys_are_shown() -> None:
    listed = torch.ones((4, 8192), dtype=torch.bool)
    listed[1, :100] = False
    function = masking.sliding_window_causal_mask_function(8000)
    # What kind of function it is takes operators, and is found once.
    prepare(4, 1, 8192, 8191, 0, function)
    for attention_mask, wanted in (
        (None, []),
        (listed, ["slice", "all", "_local_scalar_dense"]),
    ):
        with _Operators() as ran:
            prepare(4, 1, 8192, 8191, 0, function, attention_mask)
        assert ran.names == wanted


def test_a_causal_prompt_is_the_causal_mask_and_is_cached() -> None:
    function = masking.sliding_window_causal_mask_function(512)
    first = prepare(1, 300, 1000, 0, 0, function)
    assert first.blocks is not None
    assert first.blocks.causal
    assert prepare(3, 300, 300, 0, 0, masking.causal_mask_function).blocks is first.blocks


def test_structure_and_function_of_every_part_agree() -> None:
    place = _patterns.Place(40, 10, 70, 90)
    padding = torch.tensor([0, 3])
    for mask_mod in (
        _patterns.Band(-20, 5),
        _patterns.Chunks(16, padding, place),
        _mask._padding(torch.arange(90)[None, :] >= torch.tensor([[7], [80]])),
    ):
        known = mask_mod.visibility(rows_of((2, 1, 70, 90), 1, torch.device("cpu")))
        key = torch.arange(90)
        some, whole = (
            ((key >= part.start[..., None]) & (key < part.end[..., None])).any(dim=-2)
            for part in (known.some, known.whole)
        )
        shown = mask_mod(
            torch.arange(2)[:, None, None, None],
            torch.zeros(1, 1, 1, 1, dtype=torch.int64),
            torch.arange(70)[:, None],
            key,
        )
        assert torch.equal(some.expand(2, 1, 70, 90), torch.as_tensor(shown).expand(2, 1, 70, 90))
        assert torch.equal(some.expand(2, 1, 70, 90), whole.expand(2, 1, 70, 90))


def test_padding_of_any_form_hides_what_is_padding() -> None:
    listed = torch.arange(64)[:, None].bitwise_right_shift(torch.arange(6)).bitwise_and(1).bool()
    step = Step(64, 5, 6, 1, 0)
    step.check(masking.causal_mask_function, listed)
    for row in range(64):
        Step(1, 5, 6, 1, 0).check(masking.causal_mask_function, listed[row : row + 1])


def test_an_argument_that_a_newer_transformers_passes_is_refused() -> None:
    with pytest.raises(UnsupportedArgumentError, match="strides: this transformers passes it"):
        prepare(1, 4, 4, 0, 0, masking.causal_mask_function, strides=3)
    prepare(1, 4, 4, 0, 0, masking.causal_mask_function, strides=None, use_vmap=True)
    with pytest.raises(UnsupportedArgumentError, match="attention_mask: expected \\[B, positions"):
        prepare(1, 4, 4, 0, 0, masking.causal_mask_function, torch.ones(1, 1, 4))


def test_a_prepared_mask_is_what_transformers_takes_for_a_finished_one() -> None:
    mask = prepare(2, 5, 9, 4, 0, masking.causal_mask_function)
    assert isinstance(mask, masking.BlockMask)
    assert len(mask.shape) == mask.ndim == 4
    assert mask.contiguous() is mask
    assert torch.equal(_dense(mask.to("cpu")), _dense(mask))
    assert "keys=0:9" in repr(mask)
    with pytest.raises(UnsupportedArgumentError, match="the model takes a part of it"):
        mask[:, :, 0]
    for use in (lambda: ~mask, lambda: mask & True):
        with pytest.raises(UnsupportedArgumentError, match="the model computes with it"):
            use()
    for use in (lambda: torch.zeros(1) + mask, lambda: torch.zeros(1).masked_fill(mask, 1.0)):
        with pytest.raises(UnsupportedArgumentError, match=r"the model calls (add|masked_fill)"):
            use()
    assert not hasattr(mask, "dtype")
    with pytest.raises(AttributeError, match="the model asks for its dtype; torchyard's mask is"):
        mask.dtype  # noqa: B018
