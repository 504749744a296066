"""``torchyard optimize``: what makes a model of transformers faster or smaller here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from torchyard.cli._output import answer_only, console, json_option, write_json
from torchyard.cli._torch import load_torch

__all__ = ["optimize"]

_GOALS: Final = ("latency", "throughput", "memory")
# Frames of a spectrogram, samples of a second of sound.
_FRAMES, _SAMPLES = 3000, 16_000


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--goal", type=click.Choice(_GOALS), default="latency", show_default=True)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0.0, min_open=True),
    help="How far results may be from the model's own, as a share; without it, by rounding alone.",
)
@click.option("--budget", type=click.FloatRange(min=0.0), default=300.0, show_default=True)
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--generate", type=click.IntRange(min=1), help="Generate so many tokens.")
@click.option(
    "--inputs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A safetensors file with the model's inputs by name, instead of random ones.",
)
@click.option("--skip", multiple=True, help="An optimization that is not tried; may be repeated.")
@click.option("--plan", type=click.Path(path_type=Path), help="Write the plan to this file.")
@json_option
def optimize(
    folder: Path,
    goal: str,
    tolerance: float | None,
    budget: float,
    batch: int,
    tokens: int,
    generate: int | None,
    inputs: Path | None,
    skip: tuple[str, ...],
    plan: Path | None,
    as_json: bool,
) -> None:
    """Try what is installed on the model in FOLDER, as save_pretrained wrote it.

    Prints what was tried, what was kept, and what a call takes before and after. The folder is not
    changed; torchyard.optimization.apply_plan does in a program what the plan says.
    """
    with answer_only(as_json):
        model = _model(folder)
        given = _random_inputs(model, batch, tokens) if inputs is None else _read(inputs)
        from torchyard.optimization._api import optimize as run

        example: Any = given
        if generate is not None:
            if not hasattr(model, "generate"):
                raise click.BadParameter(
                    f"expected a model that generates, got {type(model).__name__}",
                    param_hint="--generate",
                )
            words = {"max_new_tokens": generate, "min_new_tokens": generate, "do_sample": False}
            example = lambda model: model.generate(**given, **words)  # noqa: E731
        elif getattr(model.config, "use_cache", False):
            # One call needs no cache for the next.
            example = {**given, "use_cache": False}
        done = run(model, example, goal=goal, tolerance=tolerance, budget=budget, skip=list(skip))
        if plan is not None:
            done.plan.save(plan)
    if as_json:
        write_json({} if done.report is None else done.report.to_json())
        return
    console().print(str(done.report))
    if plan is not None:
        console().print(f"plan: {plan}")


def _model(folder: Path) -> Any:
    if load_torch().module is None:
        raise click.ClickException("expected torch, found none; pip install torch")
    try:
        transformers: Any = import_module("transformers")
    except ImportError as error:
        raise click.ClickException(
            f"expected transformers, got {error}; pip install transformers"
        ) from error
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = next(iter(config.architectures or ()), "")
        loader = getattr(transformers, kind, transformers.AutoModel)
        model = loader.from_pretrained(folder, local_files_only=True, dtype="auto")
    except (OSError, ValueError) as error:
        line = str(error).strip().splitlines()[0]
        raise click.BadParameter(
            f"expected a folder that save_pretrained wrote, got {folder}: {line}",
            param_hint="FOLDER",
        ) from error
    return model.eval()


def _random_inputs(model: Any, batch: int, tokens: int) -> dict[str, Any]:
    """Return inputs for a model by the name of its main one."""
    import torch

    config, name = model.config, model.main_input_name
    generator = torch.Generator().manual_seed(0)
    if name == "input_ids":
        size = config.get_text_config().vocab_size
        given = {name: torch.randint(size, (batch, tokens), generator=generator)}
        if config.is_encoder_decoder:
            given["decoder_input_ids"] = given[name].clone()
        return given
    if name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 224)
        sizes = tuple(size) if isinstance(size, list | tuple) else (size, size)
        shape: tuple[int, ...] = (batch, getattr(vision, "num_channels", 3), *sizes)
    elif name == "input_values":
        shape = batch, _SAMPLES
    elif name == "input_features":
        shape = batch, getattr(config, "num_mel_bins", 80), _FRAMES
    else:
        raise click.BadParameter(
            f"expected a file of inputs, since {type(model).__name__} takes {name!r}",
            param_hint="--inputs",
        )
    return {name: torch.randn(shape, generator=generator).to(model.dtype)}


def _read(path: Path) -> dict[str, Any]:
    try:
        load: Any = import_module("safetensors.torch").load_file
        return dict(load(path))
    except Exception as error:
        raise click.BadParameter(
            f"expected a safetensors file, got {path}: {error}", param_hint="--inputs"
        ) from error
