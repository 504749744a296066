"""Ready-made masks: what they show, and what they know of their structure."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask as torch_create_block_mask
from torch.nn.attention.flex_attention import flex_attention as torch_flex_attention

from torchyard_attention import and_masks, create_block_mask, create_mask, masks, or_masks
from torchyard_attention._mask_blocks._structured import rows_of

LENGTH = 96


def _near(position, length, kernel):
    start = min(max(position - kernel // 2, 0), length - kernel)
    return range(start, start + kernel)


IDS = torch.tensor([0] * 20 + [1] * 1 + [2] * 40 + [5] * 35)
SCATTERED = torch.tensor([position * position % 7 // 2 for position in range(LENGTH)])
BATCHED = torch.stack([IDS, SCATTERED])
OTHER = torch.tensor([3] * 10 + [2] * 50 + [0] * 20 + [9] * 16)
PARENTS = torch.tensor([-1, 0, 1, 1, 0, 4, -1, 6, 7, 2] + [node // 2 for node in range(10, 60)])
PARENT_OF = PARENTS.tolist()


def _ancestor(node, below):
    while below > node:
        below = PARENT_OF[below]
    return below == node


def _diffuses(q, k, length, block):
    if q < length:
        return q // block == k // block if k < length else (k - length) // block < q // block
    return k >= length and (k - length) // block <= (q - length) // block


# Name -> (mask, the same as a function of four Python numbers).
MASKS = {
    "causal": (masks.causal, lambda b, h, q, k: k <= q),
    "window": (masks.sliding_window(10), lambda b, h, q, k: k in range(q - 9, q + 1)),
    "window ahead": (
        masks.sliding_window(5, ahead=7),
        lambda b, h, q, k: k in range(q - 4, q + 8),
    ),
    "dilated": (masks.dilated(4, 3), lambda b, h, q, k: k in (q, q - 3, q - 6, q - 9)),
    "dilated by one": (masks.dilated(6, 1), lambda b, h, q, k: k in range(q - 5, q + 1)),
    "padding": (masks.padding(37), lambda b, h, q, k: k < 37),
    "padding of batch": (
        masks.padding(torch.tensor([40, 0])),
        lambda b, h, q, k: k < (40, 0)[b],
    ),
    "prefix": (masks.prefix_lm(33), lambda b, h, q, k: k < 33 or k <= q),
    "prefix of batch": (
        masks.prefix_lm(torch.tensor([3, 50], dtype=torch.int32)),
        lambda b, h, q, k: k < (3, 50)[b] or k <= q,
    ),
    "global": (
        masks.global_local(12, 6),
        lambda b, h, q, k: q < 12 or k < 12 or abs(q - k) < 6,
    ),
    "document": (masks.document(IDS), lambda b, h, q, k: IDS[q] == IDS[k]),
    "scattered documents": (
        masks.document(SCATTERED),
        lambda b, h, q, k: SCATTERED[q] == SCATTERED[k],
    ),
    "document of batch": (
        masks.document(BATCHED),
        lambda b, h, q, k: BATCHED[b, q] == BATCHED[b, k],
    ),
    "other documents": (masks.document(IDS, OTHER), lambda b, h, q, k: IDS[q] == OTHER[k]),
    "varlen": (
        masks.varlen(torch.tensor([0, 30, 30, LENGTH])),
        lambda b, h, q, k: (q < 30) == (k < 30),
    ),
    "varlen with padding": (
        masks.varlen(torch.tensor([0, 30, 70]), torch.tensor([0, 5, 50]), length=LENGTH),
        lambda b, h, q, k: (q < 30 and k < 5) or (30 <= q < 70 and 5 <= k < 50),
    ),
    "shared prefix": (
        masks.shared_prefix(20, IDS),
        lambda b, h, q, k: k < 20 or IDS[q] == IDS[k],
    ),
    "block diffusion": (
        masks.block_diffusion(48, 6),
        lambda b, h, q, k: _diffuses(q, k, 48, 6),
    ),
    "natten 1d": (masks.natten_1d(LENGTH, 7), lambda b, h, q, k: k in _near(q, LENGTH, 7)),
    "natten 1d even": (masks.natten_1d(LENGTH, 8), lambda b, h, q, k: k in _near(q, LENGTH, 8)),
    "natten 2d": (
        masks.natten_2d((8, 12), (3, 5)),
        lambda b, h, q, k: k // 12 in _near(q // 12, 8, 3) and k % 12 in _near(q % 12, 12, 5),
    ),
    "natten 2d of wide windows": (
        masks.natten_2d((8, 12), (3, 11)),
        lambda b, h, q, k: k // 12 in _near(q // 12, 8, 3) and k % 12 in _near(q % 12, 12, 11),
    ),
    "natten 2d of many rows": (
        masks.natten_2d((48, 2), (40, 1)),
        lambda b, h, q, k: k // 2 in _near(q // 2, 48, 40) and k % 2 == q % 2,
    ),
    "tree": (
        masks.tree(PARENTS, context=36),
        lambda b, h, q, k: k < 36 or _ancestor(k - 36, q),
    ),
}
PLAIN = {
    "plain": (lambda b, h, q, k: (q + 2 * k) % 5 > h, lambda b, h, q, k: (q + 2 * k) % 5 > h),
}
QUERIES = {"tree": 60}
names = st.sampled_from(sorted(MASKS))
sizes = st.integers(1, 40)


def dense(name, q_length=LENGTH, kv_length=LENGTH, heads=1):
    """Spell a mask out from its definition: bool [2, heads, Sq, Sk]."""
    function = {**MASKS, **PLAIN}[name][1]
    return torch.tensor(
        [
            [
                [[bool(function(b, h, q, k)) for k in range(kv_length)] for q in range(q_length)]
                for h in range(heads)
            ]
            for b in range(2)
        ],
        dtype=torch.bool,
    ).view(2, heads, q_length, kv_length)


DENSE = {name: dense(name, QUERIES.get(name, LENGTH)) for name in MASKS}


def spell_out(mask):
    from torchyard_attention.contract import MaskBlocks
    from torchyard_attention.visibility import dense_visibility

    blocks = MaskBlocks(mask.BLOCK_SIZE, *mask.block_tensors())
    return dense_visibility(blocks, *mask.seq_lengths)


def unstructured(mask_mod):
    """Return the same mask as a plain function."""
    return lambda b, h, q, k: mask_mod(b, h, q, k)


def assert_same_blocks(ours, plain):
    """Compare lists where they are used, and bits, one by one."""
    assert torch.equal(ours.kv_num_blocks, plain.kv_num_blocks)
    assert torch.equal(ours.full_kv_num_blocks, plain.full_kv_num_blocks)
    assert torch.equal(ours.first_partial, plain.first_partial)
    assert torch.equal(ours.bits, plain.bits)
    for counts, left, right in (
        (ours.kv_num_blocks, ours.kv_indices, plain.kv_indices),
        (ours.full_kv_num_blocks, ours.full_kv_indices, plain.full_kv_indices),
    ):
        used = torch.arange(left.shape[-1]) < counts[..., None]
        right = right[..., : left.shape[-1]]
        assert torch.equal(left[used], right[used])


def assert_sound(mask_mod, expected, block_size, heads=1):
    """Compare what a mask says of its structure with its pairs."""
    q_length, kv_length = expected.shape[2:]
    rows = rows_of((2, heads, q_length, kv_length), block_size, torch.device("cpu"))
    told = mask_mod.visibility(rows)
    key = torch.arange(kv_length)
    some, whole = (
        ((key >= part.start[..., None]) & (key < part.end[..., None])).any(dim=-2)
        for part in (told.some, told.whole)
    )
    for row, (first, last) in enumerate(zip(rows.first.tolist(), rows.last.tolist(), strict=True)):
        seen = expected[:, :, first : last + 1]
        allowed, sure = (
            part.expand(2, 1, len(rows.first), kv_length)[:, :, row] for part in (some, whole)
        )
        assert not (seen.any(dim=2) & ~allowed).any(), (
            f"row {row} sees a key that was called hidden"
        )
        assert not (sure & ~seen.all(dim=2)).any(), (
            f"row {row} misses a key that was called visible"
        )


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_shows_what_its_definition_says(name):
    expected = DENSE[name]
    shape = (2, 1, *expected.shape[2:])
    assert torch.equal(create_mask(MASKS[name][0], *shape), expected)


@given(names, sizes, sizes, st.data())
@settings(max_examples=150)
def test_blocks_from_the_structure_equal_those_of_a_plain_function(name, rows, keys, data):
    mask_mod = MASKS[name][0]
    q_length = data.draw(st.integers(1, QUERIES.get(name, LENGTH)))
    kv_length = data.draw(st.integers(0, LENGTH))
    arguments = (2, 1, q_length, kv_length, "cpu", (rows, keys))
    ours = create_block_mask(mask_mod, *arguments)
    assert_same_blocks(ours, create_block_mask(unstructured(mask_mod), *arguments))
    assert torch.equal(spell_out(ours), DENSE[name][:, :, :q_length, :kv_length])


@given(names, sizes)
@settings(max_examples=100)
def test_structure_never_calls_a_visible_key_hidden_or_a_hidden_one_visible(name, block_size):
    assert_sound(MASKS[name][0], DENSE[name], block_size)


@given(
    st.lists(names, min_size=2, max_size=3), st.sampled_from([and_masks, or_masks]), sizes, sizes
)
@settings(max_examples=150)
def test_combinations_keep_a_sound_structure(chosen, combine, rows, keys):
    q_length = min(QUERIES.get(name, LENGTH) for name in chosen)
    parts = [DENSE[name][:, :, :q_length] for name in chosen]
    expected = parts[0]
    for part in parts[1:]:
        expected = expected & part if combine is and_masks else expected | part
    mask_mod = combine(*(MASKS[name][0] for name in chosen))

    assert_sound(mask_mod, expected, rows)
    arguments = (2, 1, q_length, LENGTH, "cpu", (rows, keys))
    ours = create_block_mask(mask_mod, *arguments)
    assert torch.equal(spell_out(ours), expected)
    assert_same_blocks(ours, create_block_mask(unstructured(mask_mod), *arguments))


@given(names, st.sampled_from([and_masks, or_masks]), st.booleans(), sizes)
@settings(max_examples=50)
def test_combinations_with_a_plain_function_are_exact(name, combine, plain_first, block_size):
    q_length = QUERIES.get(name, LENGTH)
    parts = [MASKS[name][0], PLAIN["plain"][0]]
    mask_mod = combine(*(reversed(parts) if plain_first else parts))
    structured, plain = DENSE[name], dense("plain", q_length, heads=2)
    expected = structured & plain if combine is and_masks else structured | plain
    ours = create_block_mask(mask_mod, 2, 2, q_length, LENGTH, "cpu", block_size)
    assert torch.equal(spell_out(ours), expected)


def test_nested_combinations_with_many_intervals_stay_sound():
    pieces = or_masks(*(and_masks(masks.padding(n), masks.dilated(2, n)) for n in range(1, 90)))
    image = masks.natten_2d((8, 12), (3, 5))
    mask_mod = or_masks(and_masks(pieces, image), and_masks(or_masks(image, pieces), masks.causal))
    assert_sound(mask_mod, create_mask(mask_mod, 2, 1, LENGTH, LENGTH), 16)


def test_a_plain_function_alone_knows_nothing():
    rows = rows_of((1, 1, 8, 8), 4, torch.device("cpu"))
    plain = PLAIN["plain"][0]
    assert and_masks(plain).visibility(rows) is None
    assert or_masks(masks.causal, plain).visibility(rows) is None
    assert and_masks(masks.causal, plain).visibility(rows) is not None
    assert and_masks().visibility(rows) is None
    assert or_masks().visibility(rows) is None


def test_hidden_and_full_blocks_are_never_evaluated():
    evaluated = []

    class Watched:
        def __call__(self, b, h, q_idx, kv_idx):
            return masks.causal(b, h, q_idx, kv_idx)

        def visibility(self, rows):
            if rows.height == 1:
                evaluated.append(len(rows.first))
                return None
            return masks.causal.visibility(rows)

    watched = Watched()
    assert isinstance(watched, masks.StructuredMask)
    import torchyard_attention._mask_blocks._structured as module

    seen = []
    original = module.block_bits

    def counted(text, captured, place, *rest):
        seen.extend(zip(place[2].tolist(), place[3].tolist(), strict=True))
        return original(text, captured, place, *rest)

    module.block_bits = counted
    try:
        mask = create_block_mask(watched, None, None, 1024, 1024, "cpu", 64)
    finally:
        module.block_bits = original
    assert evaluated == [1024]
    assert seen == [(row, row) for row in range(16)]
    assert_same_blocks(mask, create_block_mask(masks.causal, None, None, 1024, 1024, "cpu", 64))


def test_lists_are_as_wide_as_their_longest_row():
    mask = create_block_mask(masks.sliding_window(64), None, None, 4096, 4096, "cpu", 64)
    assert mask.kv_indices.shape == (1, 1, 64, 2)
    assert mask.full_kv_indices.shape == (1, 1, 64, 0)
    assert mask.sparsity() == pytest.approx(100 * (1 - 127 / 4096))
    assert mask.to_dense().shape == (1, 1, 64, 64)
    assert int(mask.to_dense().sum()) == 127


def test_causal_is_recognised_through_combinations():
    for mask_mod in (masks.causal, and_masks(masks.causal), or_masks(masks.causal)):
        assert create_block_mask(mask_mod, None, None, 64, 64, "cpu").causal


@pytest.mark.sweep
@pytest.mark.parametrize("name", MASKS)
def test_torchs_flex_attention_takes_the_mask(name):
    q_length = QUERIES.get(name, LENGTH)
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, q_length, 8), torch.randn(2, 1, LENGTH, 8)
    mask = torch_create_block_mask(MASKS[name][0], 2, 1, q_length, LENGTH, device="cpu")
    out = torch_flex_attention(query, key, key, block_mask=mask)
    scores = (query @ key.mT / 8**0.5).masked_fill(~DENSE[name], -torch.inf)
    expected = scores.softmax(dim=-1).nan_to_num() @ key
    torch.testing.assert_close(out, expected)


COMPILED = ["causal", "window", "dilated", "document", "tree", "block diffusion", "natten 2d"]


# Dynamo compiles one function for all of them, so it holds their sizes as symbols.
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_function_makes_the_same_mask(name):
    q_length = QUERIES.get(name, LENGTH)
    mask_mod = and_masks(MASKS[name][0], masks.padding(90))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def make(anchor):
        mask = create_block_mask(mask_mod, 2, None, q_length, LENGTH, "cpu", 32)
        return mask.kv_num_blocks + anchor, mask.bits

    expected = create_block_mask(mask_mod, 2, None, q_length, LENGTH, "cpu", 32)
    counts, bits = make(torch.zeros((), dtype=torch.int32))
    assert torch.equal(counts, expected.kv_num_blocks)
    assert torch.equal(bits, expected.bits)


def test_ids_that_changed_since_are_looked_at_again():
    ids = IDS.clone()
    mask_mod = masks.document(ids)
    create_block_mask(mask_mod, None, None, LENGTH, LENGTH, "cpu", 16)
    ids[:50] = 7
    mask = create_block_mask(mask_mod, None, None, LENGTH, LENGTH, "cpu", 16)
    assert torch.equal(spell_out(mask)[0, 0], ids[:, None] == ids)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: masks.sliding_window(0), "size: expected an int of at least 1, got 0"),
        (lambda: masks.sliding_window(1, ahead=-1), "ahead: expected an int of at least 0, got"),
        (lambda: masks.dilated(1, 0), "dilation: expected an int of at least 1, got 0"),
        (lambda: masks.padding(-1), "lengths: expected an int of at least 0, got -1"),
        (lambda: masks.padding(torch.ones(2)), r"lengths: expected int64, .* got torch.float32"),
        (lambda: masks.document(torch.ones(4)), r"ids: expected int64, .* got torch.float32"),
        (lambda: masks.document(IDS, BATCHED), "kv_ids: expected as many dimensions as ids"),
        (lambda: masks.document(BATCHED, BATCHED[:1]), "kv_ids: expected batch 2, as ids, got 1"),
        (lambda: masks.varlen(torch.tensor([1, 2])), "offsets: expected offsets that start at 0"),
        (lambda: masks.varlen(torch.tensor([0, 9]), length=8), "offsets: expected at most 8"),
        (
            lambda: masks.varlen(torch.tensor([0, 9]), torch.tensor([0, 9, 9])),
            r"kv_offsets: expected shape \[2\], as offsets, got \[3\]",
        ),
        (lambda: masks.block_diffusion(10, 3), "block: expected a divisor of length 10, got 3"),
        (lambda: masks.natten_1d(4, 5), "kernel: expected 1 to 4, the length, got 5"),
        (lambda: masks.natten_2d((4, 4), (0, 1)), r"kernel\[0\]: expected 1 to 4"),
        (lambda: masks.tree(torch.tensor([1, -1])), "parents: expected -1 or an earlier node"),
        (lambda: masks.tree(PARENTS, context=-1), "context: expected an int of at least 0"),
        (
            lambda: create_block_mask(masks.document(IDS), None, None, 97, 97, "cpu"),
            "document: ids: expected those of 97 queries, got 96",
        ),
        (
            lambda: create_block_mask(masks.tree(PARENTS), None, None, 61, 60, "cpu"),
            "tree: parents: expected a node for each of 61 queries, .* of 60 keys .*, got 60",
        ),
        (
            lambda: masks.padding(torch.ones(0, dtype=torch.int64)),
            "padding: lengths: expected a length for each batch, got none",
        ),
        (
            lambda: create_block_mask(masks.padding(torch.tensor([3, 4])), 4, None, 8, 8, "cpu"),
            "create_block_mask: mask_mod: .* each batch of 4, got those of 2",
        ),
        (
            lambda: create_block_mask(masks.document(BATCHED), 4, None, LENGTH, LENGTH, "cpu"),
            "create_block_mask: mask_mod: .* each batch of 4, got those of 2",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
