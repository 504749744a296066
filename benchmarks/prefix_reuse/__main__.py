"""``python -m benchmarks.prefix_reuse [--json FILE] [--quick]``

Each kind of requests is answered with and without the cache, in turn; tokens that differ are
reported, and the row is not right. Then the policies on two traces, and how the time of an
eviction grows with the number of entries.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchyard_cache import chat_trace, prompt_trace, reuse, simulate
from torchyard_cache._reuse._entries import Entries
from torchyard_cache._reuse._policies import POLICIES

_ANSWER = 16


def main(words: list[str]) -> int:
    """Run all; return the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.prefix_reuse")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(words)
    model, rows = _model(), []
    for name, requests in _requests(options.quick).items():
        row = _race(model, name, requests)
        rows.append(row)
        print(
            f"{name:24} {row['requests']:4} requests: first token {row['first_before'] * 1e3:7.1f} "
            f"-> {row['first_after'] * 1e3:6.1f} ms, all {row['before']:6.1f} -> "
            f"{row['after']:5.1f} s; {row['reused']:,} of {row['tokens']:,} tokens reused; "
            f"{'tokens equal' if row['right'] else 'TOKENS DIFFER'}"
        )
    for name, trace in (("prompts", prompt_trace(400)), ("chats", chat_trace(60))):
        for replay in simulate(trace, budget=400):
            rows.append({"trace": name, "policy": replay.policy, "saved": replay.tokens_saved})
            print(
                f"{name:8} {replay.policy:5} {replay.tokens_saved / replay.tokens:6.1%} of tokens, "
                f"cost {replay.cost_saved:,.0f}, {replay.evictions:,} evictions"
            )
    for count in (1_000, 10_000, 100_000):
        put, get = _growth(count)
        rows.append({"entries": count, "put": put, "get": get})
        print(
            f"{count:7,} entries: put with an eviction {put * 1e6:5.1f} us, get {get * 1e6:4.1f} us"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row.get("right", True) for row in rows) else 1


def _model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings: Any = LlamaConfig
    build: Any = LlamaForCausalLM
    config = settings(
        vocab_size=2000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        eos_token_id=None,
        pad_token_id=0,
        max_position_embeddings=8192,
    )
    return build(config).eval()


def _tokens(count: int, seed: int) -> torch.Tensor:
    return torch.randint(1, 2000, (1, count), generator=torch.Generator().manual_seed(seed))


# Answers a prompt: returns the tokens, and seconds to the first and to the last.
_Answer = Callable[[torch.Tensor], tuple[torch.Tensor, float, float]]
# A conversation, given the function that answers.
_Request = Callable[[_Answer], list[torch.Tensor]]


def _requests(quick: bool) -> dict[str, list[_Request]]:
    system, share = _tokens(1500, 0), 10 if quick else 50
    documents = [_tokens(400, 100 + number) for number in range(4)]

    def shared(seed: int) -> _Request:
        return lambda answer: [answer(torch.cat([system, _tokens(40, 1000 + seed)], 1))[0]]

    def chat(seed: int) -> _Request:
        def run(answer: _Answer) -> list[torch.Tensor]:
            said, answers = _tokens(100, 2000 + seed), []
            for turn in range(10):
                said = answer(said)[0]
                answers.append(said)
                said = torch.cat([said, _tokens(30, 3000 + 10 * seed + turn)], 1)
            return answers

        return run

    def retrieved(seed: int) -> _Request:
        chosen = random.Random(seed).sample(documents, 2)
        return lambda answer: [answer(torch.cat([*chosen, _tokens(30, 4000 + seed)], 1))[0]]

    return {
        "one system prompt": [shared(seed) for seed in range(share)],
        "chats of ten turns": [chat(seed) for seed in range(3 if quick else 20)],
        "repeated documents": [retrieved(seed) for seed in range(10 if quick else 40)],
    }


def _race(model: Any, name: str, requests: list[_Request]) -> dict[str, Any]:
    firsts: list[float] = []

    def answer(tokens: torch.Tensor) -> tuple[torch.Tensor, float, float]:
        begun = time.perf_counter()
        first: list[float] = []

        class Streamer:
            def put(self, value: Any) -> None:
                # The prompt itself comes first.
                first.append(time.perf_counter() - begun)

            def end(self) -> None:
                pass

        out = model.generate(tokens, max_new_tokens=_ANSWER, do_sample=False, streamer=Streamer())
        firsts.append(first[1])
        return out, first[1], time.perf_counter() - begun

    def run() -> tuple[list[torch.Tensor], float, float]:
        firsts.clear()
        begun = time.perf_counter()
        found = [out for request in requests for out in request(answer)]
        return found, time.perf_counter() - begun, sorted(firsts)[len(firsts) // 2]

    expected, before, first_before = run()
    with reuse(model) as cache:
        found, after, first_after = run()
        stats = cache.stats()
    return {
        "name": name,
        "requests": len(found),
        "before": before,
        "after": after,
        "first_before": first_before,
        "first_after": first_after,
        "reused": stats.tokens_reused,
        "tokens": stats.tokens_reused + stats.tokens_computed,
        "bytes": stats.bytes,
        "right": all(map(torch.equal, expected, found)),
    }


def _growth(count: int) -> tuple[float, float]:
    """Return seconds of a put that evicts, and of a get, with so many entries."""
    entries: Entries[None] = Entries(count, POLICIES["gdsf"], float("inf"))
    for number in range(count):
        entries.put(str(number), None, 1, float(number % 7))
    begun = time.perf_counter()
    for number in range(5_000):
        entries.put(f"new {number}", None, 1, 3.0)
    put = (time.perf_counter() - begun) / 5_000
    begun = time.perf_counter()
    for number in range(5_000):
        entries.get(f"new {number}")
    return put, (time.perf_counter() - begun) / 5_000


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
