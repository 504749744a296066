"""A run of the demo from the text to the result."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from torchyard_attention.demo._comparison import Comparison, NothingToCompareError, compare
from torchyard_attention.demo._device import Machine
from torchyard_attention.demo._generation import (
    Choice,
    Session,
    continuation,
    decode,
    encode,
)
from torchyard_attention.demo._model import count_parameters, seeded_model
from torchyard_attention.demo._plot import save_plot, save_table
from torchyard_attention.demo._report import Report
from torchyard_attention.demo._result import Result
from torchyard_attention.demo._settings import Settings
from torchyard_attention.demo._text import Text
from torchyard_attention.demo._training import train, wait_for
from torchyard_attention.demo._ways import Slopes
from torchyard_attention.demo._ways._ours import Ours


def run(settings: Settings, machine: Machine, text: Text, report: Report) -> Result:
    """Train, write, compare; tell the report as it goes."""
    started = time.perf_counter()
    size, device = settings.size, settings.device
    slopes = Slopes.of(size, device)
    ours = Ours(slopes)
    model = seeded_model(size, settings.seed, device)
    sample = torch.zeros(
        size.batch, size.heads, size.length, size.head_dim, dtype=settings.dtype, device=device
    )
    decisions = ours.decisions(sample)
    parameters = count_parameters(model)
    report.start(settings, machine, text, parameters, decisions)
    unigram = text.unigram_loss()
    with report.training(settings) as tell:
        curve = train(model, text, ours, settings, tell)
    names = list(dict.fromkeys(decision.name for decision in decisions.values()))
    headline = f"Learning {text.name}, byte by byte"
    below = (
        f"attention by {', '.join(names)} on {device.type} ({machine.brief}); "
        f"{parameters / 1e6:.1f} M parameters, {len(curve.train)} steps in {curve.seconds:.0f} s"
    )
    table = save_table(curve, settings.out)
    plot = save_plot(curve, unigram, headline, below, settings.out)
    report.trained(curve, unigram, table, plot)
    prompt = encode(settings.prompt, device)
    choice = Choice(torch.Generator().manual_seed(settings.seed))
    written, write_seconds = _write(Session(model, ours, settings), prompt, settings, choice)
    report.wrote(settings.prompt, decode(written), len(written) / write_seconds)
    comparison: Comparison | None = None
    problem = ""
    try:
        with report.waiting("comparing with stock torch"):
            comparison = compare(model, text, ours, slopes, prompt, len(written), settings)
    except NothingToCompareError as error:
        problem = str(error)
    result = Result(
        settings,
        machine,
        text,
        parameters,
        curve,
        unigram,
        decode(written),
        len(written) / write_seconds,
        comparison,
        decisions,
        table,
        plot,
        problem,
        time.perf_counter() - started,
    )
    report.finish(result)
    return result


def _write(
    session: Session, prompt: Tensor, settings: Settings, choice: Choice
) -> tuple[Tensor, float]:
    """Return the bytes written, int64 [N], and the seconds that this took."""
    chosen, before = [], time.perf_counter()
    for byte in continuation(session, prompt, settings.budget.generate, choice):
        chosen.append(byte)
        if time.perf_counter() - before > settings.budget.write_seconds:
            break
    wait_for(settings.device)
    return torch.cat(chosen), time.perf_counter() - before
