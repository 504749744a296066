"""Continuous batching of transformers, whose cache's pages the attention reads."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation import continuous_batching

from torchyard_attention.transformers import UnsupportedArgumentError, _pages, register
from torchyard_attention.transformers._attention import attention

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 96,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
# With layers that see everything, or a window, or both kinds; softcaps; sinks.
CONFIGS: dict[str, Callable[[], transformers.PreTrainedConfig]] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "gemma2": lambda: transformers.Gemma2Config(
        **SIZES,
        head_dim=16,
        sliding_window=6,
        attn_logit_softcapping=2.0,
        tie_word_embeddings=False,
    ),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=6),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=16),
    "gpt_oss": lambda: transformers.GptOssConfig(**SIZES, **EXPERTS, head_dim=16, sliding_window=6),
}
PROMPTS = [list(range(1, 1 + length)) for length in (3, 17, 40, 9, 1)]


@pytest.fixture
def registered():
    """The attention "torchyard"; it stays registered, as transformers forgets no name."""
    transformers.logging.set_verbosity_error()
    register()


def generated(model: nn.Module, tokens: int = 10) -> list[list[int]]:
    """Return what each prompt is continued by, where a step holds fewer tokens than the prompts."""
    batching = transformers.ContinuousBatchingConfig(
        page_size=8,
        num_blocks=64,
        max_batch_tokens=24,
        allow_block_sharing=False,
        auto_switch_to_flash=False,
    )
    greedy = GenerationConfig(
        max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    found = model.generate_batch(
        PROMPTS, generation_config=greedy, continuous_batching_config=batching, progress_bar=False
    )
    assert not [one.error for one in found.values() if one.error]
    return [found[key].generated_tokens for key in sorted(found, key=lambda k: int(k[4:]))]


def alone(model: nn.Module, tokens: int = 10) -> list[list[int]]:
    """Return the same by ``generate``, one prompt at a time."""
    with torch.no_grad():
        return [
            model.generate(
                torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False, eos_token_id=-1
            )[0, len(prompt) :].tolist()
            for prompt in PROMPTS
        ]


def _check_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    config = CONFIGS[name]()
    stock = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager")
    config._attn_implementation = "torchyard"
    ours = AutoModelForCausalLM.from_config(config)
    ours.load_state_dict(stock.state_dict())
    expected = alone(stock.eval())
    # Not the same token over and over, whatever is read.
    assert max(len(set(tokens)) for tokens in expected) > 3
    steps = []
    own = _pages.Pages.attend

    def attend(pages: _pages.Pages, query: Tensor, *args: object, **kwargs: object) -> object:
        steps.append(query.shape[2])
        return own(pages, query, *args, **kwargs)

    monkeypatch.setattr(_pages.Pages, "attend", attend)
    assert generated(ours.eval()) == expected
    # Layers that have a window are given their keys; those of all kinds, while prompts are read.
    assert len(steps) > 0 or name == "mistral"
    assert ours.config._attn_implementation == "torchyard"


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["llama", "gpt_oss"])
def test_a_batch_continues_each_prompt_as_alone(name, registered, monkeypatch):
    _check_model(name, monkeypatch)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CONFIGS)
def test_a_batch_of_any_of_these_models_continues_each_prompt_as_alone(
    name, registered, monkeypatch
):
    _check_model(name, monkeypatch)


def test_other_attentions_are_left_to_transformers(registered):
    model = AutoModelForCausalLM.from_config(CONFIGS["llama"](), attn_implementation="eager")
    manager = model.init_continuous_batching(generation_config=GenerationConfig())
    try:
        assert model.config._attn_implementation == "paged|eager"
    finally:
        manager.destroy()
    manager = continuous_batching.ContinuousBatchingManager
    replaced = manager.switch_to_cb_friendly_attn, continuous_batching.PagedAttentionCache.update
    register("other")
    assert replaced == (
        manager.switch_to_cb_friendly_attn,
        continuous_batching.PagedAttentionCache.update,
    )


class Layer(nn.Module):
    """A layer of a model that is causal."""

    is_causal = True


def _written_out(
    query: Tensor, key: Tensor, value: Tensor, sizes: list[tuple[int, int]], **how: int | bool
) -> Tensor:
    """Return [Sq, Hq, D], each sequence by itself in float64; ends of both are aligned."""
    outs, at = [], [0, 0]
    for rows, keys in sizes:
        q = query[0, :, at[0] : at[0] + rows].double()
        k, v = (
            x[0, :, at[1] : at[1] + keys].double().repeat_interleave(2, 0) for x in (key, value)
        )
        place = torch.arange(keys - rows, keys)[:, None] - torch.arange(keys)
        hidden = (place < 0) & how.get("causal", True) | (place >= how.get("window", 1 << 30))
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf)
        outs.append((scores.softmax(-1) @ v).transpose(0, 1))
        at = [at[0] + rows, at[1] + keys]
    return torch.cat(outs)


SEQUENCES = [(3, 40), (1, 1), (70, 70), (1, 130), (5, 9)]


def _packed(heads: int = 4) -> tuple[tuple[Tensor, Tensor, Tensor], dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    rows, keys = (sum(pair[side] for pair in SEQUENCES) for side in (0, 1))
    tensors = (
        torch.randn(1, heads, rows, 16, generator=generator),
        torch.randn(1, 2, keys, 16, generator=generator),
        torch.randn(1, 2, keys, 16, generator=generator),
    )
    starts = [
        torch.tensor([0, *(pair[side] for pair in SEQUENCES)]).cumsum(0).int() for side in (0, 1)
    ]
    return tensors, {"cu_seq_lens_q": starts[0], "cu_seq_lens_k": starts[1]}


@pytest.mark.parametrize("how", [{}, {"window": 7}, {"window": 1}, {"causal": False}], ids=str)
def test_packed_sequences_without_a_mask(how):
    tensors, starts = _packed()
    out, _ = attention(
        None,
        Layer(),
        *tensors,
        None,
        is_causal=how.get("causal"),
        sliding_window=how.get("window"),
        **starts,
    )
    torch.testing.assert_close(
        out[0].double(), _written_out(*tensors, SEQUENCES, **how), atol=4e-6, rtol=0
    )


def test_the_mask_of_packed_sequences_follows_a_change_of_where_they_begin():
    tensors, starts = _packed()
    before, _ = attention(None, Layer(), *tensors, None, **starts)
    again, _ = attention(None, Layer(), *tensors, None, **starts)
    assert torch.equal(before, again)
    # The second sequence takes a query and a key of the first.
    for name in starts:
        starts[name][1] -= 1
    sizes = [(2, 39), (2, 2), *SEQUENCES[2:]]
    after, _ = attention(None, Layer(), *tensors, None, **starts)
    torch.testing.assert_close(after[0].double(), _written_out(*tensors, sizes), atol=4e-6, rtol=0)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"cu_seq_lens_k": {"full_attention": torch.tensor([0, 4])}}, "cu_seq_lens_k"),
        ({"cu_seq_lens_k": torch.tensor([0, 4])}, "cu_seq_lens_q, cu_seq_lens_k"),
        ({"sliding_window": 4, "is_causal": False}, "sliding_window"),
        ({"block_table": torch.zeros(1, 1)}, "block_table"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_what_packed_sequences_cannot_have_is_refused(given, named):
    tensors, starts = _packed()
    with pytest.raises(UnsupportedArgumentError, match=f"^{named}"):
        attention(None, Layer(), *tensors, None, **{**starts, **given})
