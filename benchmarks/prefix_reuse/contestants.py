"""Who answers prompts: plain generate, reuse, transformers' continuous batching, llama.cpp."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.prefix_reuse.ggml import write_weights
from torchyard_cache import reuse

__all__ = ["ANSWER", "CONTESTANTS", "Answer", "Contestant", "generating"]

# Tokens of an answer.
ANSWER: Final = 16
_CONTEXT: Final = 8192

# Answers a prompt: returns prompt and answer, int64 [1, tokens], and seconds to the first token.
Answer = Callable[[Tensor], tuple[Tensor, float]]
# Given a model, lets it answer prompts one by one, and counts the tokens that it found in `counts`.
Contestant = Callable[[Any, dict[str, int]], AbstractContextManager[Answer]]


@contextmanager
def _stock(model: Any, counts: dict[str, int]) -> Iterator[Answer]:
    yield generating(model)


@contextmanager
def _reuse(model: Any, counts: dict[str, int]) -> Iterator[Answer]:
    with reuse(model) as cache:
        yield generating(model)
        counts["reused"] = cache.stats().tokens_reused


@contextmanager
def _strict(model: Any, counts: dict[str, int]) -> Iterator[Answer]:
    with reuse(model, strict=True) as cache:
        yield generating(model)
        counts["reused"] = cache.stats().tokens_reused


def generating(model: Any) -> Answer:
    def answer(tokens: Tensor) -> tuple[Tensor, float]:
        begun = time.perf_counter()
        firsts: list[float] = []

        class Streamer:
            def put(self, value: Any) -> None:
                # The prompt itself comes first.
                firsts.append(time.perf_counter() - begun)

            def end(self) -> None:
                pass

        out = model.generate(tokens, max_new_tokens=ANSWER, do_sample=False, streamer=Streamer())
        return out, firsts[1]

    return answer


@contextmanager
def _batching(model: Any, counts: dict[str, int]) -> Iterator[Answer]:
    """Let transformers batch requests, and share blocks of those that begin alike."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    before = model.config._attn_implementation
    generation = GenerationConfig(
        max_new_tokens=ANSWER, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    settings: Any = ContinuousBatchingConfig
    chosen = settings(page_size=64, num_blocks=1024, allow_block_sharing=True)
    with model.continuous_batching_context_manager(
        generation_config=generation, continuous_batching_config=chosen
    ) as manager:

        def answer(tokens: Tensor) -> tuple[Tensor, float]:
            begun = time.perf_counter()
            name = manager.add_request(tokens[0].tolist(), max_new_tokens=ANSWER, streaming=True)
            first, drawn = 0.0, []
            for output in manager.request_id_iter(name):
                if output.error:
                    raise RuntimeError(output.error)
                first = first or time.perf_counter() - begun
                drawn = output.generated_tokens
                if output.is_finished():
                    break
            return torch.cat([tokens, torch.tensor([drawn])], dim=1), first

        yield answer
    model.set_attn_implementation(before)


@contextmanager
def _ggml(model: Any, counts: dict[str, int]) -> Iterator[Answer]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        write_weights(path, model)
        words = ["-m", "benchmarks.prefix_reuse.ggml", path, model.config.vocab_size, _CONTEXT]
        with subprocess.Popen(
            [sys.executable, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            # The library writes empty lines between those of JSON.
            lines = (json.loads(line) for line in process.stdout if line.strip())
            if next(lines, None) is None:
                raise RuntimeError("llama.cpp did not start: pip install ik-llama-cpp-python gguf")

            def answer(tokens: Tensor) -> tuple[Tensor, float]:
                assert process.stdin is not None
                command = {"tokens": tokens[0].tolist(), "answer": ANSWER}
                process.stdin.write(json.dumps(command) + "\n")
                process.stdin.flush()
                found = next(lines)
                counts["reused"] = counts.get("reused", 0) + found["kept"]
                return torch.cat([tokens, torch.tensor([found["tokens"]])], 1), found["first"]

            try:
                yield answer
            finally:
                process.stdin.close()
                process.wait(30)


CONTESTANTS: Final[Mapping[str, Contestant]] = {
    "generate": _stock,
    "reuse": _reuse,
    "reuse, strict": _strict,
    "transformers' continuous batching": _batching,
    "llama.cpp (ik), keys in float16": _ggml,
}
