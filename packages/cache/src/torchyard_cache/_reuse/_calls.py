"""Calls of ``generate``: which of them have a prompt that can be looked up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["prompt_of", "reason_to_bypass", "sequences_of", "setting_of"]

# Arguments of generate that leave keys and values of a prompt what they are.
_PLAIN: Final = frozenset(
    "inputs input_ids attention_mask generation_config logits_processor stopping_criteria streamer "
    "max_new_tokens max_length min_new_tokens min_length do_sample temperature top_k top_p "
    "typical_p repetition_penalty no_repeat_ngram_size eos_token_id pad_token_id bos_token_id "
    "return_dict_in_generate use_cache num_beams num_return_sequences seed output_scores "
    "output_logits logits_to_keep tokenizer stop_strings cache_implementation".split()
)
# Settings, wherever they are made, and what they may be beside None.
_SETTINGS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "num_beams": 1,
        "num_return_sequences": 1,
        "use_cache": True,
        "cache_implementation": None,
        "output_attentions": False,
        "output_hidden_states": False,
        "token_healing": False,
        "use_mtp": False,
        "is_assistant": False,
        "prompt_lookup_num_tokens": None,
        "assistant_early_exit": None,
        "speculation_type": None,
        "penalty_alpha": None,
        "dola_layers": None,
        "prefill_chunk_size": None,
        "constraints": None,
        "force_words_ids": None,
    }
)


def reason_to_bypass(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: float
) -> str:
    """Return why a call is left alone; empty where its prompt can be looked up.

    Args:
        model: of transformers.
        args, kwargs: of ``generate``.
        limit: tokens from which on keys depend on how many there are.
    """
    if model.training:
        return "training"
    if len(args) > 1:
        return "arguments by position"
    others = sorted(
        name for name, value in kwargs.items() if value is not None and name not in _PLAIN
    )
    if others:
        return f"the argument {others[0]}"
    tokens = prompt_of(args, kwargs)
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.is_floating_point():
        return "no token ids"
    if tokens.shape[0] != 1:
        return "several prompts at once"
    if tokens.shape[1] >= limit:
        return "rotary frequencies that depend on the prompt's length"
    if _has_padding(model, tokens, kwargs):
        return "padding"
    for name, plain in _SETTINGS.items():
        value = setting_of(model, kwargs, name)
        if value is not None and value != plain:
            return f"{name}={value}"
    return ""


def setting_of(model: Any, kwargs: Mapping[str, Any], name: str) -> Any:
    """Return a setting: of the call, else of its configuration, else of the model's."""
    for config in (kwargs.get("generation_config"), model.generation_config):
        if kwargs.get(name) is not None:
            break
        if getattr(config, name, None) is not None:
            return getattr(config, name)
    return kwargs.get(name)


def prompt_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the tokens of a call."""
    found = args[0] if args else kwargs.get("input_ids")
    return kwargs.get("inputs") if found is None else found


def sequences_of(result: Any) -> Tensor:
    """Return the tokens of what ``generate`` returned."""
    sequences = getattr(result, "sequences", result)
    assert isinstance(sequences, Tensor)
    return sequences


def _has_padding(model: Any, tokens: Tensor, kwargs: Mapping[str, Any]) -> bool:
    """Return whether tokens are hidden: by a mask, or as transformers infers one."""
    mask = kwargs.get("attention_mask")
    if mask is not None:
        return mask.shape != tokens.shape or not bool(mask.all())
    pad = setting_of(model, kwargs, "pad_token_id")
    return pad is not None and bool((tokens == torch.as_tensor(pad, device=tokens.device)).any())
