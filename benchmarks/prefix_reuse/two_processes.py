"""``python -m benchmarks.prefix_reuse.two_processes``: they share a server of keys and values.

One process answers prompts that begin alike and leaves their pages on a server of Valkey or Redis.
Then others, with the same model and nothing in memory, answer twelve more: without the server, with
it, with one that is killed after four requests, ones whose answers come late, and one that is full.
Each answer is compared with that of ``generate``. Memory holds no page from one request to the
next, so that every request asks the server.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import torch

from benchmarks.prefix_reuse.contestants import generating
from benchmarks.prefix_reuse.server import delayed, running_server
from benchmarks.prefix_reuse.workload import answers_equal, random_model, random_tokens
from torchyard_cache import ValkeyTier, reuse

_REQUESTS: Final = 12
# After so many the server is killed.
_BEFORE: Final = 4
# Tokens that all prompts begin with, and that follow.
_SYSTEM: Final = 1500
_REST: Final = 40


class _Answered(NamedTuple):
    """What a process made of the requests.

    Attributes:
        firsts: seconds to the first token of each.
        answers: of each.
        hits: pages that the server had.
        warnings: told.
    """

    firsts: list[float]
    answers: list[torch.Tensor]
    hits: int
    warnings: list[str]


def main() -> int:
    """Print a row for each state of the server; 1 where an answer differs."""
    expected = _run(None)
    rows = {"no server": expected}
    with tempfile.TemporaryDirectory() as folder:
        with running_server(folder) as (port, process):
            _run(port, seeds=range(100, 102))
            rows["a server"] = _run(port)
            for seconds in (0.005, 0.05, 0.5):
                with delayed(port, seconds) as slow:
                    rows[f"answers {seconds * 1e3:g} ms late"] = _run(slow)
            rows[f"killed after {_BEFORE}"] = _run(port, process.kill)
        rows["down"] = _run(port)
        full = ("--maxmemory", "1", "--maxmemory-policy", "noeviction")
        with running_server(folder, *full) as (port, _):
            rows["full"] = _run(port)
    wrong = 0
    for name, found in rows.items():
        equal = sum(map(answers_equal, expected.answers, found.answers))
        wrong += equal != _REQUESTS
        ordered = sorted(found.firsts)
        print(
            f"{name:22} first token: first request {1e3 * found.firsts[0]:6.0f} ms, median "
            f"{1e3 * ordered[_REQUESTS // 2]:6.0f}, most {1e3 * ordered[-1]:6.0f}; pages found "
            f"{found.hits:3}; answers equal {equal}; warnings {len(found.warnings)}"
        )
        for text in sorted(set(found.warnings)):
            print(f"    {text}")
    return int(wrong > 0)


def _run(
    port: int | None,
    event: Callable[[], Any] | None = None,
    seeds: range = range(_REQUESTS),
) -> _Answered:
    """Let a new process answer requests; something happens after some of them."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_answer, args=(theirs, port, seeds))
    child.start()
    theirs.close()
    found = _Answered([], [], 0, [])
    for place in range(len(seeds)):
        if place == _BEFORE and event is not None:
            event()
        ours.send(None)
        found = _Answered(*ours.recv())
    child.join()
    return found


def _answer(parent: Connection, port: int | None, seeds: range) -> None:
    """Answer a request for each message, and send all answers so far."""
    model, firsts, answers = random_model(), [], []
    # As a process that has run for a while.
    answer = generating(model)
    answer(random_tokens(300, 1))
    system = random_tokens(_SYSTEM, 0)
    tiers = [] if port is None else [ValkeyTier(f"valkey://127.0.0.1:{port}/0")]
    with warnings.catch_warnings(record=True) as told, reuse(model, tiers=tiers) as cache:
        warnings.simplefilter("always")
        for seed in seeds:
            parent.recv()
            cache.clear()
            out, first = answer(torch.cat([system, random_tokens(_REST, 1000 + seed)], 1))
            firsts.append(first)
            answers.append(out)
            texts = [str(one.message) for one in told if "torchyard_cache" in str(one.message)]
            parent.send((firsts, answers, cache.stats().tier_hits["valkey"], texts))


if __name__ == "__main__":
    sys.exit(main())
