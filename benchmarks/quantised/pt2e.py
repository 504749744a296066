"""``python -m benchmarks.quantised.pt2e [--model NAME ...] [--rounds N] [--json FILE]``

Whole models made int8 by ``torchyard_export.quantize`` and compiled by its target
``aotinductor_native``, beside the float model, its bfloat16 form, torchao's own flow and torchao's
``quantize_``, all compiled by Inductor with constant weights. One thread; contestants take turns in
each round; times are medians, and ratios are medians of the rounds' own.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

from benchmarks.quantised.pt2e_models import MODELS, Subject
from torchyard import child_environ
from torchyard_export import Artifact, export, quantize

__all__ = ["main"]

Call = Callable[..., Tensor]


def _ours(subject: Subject, activations: Any) -> Artifact:
    made = quantize(
        subject.model,
        subject.calibration[0],
        calibration=subject.calibration,
        activations=activations,
    )
    return export(made.model, subject.calibration[0], targets=["aotinductor_native"])


def _torchao(subject: Subject) -> Call:
    """Return what torchao's tutorial of this flow makes."""
    program = torch.export.export(subject.model, subject.calibration[0])
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    graph = program.module()
    graph.graph.eliminate_dead_code()
    prepared = prepare_pt2e(graph, quantizer)
    for call in subject.calibration:
        prepared(*call)
    return torch.compile(convert_pt2e(prepared))


def _in_place(subject: Subject) -> Call:
    model = copy.deepcopy(subject.model)
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return torch.compile(model)


def _bfloat16(subject: Subject) -> Call:
    model = torch.compile(copy.deepcopy(subject.model).bfloat16())

    def call(*args: Tensor) -> Tensor:
        found: Tensor = model(*(x.bfloat16() if x.is_floating_point() else x for x in args))
        return found.float()

    return call


def _contestants(subject: Subject) -> tuple[dict[str, Call], dict[str, str]]:
    """Return who runs, ours first, and why others do not."""
    makers: dict[str, Callable[[], Call]] = {
        "int8, static": lambda: _ours(subject, "static"),
        "int8, dynamic": lambda: _ours(subject, "dynamic"),
        "float32": lambda: torch.compile(copy.deepcopy(subject.model)),
        "bfloat16": lambda: _bfloat16(subject),
        "torchao PT2E, static": lambda: _torchao(subject),
        "torchao quantize_, dynamic": lambda: _in_place(subject),
    }
    found: dict[str, Call] = {}
    refused: dict[str, str] = {}
    for name, make in makers.items():
        try:
            call = make()
            call(*subject.evaluation[0])
        except Exception as error:  # a rival that does not run is a result, and is printed
            if name.startswith("int8"):
                raise
            refused[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
        else:
            found[name] = call
    return found, refused


def _judged(subject: Subject, call: Call) -> dict[str, float | None]:
    exact = [subject.model(*item) for item in subject.evaluation]
    found = [call(*item) for item in subject.evaluation]
    wanted, got = torch.cat(exact).double(), torch.cat(found).double()
    noise = float((got - wanted).square().sum())
    accuracy = None
    if subject.labels is not None:
        accuracy = float((got.argmax(-1) == torch.cat(subject.labels)).double().mean())
    return {
        "sqnr": None if not noise else 10 * float(torch.log10(wanted.square().sum() / noise)),
        "top": float((got.argmax(-1) == wanted.argmax(-1)).double().mean()),
        "cosine": float(nn.functional.cosine_similarity(got, wanted, dim=-1).mean()),
        "accuracy": accuracy,
    }


def _measured(name: str, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    subject = MODELS[name]()
    with torch.no_grad():
        entered, refused = _contestants(subject)
        judged = {who: _judged(subject, call) for who, call in entered.items()}
        seconds: dict[str, list[float]] = {who: [] for who in entered}
        for turn in range(rounds + 2):
            given = subject.evaluation[turn % len(subject.evaluation)]
            for who, call in entered.items():
                call(*given)
                start = time.perf_counter()
                call(*given)
                if turn >= 2:
                    seconds[who].append(time.perf_counter() - start)
    ours = seconds["int8, static"]
    rows = {
        who: {
            "milliseconds": statistics.median(times) * 1e3,
            "times_ours": statistics.median(t / o for t, o in zip(times, ours, strict=True)),
            "bytes": len(call.to_bytes()) if isinstance(call := entered[who], Artifact) else None,
            **judged[who],
        }
        for who, times in seconds.items()
    }
    weights = sum(tensor.nbytes for tensor in subject.model.state_dict().values())
    return {"model": name, "float_bytes": weights, "rows": rows, "refused": refused}


def _table(found: dict[str, Any]) -> Table:
    table = Table(title=f"{found['model']}, float weights of {found['float_bytes']} bytes")
    columns = ("contestant", "ms", "times int8 static", "SQNR, dB", "cosine", "same top", "right")
    for column in (*columns, "file, bytes"):
        table.add_column(column)
    for who, row in found["rows"].items():
        table.add_row(
            *(who, f"{row['milliseconds']:.2f}", f"{row['times_ours']:.2f}"),
            *("exact" if row["sqnr"] is None else f"{row['sqnr']:.1f}", f"{row['cosine']:.5f}"),
            *(f"{row['top']:.1%}", "" if row["accuracy"] is None else f"{row['accuracy']:.1%}"),
            "" if row["bytes"] is None else str(row["bytes"]),
        )
    for who, why in found["refused"].items():
        table.add_row(who, "does not run", why)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.quantised.pt2e", description=__doc__)
    parser.add_argument("--model", choices=list(MODELS), nargs="+", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inner:
        # Inductor reads the setting, which torchao's tutorial names, when it is imported.
        words = [sys.executable, "-m", "benchmarks.quantised.pt2e", *sys.argv[1:], "--inner"]
        environ = child_environ({"TORCHINDUCTOR_FREEZING": "1"})
        sys.exit(subprocess.run(words, env=environ, check=False).returncode)
    torch.set_num_threads(1)
    console = Console(width=None if sys.stdout.isatty() else 130)
    results = []
    for name in arguments.model:
        results.append(_measured(name, arguments.rounds))
        console.print(_table(results[-1]))
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
