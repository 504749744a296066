"""The command ``torchyard demo``."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
import torch
from rich.console import Console

from torchyard_attention.demo._device import DeviceError, parse_device
from torchyard_attention.demo._report import Report
from torchyard_attention.demo._run import run
from torchyard_attention.demo._settings import FULL, QUICK, Settings, Size
from torchyard_attention.demo._text import TextError, collect_text

_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_PROMPT: Final = "class Reader:\n    def __init__(self, path"
_WIDTH_WITHOUT_TERMINAL: Final = 120
SIZE: Size = Size()


@click.command("demo")
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    metavar="FILE_OR_DIR",
    help="Learn this text; by default this Python's standard library.",
)
@click.option("--quick", is_flag=True, help="Take less than a minute, and learn less.")
@click.option("--steps", type=click.IntRange(min=1), help="Train exactly so many steps.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Train so long; by default {FULL.train_seconds:g}, {QUICK.train_seconds:g} if quick.",
)
@click.option("--device", default="auto", show_default=True, help="Torch device type.")
@click.option(
    "--dtype",
    type=click.Choice(list(_DTYPES)),
    default="float32",
    show_default=True,
    help="Of the matrix products; parameters stay float32.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("torchyard-demo"),
    show_default=True,
    help="Folder for the curve and its plot.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--prompt", default=_PROMPT, help="Text to continue; by default a Python class.")
@click.option(
    "--json", "as_json", is_flag=True, help="Write one JSON document to stdout, nothing else."
)
def command(
    text: Path | None,
    quick: bool,
    steps: int | None,
    seconds: float | None,
    device: str,
    dtype: str,
    out: Path,
    seed: int,
    prompt: str,
    as_json: bool,
) -> None:
    """Train a small transformer on real text, continue a prompt, compare with stock torch.

    Nothing is downloaded. Exit status 0 if the loss fell and both sides agree, 1 if not.
    """
    if steps is not None and seconds is not None:
        raise click.UsageError("--steps, --seconds: expected at most one, got both")
    budget = QUICK if quick else FULL
    budget = replace(budget, steps=steps, train_seconds=seconds or budget.train_seconds)
    # Whatever plugins print must not mix with the document.
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        settings = Settings(
            text=text,
            device=torch.device("cpu"),
            dtype=_DTYPES[dtype],
            seed=seed,
            prompt=_parse_prompt(prompt),
            out=_parse_out(out),
            size=SIZE,
            budget=budget,
        )
        try:
            machine = parse_device(device)
        except DeviceError as error:
            raise click.BadParameter(str(error), param_hint="--device") from error
        try:
            learned = collect_text(text, SIZE.length)
        except TextError as error:
            raise click.BadParameter(str(error), param_hint="--text") from error
        settings = replace(settings, device=machine.device)
        result = run(settings, machine, learned, Report(_console(as_json)))
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=2, sort_keys=True, ensure_ascii=False))
    sys.exit(1 if result.failures() else 0)


def _parse_prompt(prompt: str) -> str:
    if not prompt:
        raise click.BadParameter("expected some text, got nothing", param_hint="--prompt")
    return prompt


def _parse_out(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(
            f"expected a folder that can be written, got {out}: {error.strerror}",
            param_hint="--out",
        ) from error
    return out


def _console(as_json: bool) -> Console:
    """Return a console that shows text as it is; on stderr where stdout is for the document."""
    console = Console(stderr=as_json, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH_WITHOUT_TERMINAL)
    return console
