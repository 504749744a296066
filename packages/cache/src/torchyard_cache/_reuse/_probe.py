"""A model is tried before its prompts are cut: what is put together again must give its logits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from torchyard_cache._errors import CacheError

if TYPE_CHECKING:
    from torchyard_cache._reuse._pages import Page, States
    from torchyard_cache._reuse._recording import RecordingCache

__all__ = ["cache_keyword", "fill", "probe"]

# Tokens of a tried prompt: the beginning that is put together again, and what follows it.
_BEGIN: Final = 24
_REST: Final = 8
# A router of experts may choose others in a rounding's place: one try of these must be right.
_TRIES: Final = 3
# What follows a beginning depends on it this many times more than on how it was computed.
_TOKENS: Final = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
_CLEAR: Final = 100
_ROUNDINGS: Final = 8


def cache_keyword(model: Any) -> str:
    """Return the name of the argument by which a model takes a cache.

    Raises:
        CacheError: it takes none.
    """
    for function in (type(model).forward, type(model).prepare_inputs_for_generation):
        for name in ("cache", "past_key_values"):
            if name in inspect.signature(function).parameters:
                return name
    raise CacheError("its forward takes no cache")


def fill(generate: Callable[..., Any], keyword: str, cache: RecordingCache, tokens: Tensor) -> None:
    """Let a model compute all of some tokens into a cache that has a beginning of them."""
    generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=1,
        do_sample=False,
        num_beams=1,
        return_dict_in_generate=False,
        **{keyword: cache},
    )
    cache.length = tokens.shape[1]


@torch.no_grad()
def probe(model: Any, generate: Callable[..., Any], keyword: str) -> tuple[Page, States]:
    """Try a model with tokens drawn at random, and return a page and states of what it computed.

    The logits after a beginning that was cut and put together again are compared with those of
    the whole prompt, and with those of a prompt that begins otherwise: where the first distance is
    no small part of the second, and no rounding, what was put together is not what was cut.

    Raises:
        CacheError: the model's content is not known, or its logits are others; says which.
    """
    from torchyard_cache._reuse._recording import RecordingCache

    distances = []
    with _evaluated(model):
        for seed in range(_TRIES):
            try:
                whole, other = _prompts(model, seed)
                begin = whole.shape[1] - _REST
                cache = RecordingCache(model.config)
                wanted, changed = _logits(generate, whole), _logits(generate, other)
                fill(generate, keyword, cache, whole[:, :begin])
                length = cache.get_seq_length()
                if length != begin:
                    raise CacheError(
                        f"its cache has {length} tokens after a prompt of {begin}: what it "
                        "computed is elsewhere"
                    )
                page = next(cache.pages(0, 1, begin))
                states = cache.states()
                again = RecordingCache.restored(model.config, [page], begin, states)
                found = _logits(generate, whole, **{keyword: again})
            except CacheError:
                raise
            except Exception as error:
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                raise CacheError(f"a beginning cannot be cut from its cache ({text})") from error
            far = float((found - wanted).norm())
            rounding = _ROUNDINGS * torch.finfo(model.dtype).eps * float(wanted.norm())
            if far <= max(float((changed - wanted).norm()) / _CLEAR, rounding):
                return page, states
            distances.append(far / float(wanted.norm()))
    raise CacheError(
        "logits after a beginning that was computed before differ from its own by "
        f"{min(distances):.1%} of their norm: it keeps something elsewhere, sees tokens that come "
        "after, or does not begin with what it kept"
    )


@contextmanager
def _evaluated(model: Any) -> Iterator[None]:
    """Let a model be evaluated, by settings that are a new model's."""
    from transformers import GenerationConfig

    training, settings = (
        [module for module in model.modules() if module.training],
        model.generation_config,
    )
    model.eval()
    model.generation_config = GenerationConfig(
        **{name: getattr(settings, name, None) for name in _TOKENS}
    )
    try:
        yield
    finally:
        model.generation_config = settings
        for module in training:
            module.training = True


def _prompts(model: Any, seed: int) -> tuple[Tensor, Tensor]:
    """Return a prompt, and another that ends alike: int64 [1, tokens], of no special tokens."""
    config = model.config.get_text_config(decoder=True)
    special = {
        value
        for of in (model.config, config, model.generation_config)
        for name, value in of.to_dict().items()
        if name.endswith("token_id") and isinstance(value, int)
    }
    plain = [token for token in range(min(config.vocab_size, 4096)) if token not in special]
    most = min(_BEGIN, (getattr(config, "max_position_embeddings", None) or 1 << 20) - _REST - 4)
    if not plain or most < 1:
        raise CacheError(f"{config.vocab_size} tokens, or positions for them, are too few to try")
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(plain), (2, most + _REST), generator=generator)
    drawn[1, most:] = drawn[0, most:]
    whole, other = torch.tensor(plain, device=model.device)[drawn.to(model.device)]
    return whole[None], other[None]


def _logits(generate: Callable[..., Any], tokens: Tensor, **cache: Any) -> Tensor:
    """Return logits of the first drawn token, in float64."""
    result = generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=1,
        do_sample=False,
        num_beams=1,
        num_return_sequences=1,
        use_cache=True,
        output_logits=True,
        return_dict_in_generate=True,
        **cache,
    )
    logits: Tensor = result.logits[0].double()
    if not bool(logits.isfinite().any()):
        raise ValueError("no logit is finite")
    return logits.where(logits.isfinite(), 0.0)
