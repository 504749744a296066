"""Draws of standard variables, a kernel each."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_mps._launch import THREADS, Launch, groups_for, metal_text
from torchyard_mps._runner import run
from torchyard_mps.lowering import header

__all__ = [
    "angle",
    "binomial",
    "categories",
    "exponential",
    "gamma",
    "gamma_slopes",
    "key_of",
    "normal",
    "poisson",
]

_PARTS: Final = tuple(
    f"draws/{name}" for name in ("numbers", "gamma", "counts", "angle", "kernels")
)
_LANES: Final = 32


def _source() -> str:
    return f"{header()}\n{metal_text(*_PARTS)}"


def key_of(generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Return the key of a draw, from a generator of the CPU; None: torch's default one.

    Raises:
        TypeError, ValueError: it is no generator of the CPU.
    """
    if generator is not None:
        if not isinstance(generator, torch.Generator):
            raise TypeError(
                f"generator: expected a torch.Generator, got {type(generator).__name__}"
            )
        if generator.device.type != "cpu":
            raise ValueError(
                f"generator: expected one of the CPU, from which keys are taken, got one of "
                f"{generator.device}; create it by torch.Generator()"
            )
    words = torch.randint(-(2**31), 2**31, (2,), generator=generator, dtype=torch.int64)
    return words.to(torch.int32).to(device)


def exponential(shape: torch.Size, key: Tensor) -> Tensor:
    """Draw exponential variables of mean 1."""
    return _drawn("exponential", shape, key)


def normal(shape: torch.Size, key: Tensor) -> Tensor:
    """Draw standard normal variables."""
    return _drawn("normal", shape, key)


def poisson(rate: Tensor, key: Tensor) -> Tensor:
    """Draw counts of a mean each."""
    return _drawn("poisson", rate.shape, key, rate)


def binomial(trials: Tensor, probability: Tensor, key: Tensor) -> Tensor:
    """Draw counts of successes; both tensors have one shape."""
    return _drawn("binomial", trials.shape, key, trials, probability)


def angle(concentration: Tensor, key: Tensor) -> Tensor:
    """Draw von Mises variables about 0, in [-pi, pi]."""
    return _drawn("angle", concentration.shape, key, concentration)


def gamma(concentration: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Draw gamma variables of scale 1.

    Returns:
        Them, 0 where a float does not hold them, and their logarithms, which always are held.
    """
    shape = _operand(concentration)
    value, log_value = torch.empty_like(shape), torch.empty_like(shape)
    _launch("draw_gamma", shape.numel(), (key,), (shape,), (value, log_value))
    return value, log_value


def gamma_slopes(concentration: Tensor, value: Tensor, log_value: Tensor) -> Tensor:
    """Return d log(value) / d concentration of gamma variables that stay at their quantiles."""
    shape = _operand(concentration)
    out = torch.empty_like(shape)
    _launch("gamma_slopes", shape.numel(), (), (shape, value, log_value), (out,))
    return out


def categories(logits: Tensor, count: int, key: Tensor) -> Tensor:
    """Draw categories for each row of logits.

    Args:
        logits: [rows, categories]; need not be normalised.
        count: draws of each row.
        key: of the draw.

    Returns:
        int64 [count, rows].
    """
    rows, width = logits.shape
    out = torch.empty(count * rows, dtype=torch.int32, device=logits.device)
    sizes = (_number(width, logits.device), _number(rows, logits.device))
    inputs = (*sizes, _operand(logits))
    _launch("draw_category", out.numel(), (key,), inputs, (out,), threads_each=_LANES)
    return out.to(torch.int64).view(count, rows)


def _drawn(name: str, shape: torch.Size, key: Tensor, *parameters: Tensor) -> Tensor:
    inputs = tuple(_operand(parameter) for parameter in parameters)
    out = torch.empty(shape, dtype=torch.float32, device=key.device)
    _launch(f"draw_{name}", out.numel(), (key,), inputs, (out,))
    return out


def _operand(tensor: Tensor) -> Tensor:
    """Return a parameter as kernels read it: contiguous floats."""
    return tensor.detach().to(torch.float32).contiguous()


def _number(value: int, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=torch.int64, device=device)


def _launch(
    kernel: str,
    count: int,
    key: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    threads_each: int = 1,
) -> None:
    """Fill outputs of ``count`` elements; of nothing there is nothing to launch."""
    if not count:
        return
    buffers = (*key, _number(count, outputs[0].device), *inputs, *outputs)
    filled = tuple(range(len(buffers) - len(outputs), len(buffers)))
    groups = (groups_for(count * threads_each), 1)
    run(Launch(_source(), kernel, groups, THREADS, buffers, filled))
