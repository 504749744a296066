"""Whole models of transformers: their logits with this attention and with transformers' own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.families import FAMILIES, Family, largest, text
from torchyard_attention.tolerance import FACTOR

PROMPT, STEPS, BATCH = 150, 32, 3
# Tokens that are padding, per row, at the side that a case names.
PADDING = (0, 7, 131)

every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def _padded(side: str | None, length: int) -> Tensor:
    """Return which tokens are none of padding: int64 [BATCH, length]."""
    place, padding = torch.arange(length), torch.tensor(PADDING)[:, None]
    if side is None:
        return torch.ones((BATCH, length), dtype=torch.int64)
    return ((place >= padding) if side == "left" else (place < length - padding)).long()


def _prefill(model: Any, tokens: Tensor, listed: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(tokens, attention_mask=listed, use_cache=False).logits
    return logits


def _decoded(model: Any, tokens: Tensor, listed: Tensor) -> Tensor:
    """Return the logits of a prompt's last token and of STEPS more, each fed to the cache."""
    with torch.no_grad():
        out = model(tokens[:, :PROMPT], attention_mask=listed[:, :PROMPT], use_cache=True)
        logits = [out.logits[:, -1]]
        for place in range(PROMPT, PROMPT + STEPS):
            out = model(
                tokens[:, place : place + 1],
                attention_mask=listed[:, : place + 1],
                past_key_values=out.past_key_values,
                use_cache=True,
            )
            logits.append(out.logits[:, -1])
    return torch.stack(logits, dim=1)


def _logits(model: Any, side: str | None) -> tuple[Tensor, Tensor]:
    """Return the logits of real tokens, of a prompt in one piece and of decoding after it."""
    tokens = text(BATCH, PROMPT + STEPS)
    whole = _padded(side, PROMPT)
    decoding = _padded("left" if side == "left" else None, PROMPT + STEPS)
    return (
        _prefill(model, tokens[:, :PROMPT], whole)[whole.bool()],
        _decoded(model, tokens, decoding),
    )


def _exact(family: Family) -> tuple[Tensor, Tensor]:
    """Return what ``_logits`` of a left-padded batch are in float64, from each row alone.

    Eager's float64 has NaN where a row sees no key, so it is asked without padding.
    """
    model = family.model("eager", torch.float64)
    tokens = text(BATCH, PROMPT + STEPS)
    rows = []
    for row, padding in zip(tokens, PADDING, strict=True):
        positions = torch.arange(padding, PROMPT + STEPS)[None]
        with torch.no_grad():
            rows.append(model(row[None, padding:], position_ids=positions).logits[0])
    return (
        torch.cat([row[:-STEPS] for row in rows]),
        torch.stack([row[-STEPS - 1 :] for row in rows]),
    )


def _bound(logits: Tensor) -> float:
    """Return what two float32 models may differ by that compute the same sums in another order.

    Two layers of weights with a spread of 0.3 amplify roundings: up to 30 eps of the largest logit
    were seen. The least change of a mask, a cap or a sink is a hundred times the bound.
    """
    return 128 * torch.finfo(torch.float32).eps * float(logits.abs().max())


@every_family
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_float32_logits_are_those_of_eager(family: Family, side: str | None) -> None:
    ours = _logits(family.model("torchyard"), side)
    eager = _logits(family.model("eager"), side)
    for found, wanted in zip(ours, eager, strict=True):
        assert largest(found, wanted) <= _bound(wanted)


@every_family
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_as_near_to_float64_as_those_of_eager(
    family: Family, dtype: torch.dtype
) -> None:
    truth = _exact(family)
    ours = _logits(family.model("torchyard", dtype), "left")
    eager = _logits(family.model("eager", dtype), "left")
    for found, rough, exact in zip(ours, eager, truth, strict=True):
        assert largest(found, exact) <= FACTOR * largest(rough, exact)
        found_rms, rough_rms = ((x.double() - exact).square().mean().sqrt() for x in (found, rough))
        assert found_rms <= FACTOR * rough_rms


@pytest.mark.parametrize(
    ("family", "change"),
    [(family, change) for family in FAMILIES.values() for change in family.changes],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_the_bound_sees_one_key_more_and_a_cap_that_is_a_little_wider(
    family: Family, change: str
) -> None:
    for right, wrong in zip(
        _logits(family.model("eager"), None),
        _logits(family.changed(change).model("eager"), None),
        strict=True,
    ):
        assert largest(right, wrong) > 100 * _bound(right)


def test_the_bound_sees_a_sink_that_is_a_little_larger() -> None:
    model = FAMILIES["GptOss"].model("torchyard")
    right = _logits(model, None)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.sinks += 0.01
    for found, wanted in zip(_logits(model, None), right, strict=True):
        assert largest(found, wanted) > 100 * _bound(wanted)


@every_family
@pytest.mark.parametrize("cache", [None, "static"])
def test_generate_takes_the_tokens_that_it_takes_with_eager(
    family: Family, cache: str | None
) -> None:
    tokens, listed = text(BATCH, PROMPT), _padded("left", PROMPT)
    made = {
        attention: family.model(attention).generate(
            tokens,
            attention_mask=listed,
            max_new_tokens=STEPS,
            do_sample=False,
            cache_implementation=cache,
            return_dict_in_generate=True,
            output_logits=True,
        )
        for attention in ("torchyard", "eager")
    }
    assert torch.equal(made["torchyard"].sequences, made["eager"].sequences)
    for found, wanted in zip(made["torchyard"].logits, made["eager"].logits, strict=True):
        assert largest(found, wanted) <= _bound(wanted)


# GptOss passes no positions to its masks, whatever the attention.
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "GptOss"])
def test_packed_sequences_are_what_each_of_them_is_alone(name: str) -> None:
    family = FAMILIES[name]
    tokens, ends = text(1, PROMPT), (0, 61, 62, 92, PROMPT)
    sequences = [slice(*pair) for pair in itertools.pairwise(ends)]
    model = family.model("torchyard")
    positions = torch.cat([torch.arange(part.stop - part.start) for part in sequences])[None]
    with torch.no_grad():
        packed = model(tokens, position_ids=positions, use_cache=False).logits
        alone = [model(tokens[:, part], use_cache=False).logits for part in sequences]
        eager = family.model("eager")(tokens, position_ids=positions, use_cache=False).logits
    assert largest(packed, torch.cat(alone, dim=1)) <= _bound(eager)
    assert largest(packed, eager) <= _bound(eager)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["Gemma2", "GptOss"])
def test_a_compiled_model_has_no_graph_break(name: str) -> None:
    family = FAMILIES[name]
    tokens, listed = text(BATCH, 40), _padded("left", 40)
    listed[2] = 1
    model = family.model("torchyard")
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    found = _prefill(compiled, tokens, listed)[listed.bool()]
    wanted = _prefill(model, tokens, listed)[listed.bool()]
    assert largest(found, wanted) <= _bound(wanted)
