"""Prefix reuse on an architecture of transformers, beside plain generate."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Final

import torch
from torch import Tensor

from tests.models.architectures import BOUND, Outcome, Result, eager, model_of
from torchyard_cache import CacheError, reuse

__all__ = ["reused"]

_PAGE: Final = 8
_NEW: Final = 12
# Before, in and after a window of a few tokens, in whole pages and not; the last two share more.
_LENGTHS: Final = ((40, 0), (40, 5), (24, 11), (40, 5), (8, 1), (40, 29), (48, 17))


def reused(name: str) -> Result:
    """Compare tokens and logits of generate with prefix reuse with those without.

    Args:
        name: of the model's class in transformers.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = eager(name)
        if isinstance(built, Result):
            return built
        kind, config, _, _ = built
        if not hasattr(kind, "generate"):
            return Result(Outcome.UNBUILT, "does not generate")
        model = _with_a_window(kind, config)
        try:
            plain = [_generated(model, tokens) for tokens in _prompts()]
        except Exception as error:
            return Result(Outcome.UNBUILT, f"generate: {type(error).__name__}: {error}"[:120])
        return compared(model, plain)


def compared(model: Any, plain: list[Any]) -> Result:
    """Return what became of prompts with reuse, given what became of them without."""
    try:
        cache = reuse(model, page=_PAGE)
    except CacheError as error:
        return Result(Outcome.REFUSED, str(error))
    with cache:
        for tokens, wanted in zip(_prompts(), plain, strict=True):
            try:
                found = _generated(model, tokens)
            except Exception as error:
                return Result(Outcome.UNCLEAR, f"{type(error).__name__}: {error}".splitlines()[0])
            off = _off(found, wanted)
            if off > BOUND:
                return Result(Outcome.WRONG, f"logits differ by {off:.1e} of the largest")
        stats = cache.stats()
    if stats.bypassed:
        return Result(Outcome.TOLD, str(dict(stats.bypassed)))
    return Result(Outcome.RIGHT, f"{stats.tokens_reused} tokens")


def _prompts() -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    shared, other = torch.randint(5, 200, (2, 1, 64), generator=generator)
    return [torch.cat([shared[:, :n], other[:, :rest]], dim=1) for n, rest in _LENGTHS]


def _generated(model: Any, tokens: Tensor) -> Any:
    return model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=_NEW,
        do_sample=False,
        num_beams=1,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )


def _off(found: Any, wanted: Any) -> float:
    """Return the largest difference of logits, as long as the tokens before are the same."""
    largest = 0.0
    for step, (one, other) in enumerate(zip(found.logits, wanted.logits, strict=True)):
        one, other = one.where(one.isfinite(), 0.0), other.where(other.isfinite(), 0.0)
        largest = max(largest, float((one - other).abs().max() / other.abs().max()))
        place = step - len(wanted.logits)
        if found.sequences[0, place] != wanted.sequences[0, place]:
            # Two tokens within a rounding: what follows is another text.
            top = other[0].topk(2).values
            gap = float((top[0] - top[1]) / other.abs().max())
            return largest if gap <= BOUND else float("inf")
    return largest


def _with_a_window(kind: Any, config: Any) -> Any:
    config = copy.deepcopy(config)
    for of in (config, config.get_text_config(decoder=True)):
        if getattr(of, "sliding_window", None):
            of.sliding_window = 21
    return model_of(kind, config, "eager")
