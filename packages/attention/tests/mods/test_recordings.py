"""score_mods are kept, and what is kept is a recording made now."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from packages.programs.tests.recordings import Mod, held
from torchyard_attention import flex_attention, scores
from torchyard_attention._mods import _recordings as recordings
from torchyard_attention._mods._trace import SCORE_INPUTS, trace

_CPU = torch.device("cpu")
_TABLE = torch.randn(4)


def _recorded(function: Mod) -> tuple[str, list[Tensor]]:
    """Record, by what was kept or not, and hold the result against a recording made now."""
    return held(
        function,
        recordings.cached_recording,
        lambda mod: recordings.recorded(mod, torch.float32, _CPU),
        lambda mod: trace(mod, "score_mod", SCORE_INPUTS, torch.float32, _CPU),
    )


def _keep(function: Mod) -> bool:
    for _ in range(3):
        _recorded(function)
    return recordings.cached_recording(function) is not None


_KEPT: dict[str, Mod] = {
    "alibi": scores.alibi(torch.rand(4)),
    "symmetric alibi": scores.alibi(torch.rand(4), symmetric=True),
    "softcap": scores.softcap(20.0),
    "relative": scores.relative_bias(torch.randn(4, 9)),
    "buckets": scores.relative_bias(torch.randn(4, 32), buckets=scores.t5_buckets()),
    "bias": scores.learnable_bias(torch.randn(3, 5)),
    "chain": scores.chain(scores.softcap(7.0), scores.alibi(torch.rand(4))),
    "twice": scores.chain(*(scores.alibi(_TABLE),) * 2),
    "parameter": scores.alibi(torch.nn.Parameter(torch.rand(4))),
}


@pytest.mark.parametrize("name", _KEPT)
def test_what_does_the_same_again_is_cached(name: str) -> None:
    assert _keep(_KEPT[name])


def test_a_state_of_torchs_is_read_in_every_call() -> None:
    def mod(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return s * 2 if torch.is_grad_enabled() else s * 3

    found = []
    for enabled in (True, False) * 2:
        with torch.set_grad_enabled(enabled):
            for _ in range(3):
                text, _captured = _recorded(mod)
            found.append(text)
    assert found[0] == found[2] != found[1] == found[3]
    assert recordings.cached_recording(mod) is None


def test_a_shape_that_nobody_asks_for_may_be_another() -> None:
    assert _keep(scores.learnable_bias(torch.randn(3, 4)))
    assert recordings.cached_recording(scores.learnable_bias(torch.randn(5, 6))) is not None


def test_a_score_of_another_dtype_is_recorded_at_every_call() -> None:
    def mod(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return s + (q - k).to(s.dtype)

    assert _keep(mod)
    for _ in range(3):
        text, _captured = recordings.recorded(mod, torch.float64, _CPU)
        assert "float64" in text


def test_a_tensors_new_values_are_read() -> None:
    query = torch.randn(1, 4, 3, 8)
    slopes = torch.rand(4)
    mod = scores.alibi(slopes)
    for _ in range(5):
        found = flex_attention(query, query, query, mod)
        distance = torch.arange(3) - torch.arange(3)[:, None]
        expected = torch.nn.functional.scaled_dot_product_attention(
            query, query, query, slopes[:, None, None] * distance
        )
        torch.testing.assert_close(found, expected)
        slopes.mul_(-1.5)


def test_the_text_of_what_was_kept_is_one_object() -> None:
    first, second = scores.softcap(11.0), scores.softcap(11.0)
    assert _keep(first)
    texts = [found[0] for mod in (first, second) if (found := recordings.cached_recording(mod))]
    assert len({id(text) for text in texts}) == 1 < len(texts)
    assert recordings.is_cached(texts[0])
    assert not recordings.is_cached("".join(texts[0]))
