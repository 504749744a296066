"""``nox -s models [-- --quick] [--threads N] [--json FILE]``: whole models of transformers.

A Llama-shaped model of random weights reads a prompt and decodes; a published embedding model
embeds source code. Each contestant runs in every round, and its time is compared with ours of that
round.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.models import embedding
from torchyard_attention.transformers import register

__all__ = ["Task", "compare", "main", "tasks"]

OURS = "torchyard"


@dataclass(frozen=True, slots=True)
class Task:
    """Something that a model does, with each attention.

    Attributes:
        name: what it is.
        units: how many of what a run makes, for a rate: ``(512, "tokens")``.
        runs: contestant -> run, which returns what it made.
        exact: what the runs should make, from float64.
    """

    name: str
    units: tuple[int, str]
    runs: dict[str, Callable[[], Tensor]]
    exact: Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant at one task.

    Attributes:
        task, contestant: which.
        rate: units per second, by the median round.
        unit: of the rate.
        times_ours: the median over rounds of this contestant's time over ours.
        error: the largest difference from float64.
        from_ours: the largest difference from ours.
    """

    task: str
    contestant: str
    rate: float
    unit: str
    times_ours: float
    error: float
    from_ours: float


def compare(task: Task, *, rounds: int) -> list[Row]:
    """Return a row per contestant, ours first.

    Raises:
        AssertionError: a result is four times as far from float64 as another's; nothing is timed.
    """
    made = {name: run() for name, run in task.runs.items()}
    errors = {name: _largest(result, task.exact) for name, result in made.items()}
    least = min(errors.values())
    for name, error in errors.items():
        if not error <= 4 * least:
            raise AssertionError(
                f"{task.name}, {name}: expected within {4 * least:.1e} of float64, got {error:.1e}"
            )
    seconds: dict[str, list[float]] = {name: [] for name in task.runs}
    for _ in range(rounds):
        for name, run in task.runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    count, unit = task.units
    return [
        Row(
            task.name,
            name,
            count / statistics.median(times),
            f"{unit}/s",
            statistics.median(
                theirs / ours for theirs, ours in zip(times, seconds[OURS], strict=True)
            ),
            errors[name],
            _largest(made[name], made[OURS]),
        )
        for name, times in seconds.items()
    ]


def tasks(*, quick: bool = False) -> Iterator[Task]:
    """Yield the tasks, in float32 and bfloat16."""
    prompt, steps, texts = (64, 4, 4) if quick else (512, 64, 32)
    for dtype in (torch.float32, torch.bfloat16):
        yield from _generation(dtype, prompt, steps, layers=2 if quick else 4)
        yield _embedding(dtype, texts)


def _generation(dtype: torch.dtype, prompt: int, steps: int, layers: int) -> Iterator[Task]:
    tokens = torch.frombuffer(bytearray(Path(os.__file__).read_bytes()), dtype=torch.uint8)
    tokens = tokens[: prompt + steps].long()[None]
    exact = _logits(_llama("eager", torch.float64, layers), tokens, prompt)
    models = {name: _llama(name, dtype, layers) for name in (OURS, "sdpa", "eager")}
    yield Task(
        f"prefill {prompt} {str(dtype)[6:]}",
        (prompt, "tokens"),
        {name: _Prefill(model, tokens[:, :prompt]) for name, model in models.items()},
        exact[:, :prompt],
    )
    yield Task(
        f"decode after {prompt} {str(dtype)[6:]}",
        (steps, "tokens"),
        {name: _Decode(model, tokens, prompt) for name, model in models.items()},
        exact[:, prompt:],
    )


def _llama(attention: str, dtype: torch.dtype, layers: int) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        initializer_range=0.06,
        pad_token_id=0,
        eos_token_id=None,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.bfloat16().to(dtype).eval()


def _logits(model: Any, tokens: Tensor, prompt: int) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(tokens, use_cache=False).logits
    return logits


class _Prefill:
    """Read a prompt, and return its logits."""

    def __init__(self, model: Any, tokens: Tensor) -> None:
        self._model, self._tokens = model, tokens

    def __call__(self) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = self._model(self._tokens, use_cache=False).logits
        return logits


class _Decode:
    """Feed tokens one by one after a prompt that was read before, and return their logits."""

    def __init__(self, model: Any, tokens: Tensor, prompt: int) -> None:
        self._model, self._tokens, self._prompt = model, tokens, prompt
        with torch.inference_mode():
            self._cache = model(tokens[:, :prompt], use_cache=True).past_key_values

    def __call__(self) -> Tensor:
        logits = []
        with torch.inference_mode():
            # Less than 0 is how many tokens go; nothing goes before the first run.
            if more := self._cache.get_seq_length() - self._prompt:
                self._cache.crop(-more)
            for place in range(self._prompt, self._tokens.shape[1]):
                token = self._tokens[:, place : place + 1]
                logits.append(self._model(token, past_key_values=self._cache).logits)
        return torch.cat(logits, dim=1)


def _embedding(dtype: torch.dtype, texts: int) -> Task:
    batch = embedding.tokens(embedding.sources(texts))
    models = {name: embedding.load(name, dtype) for name in (OURS, "sdpa", "eager")}

    def run(model: Any) -> Callable[[], Tensor]:
        return lambda: embedding.embed(model, batch)

    exact = embedding.load("eager", torch.float64)
    return Task(
        f"all-MiniLM-L6-v2 {texts}x{batch['input_ids'].shape[1]} {str(dtype)[6:]}",
        (texts, "texts"),
        {name: run(model) for name, model in models.items()},
        embedding.embed(exact, batch),
    )


def _largest(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted.double()).abs().max())


def _table(rows: list[Row]) -> Table:
    table = Table("task", "contestant", box=None)
    for heading in ("rate", "time / ours", "error", "from ours"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.task,
            row.contestant,
            f"{row.rate:.1f} {row.unit}",
            f"{row.times_ours:.2f}",
            f"{row.error:.1e}",
            f"{row.from_ours:.1e}",
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.models")
    parser.add_argument("--quick", action="store_true", help="short texts, few rounds")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each contestant")
    parser.add_argument("--threads", type=int, default=0, help="threads; 0: as torch would use")
    parser.add_argument("--json", type=Path, help="write the rows there")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    register()
    transformers.utils.logging.disable_progress_bar()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(f"{torch.get_num_threads()} threads; load of the last minute {load:.1f}")
    rows: list[Row] = []
    for task in tasks(quick=arguments.quick):
        measured = compare(task, rounds=3 if arguments.quick else arguments.rounds)
        console.print(_table(measured))
        rows += measured
    if arguments.json is not None:
        data = [dataclasses.asdict(row) for row in rows]
        arguments.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return 0
