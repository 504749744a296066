"""A captured function, called as the function is, with arguments of captured shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_kernels._torch_compat import TreeSpec, tree_flatten
from torchyard_kernels.graphs._bucket import Bucket
from torchyard_kernels.graphs._errors import GraphBucketError, GraphParityError
from torchyard_kernels.graphs._padding import Padding

__all__ = ["Graph", "GraphMemory"]


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """The memory of a graph, in bytes, over all buckets.

    Attributes:
        inputs: static copies of the arguments.
        outputs: results.
        planned: memory for results of operators, including the outputs; None where the device
            manages it.
        asked: what one run of the function for each bucket requests from its allocator; None where
            the device manages it.
    """

    inputs: int
    outputs: int
    planned: int | None
    asked: int | None


class Graph:
    """A function captured by :func:`capture`.

    A call with arguments of a captured shape copies them into static tensors, replays, and returns
    the function's result in tensors that the next replay overwrites: clone them to keep them.
    Arguments other than tensors must equal those of the capture. Every replay draws new random
    numbers from the device's default generator, as many and in the same order as the function, so
    that both draw the same numbers from one seed.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        buckets: tuple[Bucket, ...],
        state: tuple[Tensor, ...],
        padding: Padding | None,
    ) -> None:
        self._fn = fn
        self._buckets = buckets
        self._state = state
        self._padding = padding
        first = buckets[0]
        # Whether the arguments are tensors alone, which need no flattening.
        self._plain = not first.others and first.taken == tree_flatten(first.inputs)[1]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The first bucket's static tensor arguments: write to them and call :meth:`replay`."""
        return self._buckets[0].inputs

    @property
    def mechanism(self) -> str:
        """How replays run, in a few words."""
        return self._buckets[0].captured.mechanism

    @property
    def launches(self) -> int | None:
        """How many operators a replay of the first bucket runs; None if unknown."""
        return self._buckets[0].captured.launches

    @property
    def buckets(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The captured shapes of the tensor arguments."""
        return tuple(_shapes(bucket.inputs) for bucket in self._buckets)

    @property
    def memory(self) -> GraphMemory:
        """The memory of all buckets."""
        captured = [bucket.captured for bucket in self._buckets]
        planned = [c.planned_bytes for c in captured if c.planned_bytes is not None]
        requested = [c.requested_bytes for c in captured if c.requested_bytes is not None]
        return GraphMemory(
            sum(_bytes(bucket.inputs) for bucket in self._buckets),
            sum(_bytes(c.outputs) for c in captured),
            sum(planned) if len(planned) == len(captured) else None,
            sum(requested) if len(requested) == len(captured) else None,
        )

    def replay(self) -> Any:
        """Run the first bucket on the values in :attr:`inputs`; return the result."""
        bucket = self._buckets[0]
        bucket.captured.replay()
        return bucket.result()

    def __call__(self, *args: Any) -> Any:
        """Replay with arguments of a captured shape, or of a shape that is padded to one.

        Raises:
            GraphBucketError: no bucket fits; the message lists the captured ones.
        """
        given: tuple[Tensor, ...] = args
        if not (
            self._plain
            and len(args) == len(self._buckets[0].inputs)
            and all(isinstance(item, Tensor) for item in args)
        ):
            leaves, taken = tree_flatten(args)
            given = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
            others = tuple(leaf for leaf in leaves if not isinstance(leaf, Tensor))
            self._check_others(others, taken, len(given))
        bucket = self._exact(given)
        if bucket is not None:
            with torch.no_grad():
                for mine, place in zip(given, bucket.inputs, strict=True):
                    if mine is not place:
                        _check_tensor(mine)
                        place.copy_(mine)
            bucket.captured.replay()
            return bucket.result()
        return self._padded(given)

    def check(self, *args: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
        """Compare a replay with the function itself, from equal state and equal generators.

        Both run once; state and generators are restored afterwards.

        Args:
            args: as for a call.
            rtol, atol: tolerances, as for torch.testing.assert_close; by default none.

        Raises:
            GraphParityError: names the result, or the state, that differs, and by how much.
        """
        rtol = arguments.number("Graph.check", "rtol", rtol, least=0)
        atol = arguments.number("Graph.check", "atol", atol, least=0)
        leaves, taken = tree_flatten(args)
        others = tuple(leaf for leaf in leaves if not isinstance(leaf, Tensor))
        self._check_others(others, taken, len(leaves) - len(others))
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                _check_tensor(leaf)
        before = [tensor.detach().clone() for tensor in self._state]
        with _same_generators(self._devices()):
            expected = _tensors(self._fn(*args))
        states = [tensor.detach().clone() for tensor in self._state]
        self._restore(before)
        with _same_generators(self._devices()):
            found = _tensors(self(*args))
        pairs = [
            (f"result {at}", *pair) for at, pair in enumerate(zip(found, expected, strict=True))
        ]
        pairs += [
            (f"state {at}", mine.detach().clone(), right)
            for at, (mine, right) in enumerate(zip(self._state, states, strict=True))
        ]
        self._restore(before)
        for name, mine, right in pairs:
            try:
                torch.testing.assert_close(
                    mine.detach(), right.detach(), rtol=rtol, atol=atol, equal_nan=True
                )
            except AssertionError as error:
                raise GraphParityError(
                    f"Graph.check: {name} of the replay differs from the function's: {error}"
                ) from None

    def _check_others(self, others: tuple[Any, ...], taken: TreeSpec, tensors: int) -> None:
        first = self._buckets[0]
        if taken != first.taken or not _equal(others, first.others):
            raise GraphBucketError(
                f"graph: expected arguments in the structure of the capture, {len(first.inputs)} "
                f"tensors and {first.others}, got {tensors} tensors and {others}; capture a graph "
                f"for these"
            )

    def _exact(self, given: tuple[Tensor, ...]) -> Bucket | None:
        for bucket in self._buckets:
            if len(given) == len(bucket.inputs) and all(
                not mine.is_nested and mine.shape == place.shape and mine.dtype == place.dtype
                for mine, place in zip(given, bucket.inputs, strict=True)
            ):
                return bucket
        return None

    def _padded(self, given: tuple[Tensor, ...]) -> Any:
        for mine in given:
            _check_tensor(mine)
        padding = self._padding
        length = None if padding is None else padding.length(given)
        if padding is not None and length is not None:
            fitting = [b for b in self._buckets if padding.fits(given, b.inputs)]
            if fitting:
                bucket = min(fitting, key=lambda b: _bytes(b.inputs))
                with torch.no_grad():
                    for at, (mine, place) in enumerate(zip(given, bucket.inputs, strict=True)):
                        padding.write(at, mine, place)
                bucket.captured.replay()
                return bucket.result(lambda at, result: padding.cut(at, result, length))
        rule = "" if padding is None else f", dimensions that may be padded: {dict(padding.inputs)}"
        raise GraphBucketError(
            f"graph: expected arguments of shapes {' or '.join(map(str, self.buckets))}{rule}; got "
            f"{_shapes(given)} {[str(t.dtype)[6:] for t in given]}; capture another bucket with "
            "buckets=, or pad"
        )

    def _restore(self, before: list[Tensor]) -> None:
        with torch.no_grad():
            for tensor, saved in zip(self._state, before, strict=True):
                tensor.copy_(saved)

    def _devices(self) -> set[torch.device]:
        bucket = self._buckets[0]
        return {tensor.device for tensor in (*bucket.inputs, *bucket.captured.outputs)}


@contextmanager
def _same_generators(devices: set[torch.device]) -> Iterator[None]:
    """Restore the generators' states at the end."""
    cpu = torch.get_rng_state()
    modules = [
        (device, torch.get_device_module(device)) for device in devices if device.type != "cpu"
    ]
    states = [module.get_rng_state(device) for device, module in modules]
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        for (device, module), state in zip(modules, states, strict=True):
            module.set_rng_state(state, device)


def _check_tensor(mine: Tensor) -> None:
    """Raise where a tensor has no values to copy."""
    arguments.tensor("graph", "argument", mine)
    if mine.is_meta:
        raise arguments.wrong_kind(
            "graph", "argument", "values", mine, "a tensor on the meta device has none"
        )


def _equal(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Return whether arguments other than tensors equal those of the capture."""
    # A NumPy array compares element by element, which raises: it is another argument.
    return len(some) == len(others) and all(
        one is other or (type(one) is type(other) and bool(one == other))
        for one, other in zip(some, others, strict=True)
    )


def _tensors(result: Any) -> list[Tensor]:
    return [leaf.clone() for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]


def _shapes(tensors: tuple[Tensor, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tensor.shape) for tensor in tensors)


def _bytes(tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
