"""``capture``: a function captured for the shapes of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments, note_use
from torchyard_kernels._torch_compat import tree_flatten, tree_leaves
from torchyard_kernels.graphs._bucket import captured_bucket
from torchyard_kernels.graphs._graph import Graph
from torchyard_kernels.graphs._padding import Padding

__all__ = ["capture"]

# A larger number of runs is taken for a mistake.
_MOST_RUNS: Final = 1_000_000


def capture(
    fn: Callable[..., Any],
    *example: Any,
    buckets: Sequence[tuple[Any, ...]] = (),
    padding: Padding | None = None,
    state: Sequence[Tensor] = (),
    warmup: int = 1,
) -> Graph:
    """Run a function and capture its operators, which replays run without Python between them.

    Tensors that the function reads and that are not its arguments are captured by reference: a
    replay sees what is written to them later. Nothing is compiled.

    Args:
        fn: takes tensors, and other values that stay as in the examples, in any nesting.
        example: arguments to capture with. The device of their tensors determines the mechanism:
            on the CPU the TorchScript interpreter, on others torch.accelerator.Graph.
        buckets: more examples, each a tuple of arguments, whose shapes are captured as well.
        padding: how arguments between the captured shapes are padded; None: they are refused.
        state: tensors that fn changes in place, such as a cache: each replay changes them, the
            capture itself does not.
        warmup: how often fn runs before it is recorded, for lazy initialisation.

    Returns:
        A callable that takes the place of fn.

    Raises:
        UncapturableError: names the first operator that a replay could not repeat (one whose
            result is read on the host, whose shape depends on data, that writes to a tensor not in
            state=), and the line of the caller's code.
        TypeError, ValueError: an argument does not fit; the message names it.
        torchyard.UnsupportedError: no implementation captures on this device.
    """
    of = "capture"
    arguments.function(of, "fn", fn)
    buckets = arguments.sequence(of, "buckets", buckets, _bucket)
    if padding is not None:
        arguments.instance(of, "padding", padding, Padding)
    state = arguments.sequence(of, "state", state, arguments.tensor)
    warmup = arguments.integer(of, "warmup", warmup, least=0, most=_MOST_RUNS)
    for index, leaf in enumerate(tree_leaves(example)):
        if isinstance(leaf, Tensor):
            arguments.tensor(of, f"example[{index}]", leaf)
    examples = (example, *buckets)
    tensors = [leaf for leaf in tree_leaves((examples, list(state))) if isinstance(leaf, Tensor)]
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(f"capture: example: expected tensors of one device, got {names}")
    device = devices.pop() if devices else torch.device("cpu")
    note_use("kernels.graphs", device.type)
    for more in buckets:
        _check_alike(example, more)
    captured = tuple(captured_bucket(fn, one, device, tuple(state), warmup) for one in examples)
    return Graph(fn, captured, tuple(state), padding)


def _bucket(of: str, name: str, value: object) -> tuple[Any, ...]:
    return arguments.instance(
        of, name, value, tuple, "a tuple of arguments", remedy="write [(tensor,)] for one tensor"
    )


def _check_alike(example: tuple[Any, ...], more: tuple[Any, ...]) -> None:
    """Raise unless two examples differ only in their tensors."""
    (first, taken), (second, also) = tree_flatten(example), tree_flatten(more)
    captured = [leaf for leaf in first if not isinstance(leaf, Tensor)]
    other = [leaf for leaf in second if not isinstance(leaf, Tensor)]
    if taken != also or captured != other:
        raise ValueError(
            "capture: buckets: expected tuples of arguments that differ from the example in their "
            f"tensors alone, got {other} for {captured}; capture another graph for these"
        )
