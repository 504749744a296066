"""Models of transformers compute on ranks what they compute in one process, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from torch import Tensor, nn

import torchyard_attention.transformers as ours
from packages.collectives.tests.ranks import run_ranks
from torchyard_context_parallel import Sharding, context_parallel, position_ids, shard

LENGTH, WORDS = 96, 64
_SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
# Name -> (configuration, its keywords, the model, the attention of one process)
MODELS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "llama": ("LlamaConfig", {}, "LlamaForCausalLM", "sdpa"),
    "qwen2": ("Qwen2Config", {}, "Qwen2ForCausalLM", "sdpa"),
    # Longer than a rank's part, and shorter than the whole.
    "mistral": ("MistralConfig", {"sliding_window": 60}, "MistralForCausalLM", "sdpa"),
    "gemma2": (
        "Gemma2Config",
        {"head_dim": 8, "sliding_window": 20, "attn_logit_softcapping": 5.0},
        "Gemma2ForCausalLM",
        "eager",
    ),
    "llama4": (
        "Llama4TextConfig",
        {
            "head_dim": 8,
            "attention_chunk_size": 30,
            "num_local_experts": 2,
            "intermediate_size_mlp": 48,
        },
        "Llama4ForCausalLM",
        "sdpa",
    ),
}
_PACKED = torch.cat([torch.arange(48), torch.arange(30), torch.arange(18)])


def _model(name: str, attention: str | None = None) -> nn.Module:
    config, keywords, kind, usual = MODELS[name]
    torch.manual_seed(0)
    made = getattr(transformers, kind)(getattr(transformers, config)(**_SIZES, **keywords)).eval()
    ours.register()
    made.set_attn_implementation(attention or usual)
    assert isinstance(made, nn.Module)
    return made


def _tokens() -> Tensor:
    return torch.randint(1, WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(1))


def _dealt(name: str) -> Sharding:
    ranks = dist.get_world_size()
    if name == "strided":
        spans = [range(4 * rank, LENGTH, 4 * ranks) for rank in range(ranks)]
        return Sharding(LENGTH, tuple(tuple((n, n + 4) for n in span) for span in spans))
    if name == "one position":
        return Sharding.of_lengths([LENGTH - ranks + 1, *(1,) * (ranks - 1)])
    made: Sharding = getattr(Sharding, name)(LENGTH, ranks)
    return made


def _padding(name: str) -> Tensor | None:
    if name not in ("left", "right"):
        return None
    visible = torch.ones(2, LENGTH, dtype=torch.int64)
    visible[0 if name == "left" else 1, slice(None, 50) if name == "left" else slice(70, None)] = 0
    return visible


# (model, attention on ranks, sharding, what the batch is)
Case = tuple[str, str | None, str, str]


def _compare(cases: list[Case]) -> None:
    world, rank = dist.group.WORLD, dist.get_rank()
    for name, attention, dealing, batch in cases:
        dealt, tokens, visible = _dealt(dealing), _tokens(), _padding(batch)
        places = _PACKED if batch == "packed" else torch.arange(LENGTH)
        known = {"use_cache": batch == "cache"}
        one = _model(name)
        masked = {} if visible is None else {"attention_mask": visible}
        wanted = one(tokens, position_ids=places[None], **masked, **known).logits
        seen = torch.ones(2, LENGTH) if visible is None else visible
        (wanted * seen[..., None]).square().sum().backward()
        spread = _model(name, attention)
        with context_parallel(world, dealt, position_ids=places if batch == "packed" else None):
            out = spread(
                shard(tokens, dealt, mesh=world),
                position_ids=dealt.take(places[None], rank, 1),
                **{key: shard(value, dealt, mesh=world) for key, value in masked.items()},
                **known,
            ).logits
            own = dealt.take(seen, rank, 1)[..., None]
            (out * own).square().sum().backward()
        told = f"{name} {attention} {dealing} {batch}".__add__
        torch.testing.assert_close(
            out * own, dealt.take(wanted, rank, 1) * own, rtol=1e-4, atol=1e-5, msg=told
        )
        for had, expected in zip(spread.parameters(), one.parameters(), strict=True):
            if expected.grad is not None:
                total = torch.zeros_like(expected) if had.grad is None else had.grad
                dist.all_reduce(total)
                torch.testing.assert_close(total, expected.grad, rtol=1e-3, atol=1e-4, msg=told)


@pytest.mark.sweep
def test_a_model_computes_as_in_one_process() -> None:
    cases: list[Case] = [
        ("llama", None, "head_tail", "whole"),
        ("llama", "torchyard", "head_tail", "left"),
        ("llama", None, "contiguous", "packed"),
        ("mistral", None, "contiguous", "whole"),
    ]
    run_ranks(2, _compare, cases)


@pytest.mark.sweep
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", MODELS)
def test_models_shardings_and_batches(name: str, ranks: int) -> None:
    attentions = ["torchyard"] if name == "gemma2" else [None, "torchyard"]
    run_ranks(
        ranks,
        _compare,
        [
            (name, attention, dealing, batch)
            for attention in attentions
            for dealing in ("head_tail", "contiguous", "strided", "one position")
            for batch in ("whole", "cache", "left", "right", "packed")
        ],
    )


def _refused() -> dict[str, tuple[str, str]]:
    world, dealt = dist.group.WORLD, Sharding.contiguous(LENGTH, 2)
    odd = dist.get_rank() == 1
    model, tokens = _model("llama"), shard(_tokens(), dealt, mesh=world)
    places = position_ids(dealt, mesh=world)
    half = LENGTH // 2

    def run(call: Callable[[], object]) -> tuple[str, str]:
        try:
            with context_parallel(world, dealt):
                call()
        except Exception as error:
            return type(error).__qualname__, str(error)
        return "", "nothing was refused"

    def further() -> None:
        cache = model(tokens, position_ids=places).past_key_values
        model(tokens[:, :1], position_ids=places[:, -1:] + 1, past_key_values=cache)

    packed = torch.arange(half).repeat(2).sort().values[None, :half]
    found = {
        "forgotten positions": run(lambda: model(tokens, use_cache=False)),
        "packed, undeclared": run(lambda: model(tokens, position_ids=packed, use_cache=False)),
        "decoding": run(further),
        "generate": run(lambda: model.generate(tokens, max_new_tokens=2)),  # type: ignore[operator]
        "whole tokens": run(lambda: model(_tokens(), position_ids=torch.arange(LENGTH)[None])),
        "a mask of 4 dimensions": run(
            lambda: model(
                tokens,
                position_ids=places,
                attention_mask=torch.ones(2, 1, half, half, dtype=torch.bool),
            )
        ),
        "a mask on one rank": run(
            lambda: model(
                tokens,
                position_ids=places,
                **({"attention_mask": torch.ones(2, half, dtype=torch.int64)} if odd else {}),
            )
        ),
        "eager": run(lambda: _model("llama", "eager")(tokens, position_ids=places)),
    }
    with context_parallel(world, dealt):
        model(tokens, position_ids=places)
    return found


def test_what_cannot_be_spread_is_refused_on_every_rank() -> None:
    first, second = run_ranks(2, _refused)
    assert first == second
    for name, part in {
        "forgotten positions": "position_ids: expected those of part 1 of the sharding, [48, 49",
        "packed, undeclared": "give the whole sequence's to context_parallel(..., position_ids",
        "decoding": "cache: expected none that holds earlier keys inside context_parallel",
        "generate": "rank 1 refused",
        "whole tokens": "input_ids: expected the 48 positions that the sharding gives part",
        "a mask of 4 dimensions": "attention_mask: expected none of 4 dimensions inside",
        "a mask on one rank": "attention_mask: expected the same on every rank, got none on rank 0",
        "eager": "attn_implementation: 'eager' cannot be spread over ranks",
    }.items():
        assert part in first[name][1], first[name]


def test_other_threads_keep_their_attention_and_everything_is_given_back() -> None:
    run_ranks(1, _two_contexts)


def _two_contexts() -> None:
    import threading

    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as MASKS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as ATTENTIONS

    model, tokens = _model("llama"), _tokens()
    before = dict(MASKS.items()), dict(ATTENTIONS.items())
    wanted = model(tokens, use_cache=False).logits
    found: list[Tensor] = []
    with context_parallel(dist.group.WORLD, Sharding.contiguous(LENGTH, 1)):
        model(tokens, use_cache=False)
        thread = threading.Thread(
            target=lambda: found.append(model(tokens[:, :5], use_cache=False).logits)
        )
        thread.start()
        thread.join()
    # Of five positions a context would have refused.
    torch.testing.assert_close(found[0], wanted[:, :5], rtol=1e-4, atol=1e-5)
    assert (dict(MASKS.items()), dict(ATTENTIONS.items())) == before
