"""``python -m benchmarks.prefix_reuse [--json FILE] [--quick]``

Each kind of requests is answered with and without the cache, in turn; tokens that differ are
reported, and the row is not right. Then the policies on two traces, and how the time of an
eviction grows with the number of entries.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.prefix_reuse.contestants import ANSWER, CONTESTANTS, Contestant
from benchmarks.prefix_reuse.workload import answers_equal, random_model, random_tokens
from torchyard_cache import chat_trace, prompt_trace, simulate
from torchyard_cache._reuse._eviction import POLICIES, Entries, TokenCosts


def main(words: list[str]) -> int:
    """Run all; return the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.prefix_reuse")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--contestants", nargs="*", default=list(CONTESTANTS)[:3], choices=list(CONTESTANTS)
    )
    options = parser.parse_args(words)
    model, rows = random_model(), []
    for name, requests in _requests(options.quick).items():
        expected: list[torch.Tensor] = []
        for contestant in options.contestants:
            row = {"name": name, "contestant": contestant}
            row |= _race(model, requests, CONTESTANTS[contestant])
            found = row.pop("found")
            expected = expected or found
            row["equal"] = sum(map(answers_equal, expected, found))
            # Others round otherwise.
            row["right"] = row["equal"] == row["requests"] or "reuse" not in contestant
            rows.append(row)
            reused = "" if row["reused"] is None else f", {row['reused']:,} tokens found"
            print(
                f"{name:20} {contestant:34} {row['requests']:4} requests of {row['prompts']:,} "
                f"tokens: first token {row['first'] * 1e3:7.1f} ms, all {row['seconds']:6.1f} s"
                f"{reused}; answers equal: {row['equal']}",
                flush=True,
            )
    pages = {begin: _seconds_of_page(model, begin) for begin in (0, 1024, 4096)}
    rows.append({"page": {str(begin): seconds for begin, seconds in pages.items()}})
    for begin, seconds in pages.items():
        print(f"a page of {_PAGE} tokens after {begin:5,}: {seconds * 1e3:.1f} ms")
    costs = TokenCosts()
    for begin, seconds in pages.items():
        costs.note(begin, _PAGE, seconds)
    rows.append({"doubling": costs.doubling})
    print(f"a token costs twice as much after {costs.doubling:,.0f} others")
    for name, trace in (("prompts", prompt_trace(400)), ("chats", chat_trace(60))):
        for replay in simulate(trace, budget=400, doubling=costs.doubling):
            # The simulator's costs are in tokens at the beginning of a prompt.
            saved = replay.cost_saved * costs.seconds(0, 1)
            rows.append({"trace": name, "policy": replay.policy, "saved": replay.tokens_saved})
            rows[-1]["seconds"] = saved
            print(
                f"{name:8} {replay.policy:5} {replay.tokens_saved / replay.tokens:6.1%} of tokens, "
                f"{saved * 1e3:,.0f} ms, {replay.evictions:,} evictions"
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


_PAGE: Final = 64

# A conversation, given the function that answers a prompt; returns each prompt with its answer.
_Request = Callable[[Callable[[torch.Tensor], torch.Tensor]], list[torch.Tensor]]


def _requests(quick: bool) -> dict[str, list[_Request]]:
    system, share = random_tokens(1500, 0), 10 if quick else 50
    documents = [random_tokens(400, 100 + number) for number in range(4)]

    def shared(seed: int) -> _Request:
        return lambda answer: [answer(torch.cat([system, random_tokens(40, 1000 + seed)], 1))]

    def chat(seed: int) -> _Request:
        def run(answer: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
            said, answers = random_tokens(100, 2000 + seed), []
            for turn in range(10):
                said = answer(said)
                answers.append(said)
                said = torch.cat([said, random_tokens(30, 3000 + 10 * seed + turn)], 1)
            return answers

        return run

    def retrieved(seed: int) -> _Request:
        chosen = random.Random(seed).sample(documents, 2)
        return lambda answer: [answer(torch.cat([*chosen, random_tokens(30, 4000 + seed)], 1))]

    return {
        "one system prompt": [shared(seed) for seed in range(share)],
        "chats of ten turns": [chat(seed) for seed in range(3 if quick else 20)],
        "repeated documents": [retrieved(seed) for seed in range(10 if quick else 40)],
    }


def _race(model: Any, requests: list[_Request], contestant: Contestant) -> dict[str, Any]:
    """Return what a contestant takes for all requests, and its tokens."""
    firsts: list[float] = []
    counts: dict[str, int] = {}
    with contestant(model, counts) as answer:

        def timed(tokens: torch.Tensor) -> torch.Tensor:
            out, first = answer(tokens)
            firsts.append(first)
            return out

        begun = time.perf_counter()
        found = [out for request in requests for out in request(timed)]
        seconds = time.perf_counter() - begun
    return {
        "requests": len(found),
        "seconds": seconds,
        "first": sorted(firsts)[len(firsts) // 2],
        "reused": counts.get("reused"),
        "prompts": sum(out.shape[1] - ANSWER for out in found),
        "found": found,
    }


@torch.no_grad()
def _seconds_of_page(model: Any, begin: int) -> float:
    """Return the seconds that a model takes for a page after other tokens: the least of five."""
    from transformers import DynamicCache

    cache, least = DynamicCache(config=model.config), float("inf")
    if begin:
        model(random_tokens(begin, 1), cache=cache)
    for _ in range(5):
        own = copy.deepcopy(cache)
        begun = time.perf_counter()
        model(random_tokens(_PAGE, 2), cache=own)
        least = min(least, time.perf_counter() - begun)
    return least


def _growth(count: int) -> tuple[float, float]:
    """Return seconds of a put that evicts, and of a get, with so many entries."""
    entries: Entries[None] = Entries(count, POLICIES["gdsf"], float("inf"))
    for number in range(count):
        entries.put(str(number), None, 1, float(number % 7))
    # Python's collector, which reads every object of the process, would be half of these times.
    gc.collect()
    gc.disable()
    try:
        begun = time.perf_counter()
        for number in range(5_000):
            entries.put(f"new {number}", None, 1, 3.0)
        put = (time.perf_counter() - begun) / 5_000
        begun = time.perf_counter()
        for number in range(5_000):
            entries.get(f"new {number}")
        return put, (time.perf_counter() - begun) / 5_000
    finally:
        gc.enable()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
