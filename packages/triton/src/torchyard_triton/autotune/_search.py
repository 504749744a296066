"""``measure``: the fastest tiles of each kernel, one size at a time, results compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention.contract import AttentionCall
from torchyard_triton.attention import Tiles
from torchyard_triton.autotune._trials import TRIALS, Trial, trial_call

__all__ = ["Finding", "measure"]

# Other tiles replace those of the table only if they are this much faster, before and after.
_GAIN: Final = 1.03
# Sizes that are tried, in this order: the first decides most.
_TRIED: Final = (
    ("rows", (16, 32, 64, 128)),
    ("keys", (16, 32, 64, 128)),
    ("warps", (2, 4, 8)),
    ("stages", (1, 2, 3, 4)),
)
# Sums in another order, and weights rounded beside another maximum, differ by this many roundings.
_ROUNDINGS: Final = 16


@dataclass(frozen=True, slots=True)
class Finding:
    """What the search found for a kernel.

    Attributes:
        kernel: its name, as in ``tuning.json``.
        head_dim: of the call that was measured.
        default: the tiles that the table has.
        best: the fastest; the default where no others are clearly faster.
        gain: time with the default over time with ``best``.
        refused: what else was tried and did not count, each with the reason.
    """

    kernel: str
    head_dim: int
    default: Tiles
    best: Tiles
    gain: float
    refused: tuple[str, ...]


def measure(
    kernels: Sequence[str],
    tiles_of: Callable[[str, int], Tiles],
    *,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    head_dims: Sequence[int] = (64, 128),
    length: int = 4096,
    timer: Callable[[Callable[[], object]], float] | None = None,
) -> Iterator[Finding]:
    """Search the tiles of kernels on a device.

    A candidate counts if it compiles, agrees with the default's results to sixteen roundings of
    the largest, and is 3 % faster than the default, measured before and after it.

    Args:
        kernels: names of kernels, as in ``tuning.json``.
        tiles_of: returns the tiles that a kernel has for heads of a size.
        device: where it is measured.
        dtype, head_dims, length: of the calls; one search for each head size.
        timer: returns the milliseconds of a launch; None: ``triton.testing.do_bench``'s median,
            which empties the cache in between.

    Raises:
        ValueError: a kernel is not known.
    """
    for kernel in kernels:
        if kernel not in TRIALS:
            raise ValueError(
                f"measure: kernels: expected some of {', '.join(TRIALS)}, got {kernel!r}"
            )
    arguments.function("measure", "tiles_of", tiles_of)
    for head_dim in head_dims:
        call = trial_call(device, dtype, head_dim, length)
        for kernel in kernels:
            yield _search(kernel, tiles_of(kernel, head_dim), call, timer or _median)


def _median(run: Callable[[], object]) -> float:
    from triton.testing import do_bench

    median: Any = do_bench(run, return_mode="median")
    return float(median)


def _search(
    kernel: str, default: Tiles, call: AttentionCall, timer: Callable[[Callable[[], object]], float]
) -> Finding:
    make = TRIALS[kernel]
    base = make(call, default)
    base.run()
    wanted = [output.clone() for output in base.outputs]
    best, gain, refused = default, 1.0, []
    for size, values in _TRIED:
        # Others of this size, beside the best of those before.
        changes: list[dict[str, Any]] = [{size: value} for value in values]
        for tiles in [replace(best, **change) for change in changes]:
            if tiles in (best, default):
                continue
            before = timer(base.run)
            time = _time(make, call, tiles, wanted, timer)
            if isinstance(time, str):
                refused.append(f"{tiles}: {time}")
                continue
            ratio = min(before, timer(base.run)) / time
            if ratio >= max(_GAIN, gain):
                best, gain = tiles, ratio
    return Finding(kernel, call.query.shape[3], default, best, gain, tuple(refused))


def _time(
    make: Callable[[AttentionCall, Tiles], Trial],
    call: AttentionCall,
    tiles: Tiles,
    wanted: Sequence[Tensor],
    timer: Callable[[Callable[[], object]], float],
) -> float | str:
    """Return the time of a candidate, or why it does not count."""
    try:
        trial = make(call, tiles)
        trial.run()
    except Exception as raised:  # the compiler's, of many kinds: the tiles are too large for it
        return f"{type(raised).__name__}: {str(raised).partition(chr(10))[0]}"
    for found, expected in zip(trial.outputs, wanted, strict=True):
        allowed = _ROUNDINGS * torch.finfo(call.query.dtype).eps * float(expected.abs().max())
        error = float((found.float() - expected.float()).abs().max())
        if not error <= allowed:
            return f"results differ by {error:.2g}, expected at most {allowed:.2g}"
    return timer(trial.run)
