"""The attention function: from a layer of a model of transformers to ``flex_attention``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention import scores
from torchyard_attention._api import AuxRequest, ScoreModFunction, autocast_inputs
from torchyard_attention.transformers._errors import UnsupportedArgumentError
from torchyard_attention.transformers._given import given_mask
from torchyard_attention.transformers._packed import mask_of_packed
from torchyard_attention.transformers._pages import PAGES, Pages
from torchyard_attention.transformers._prepared import PreparedMask

__all__ = ["attention"]

# What models pass on to every attention and what no attention reads, as "eager" reads none of it.
_OF_CACHES: Final = (
    "cache cache_position logits_indices logits_processor_args past_key_value past_key_values "
    "read_index use_cache write_index"
).split()
_OF_INPUTS: Final = (
    "decoder_input_ids decoder_inputs_embeds image_grid_thw image_sizes input_features input_ids "
    "input_values inputs_embeds interpolate_pos_encoding labels lengths mm_encoder_outputs "
    "mm_token_type_ids offset_mapping pixel_values pixel_values_videos position_embeddings "
    "position_ids rope_deltas second_per_grid_ts special_tokens_mask task_type_ids token_type_ids "
    "video_grid_thw vision_feature_layer vision_feature_select_strategy".split()
)
_OF_OUTPUTS: Final = (
    "logits_to_keep num_items_in_batch num_logits_to_keep output_hidden_states "
    "output_router_logits return_dict return_loss".split()
)
# Hints for other attentions' kernels.
_HINTS: Final = "deterministic layer_idx max_length_k max_length_q".split()
_WITHOUT_EFFECT: Final = frozenset([*_OF_CACHES, *_OF_INPUTS, *_OF_OUTPUTS, *_HINTS])

# What says that several sequences are in one row. transformers' masks learn it from position_ids;
# without a mask, as in continuous batching, the first two say all of it.
_OF_PACKED: Final = ("cu_seq_lens_q", "cu_seq_lens_k", "seq_idx")

_REMEDY: Final = 'load the model with attn_implementation="eager" or "sdpa"'


def attention(
    implementation: str | None,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: PreparedMask | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool | None = None,
    kernel_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention for a layer.

    Args:
        implementation: demand this implementation of ``attention/1``.
        module: the layer; says whether it is causal where it got no mask.
        query: [B, Hq, Sq, D].
        key, value: [B, Hkv, Sk, D] and [B, Hkv, Sk, V], the cache's keys and values included.
        attention_mask: from this package's mask function; or one that the model or its user made,
            [B or 1, Hq or 1, Sq or 1, Sk]: bool, True where a query sees a key, or floating point,
            added to the scores. None: causal where the layer is, and Sq > 1; within each sequence
            where cu_seq_lens_q and cu_seq_lens_k say where these begin.
        dropout: the probability with which a weight counts as 0; applied in training alone.
        scaling: multiplies the scores; None: 1 / sqrt(D).
        is_causal: whether queries see only keys before them where there is no mask; None: what
            the layer says.
        sliding_window: is in the mask.
        softcap: ``softcap * tanh(score / softcap)``, before anything is added.
        s_aux: a sink's logit for each head, [Hq].
        position_bias: floating point [B or 1, Hq or 1, Sq or 1, Sk], added to the scores.
        output_attentions: whether attention's weights are wanted; they are never held.
        kernel_options: as of ``flex_attention``.
        kwargs: what models pass on.

    Returns:
        [B, Sq, Hq, V] in query's dtype, and None for the weights.

    Raises:
        UnsupportedArgumentError: the model wants something else; names it.
        torchyard.UnsupportedError: no implementation supports the call.
    """
    pages: Pages | None = kwargs.pop(PAGES, None)
    _refuse(module, output_attentions, kwargs)
    query, key, value = autocast_inputs(query, key, value)
    parts = [] if softcap is None else [scores.softcap(softcap)]
    how: dict[str, Any] = {"kernel_options": kernel_options, "implementation": implementation}
    if pages is not None:
        _check_alone(pages, (attention_mask, sliding_window, position_bias))
        compute = partial(pages.attend, query, _one(parts), scaling, **how)
    else:
        starts_q, starts_k = kwargs.get("cu_seq_lens_q"), kwargs.get("cu_seq_lens_k")
        if attention_mask is None and starts_q is not None and starts_k is not None:
            starts = starts_q, starts_k
            mask = mask_of_packed(module, query, key, *starts, is_causal, sliding_window)
        else:
            mask = given_mask(module, query, key, attention_mask, is_causal, sliding_window)
        _check_packed(kwargs, mask.packed)
        if (mask.start, mask.stop) != (0, key.shape[2]):
            key, value = key[:, :, mask.start : mask.stop], value[:, :, mask.start : mask.stop]
        if position_bias is not None:
            parts.append(_added("position_bias", position_bias, query, mask))
        if isinstance(attention_mask, Tensor) and attention_mask.is_floating_point():
            parts.append(_added("attention_mask", attention_mask, query, mask))
        compute = partial(
            mask.attend,
            query,
            key,
            value,
            _one(parts),
            mask.blocks,
            scaling,
            enable_gqa=True,
            dropout_p=dropout if module.training else 0.0,
            **how,
        )
    out = compute() if s_aux is None else _with_sinks(compute, query.shape[1], s_aux)
    return out.transpose(1, 2).contiguous(), None


def _one(parts: list[ScoreModFunction]) -> ScoreModFunction | None:
    return parts[0] if len(parts) == 1 else scores.chain(*parts) if parts else None


def _check_alone(pages: Pages, others: tuple[Any, ...]) -> None:
    """Raise UnsupportedArgumentError if a step over pages has a mask, a window or a bias."""
    names = ("attention_mask", "sliding_window", "position_bias")
    for name, other in zip(names, others, strict=True):
        if other is not None:
            raise UnsupportedArgumentError(
                f"{name}: expected None where keys are read from a cache's "
                f"{pages.key.shape[0]} pages, got {type(other).__name__}; {_REMEDY}"
            )


def _with_sinks(compute: Callable[..., Any], heads: int, s_aux: Tensor) -> Tensor:
    if s_aux.numel() != heads:
        raise UnsupportedArgumentError(
            f"s_aux: expected a sink per head, [{heads}], got {list(s_aux.shape)}; {_REMEDY}"
        )
    out, aux = compute(return_aux=AuxRequest(lse=True))
    return scores.sinks(out, aux.lse, s_aux.reshape(-1)).out


def _added(name: str, bias: Tensor, query: Tensor, mask: PreparedMask) -> ScoreModFunction:
    """Return the score_mod that adds a bias, of which the mask may have left some keys away."""
    (batch, q_length, kv_length), heads = mask.sizes, query.shape[1]
    whole = bias[(None,) * (4 - bias.ndim)] if bias.ndim < 4 else bias
    allowed = ({1, batch}, {1, heads}, {1, q_length}, {1, kv_length})
    if whole.ndim != 4 or any(
        size not in sizes for size, sizes in zip(whole.shape, allowed, strict=True)
    ):
        raise UnsupportedArgumentError(
            f"{name}: expected [{batch} or 1, {heads} or 1, {q_length} or 1, {kv_length}], got "
            f"{list(bias.shape)}"
        )
    whole = whole.expand(-1, -1, q_length, kv_length)
    return scores.learnable_bias(whole[..., mask.start : mask.stop])


def _refuse(
    module: torch.nn.Module, output_attentions: bool | None, kwargs: dict[str, Any]
) -> None:
    """Raise UnsupportedArgumentError for what attention does not do."""
    if output_attentions or getattr(getattr(module, "config", None), "output_attentions", False):
        raise UnsupportedArgumentError(
            "output_attentions: expected False, got True: attention weights are never held; "
            'load the model with attn_implementation="eager"'
        )
    if kwargs.get("block_table") is not None:
        raise UnsupportedArgumentError(
            "block_table: expected None, got a table of flash attention's kernels; give "
            "generate_batch ContinuousBatchingConfig(max_blocks_per_request=0)"
        )
    for name, value in kwargs.items():
        if value is not None and name not in _WITHOUT_EFFECT and name not in _OF_PACKED:
            raise UnsupportedArgumentError(
                f"{name}: {type(module).__name__} passes it to attention, and torchyard does not "
                f"know what it means; {_REMEDY}"
            )


def _check_packed(kwargs: dict[str, Any], packed: bool) -> None:
    """Raise UnsupportedArgumentError if sequences in one row are not in the mask."""
    for name in _OF_PACKED:
        marks = kwargs.get(name)
        if marks is None or packed:
            continue
        one = marks.numel() <= 2 if name != "seq_idx" else bool((marks == marks[..., :1]).all())
        if not one:
            raise UnsupportedArgumentError(
                f"{name}: says that several sequences are in one row, and the mask does not; pass "
                "position_ids that restart with each sequence, and no attention_mask"
            )
