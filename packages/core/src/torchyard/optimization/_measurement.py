"""A model's example: its results, its time and its memory."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from torchyard._errors import OptimizeError
from torchyard.optimization._example import ExampleCall
from torchyard.optimization._report import Figures
from torchyard.optimization._results import Results, results_of

__all__ = ["Bench"]

_LEAST_CALLS: Final = 5
_MOST_CALLS: Final = 50
# Of one measurement, behind calls that compile, pack and wake threads.
_SECONDS: Final = 1.0
# Of one measurement with fewer calls than the least: the budget is for trials of more than one.
_MOST_SECONDS: Final = 10.0
# Calls between two waits for the device, where throughput is asked for.
_BACK_TO_BACK: Final = 8


class Bench:
    """Runs the example on the model, each time from equal inputs and generators, without gradients.

    Args:
        model: in whatever state it is when a method is called.
        example: the call.
        goal: ``latency`` waits for the device after each call; ``throughput`` after several.
    """

    def __init__(self, model: nn.Module, example: ExampleCall, goal: str) -> None:
        self._model = model
        self._example = example
        self._calls = _BACK_TO_BACK if goal == "throughput" else 1
        devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
        self.device = next(iter(sorted(devices, key=str)), torch.device("cpu"))

    def results(self) -> Results:
        """Return what the example gives."""
        with self._prepared(1) as calls:
            return results_of(calls[0].run(self._model))

    def exact(self) -> Results:
        """Return what the example gives on a copy of the model in float64.

        Raises:
            OptimizeError: there is no room for the copy, or the model does not run in float64.
        """
        device = torch.device("cpu") if self.device.type == "mps" else self.device
        _check_room(self._model, device)
        try:
            wide = copy.deepcopy(self._model).to(device, torch.float64)
            with self._prepared(1) as calls:
                call = calls[0]
                widened = ExampleCall(
                    tuple(_widened(item, device) for item in call.args),
                    {name: _widened(item, device) for name, item in call.kwargs.items()},
                    call.function,
                )
                return results_of(widened.run(wide))
        except OptimizeError:
            raise
        except Exception as error:
            line = (str(error).strip().splitlines() or [""])[0][:200]
            raise OptimizeError(
                f"optimize: tolerance: expected one, since the model does not run in float64, "
                f"which would show how far its own rounding goes: {type(error).__name__}: {line}"
            ) from error

    def figures(self, reset: Callable[[], None] | None, held: int = 0) -> Figures:
        """Return the seconds of a call, the median of some, and the memory of one.

        Args:
            reset: forgets what earlier calls computed.
            held: bytes that the model reads besides its own tensors.
        """
        # Its call is the one that wakes threads and fills caches.
        memory = self.memory(reset) + held
        return Figures(self.seconds(reset), memory)

    def seconds(self, reset: Callable[[], None] | None = None) -> float:
        """Return the seconds of a call, the median of at least five, of slow calls of fewer."""
        times: list[float] = []
        begin = time.perf_counter()
        while len(times) < _MOST_CALLS:
            spent = time.perf_counter() - begin
            if times and spent >= (_MOST_SECONDS if len(times) < _LEAST_CALLS else _SECONDS):
                break
            if reset is not None:
                reset()
            with self._prepared(self._calls) as calls:
                self._wait()
                start = time.perf_counter()
                for call in calls:
                    call.run(self._model)
                self._wait()
                times.append((time.perf_counter() - start) / len(calls))
        return statistics.median(times)

    def memory(self, reset: Callable[[], None] | None = None) -> int:
        """Return the bytes of the model's tensors and of what torch allocates in a call, at most.

        What a library allocates for itself is not seen.
        """
        if reset is not None:
            reset()
        with self._prepared(1) as calls:
            if self.device.type == "cpu":
                peak = _peak_of_cpu(lambda: calls[0].run(self._model))
            else:
                torch.accelerator.synchronize(self.device)
                before = torch.accelerator.memory_allocated(self.device)
                torch.accelerator.reset_peak_memory_stats(self.device)
                calls[0].run(self._model)
                torch.accelerator.synchronize(self.device)
                peak = torch.accelerator.max_memory_allocated(self.device) - before
        return _bytes_of(self._model) + peak

    @contextlib.contextmanager
    def _prepared(self, count: int) -> Iterator[list[ExampleCall]]:
        """Give copies of the example, so that a call that changes its inputs changes no other's."""
        example = self._example
        try:
            calls = [
                ExampleCall(*copy.deepcopy((example.args, dict(example.kwargs))), example.function)
                for _ in range(count)
            ]
        except RuntimeError as error:
            raise OptimizeError(
                f"optimize: example: expected inputs that can be copied, got: {error}; detach them"
            ) from error
        indices = [] if self.device.type == "cpu" else [self.device.index or 0]
        kind = "cuda" if self.device.type == "cpu" else self.device.type
        with torch.random.fork_rng(indices, device_type=kind), torch.no_grad():
            torch.manual_seed(0)
            yield calls

    def _wait(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)


def _widened(value: Any, device: torch.device) -> Any:
    """Return a value whose floating-point tensors are in float64, and all tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device, torch.float64 if value.is_floating_point() else value.dtype)
    if isinstance(value, Mapping):
        return {key: _widened(item, device) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_widened(item, device) for item in value)
    return value


def _bytes_of(model: nn.Module) -> int:
    """Return the bytes of the memory of parameters and buffers, each once."""
    sizes: dict[int, int] = {}
    own = (*model.parameters(), *model.buffers())
    for tensor in (part for one in own for part in _parts_of(one)):
        try:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        except RuntimeError:
            # A tensor of a subclass that hands out no memory.
            sizes[id(tensor)] = tensor.numel() * tensor.element_size()
    return sum(sizes.values())


def _parts_of(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the tensors that hold a tensor's numbers: of a wrapper those inside of it."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
        return
    for name in flatten()[0]:
        yield from _parts_of(getattr(tensor, name))


def _free_memory(device: torch.device) -> int | None:
    """Return a device's free memory in bytes; None where the system does not tell."""
    if device.type != "cpu":
        free: int = torch.get_device_module(device).mem_get_info(device)[0]
        return free
    if sys.platform == "win32" or "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _check_room(model: nn.Module, device: torch.device) -> None:
    elements = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    needed = 8 * elements
    free = _free_memory(device)
    if free is not None and needed > free:
        raise OptimizeError(
            f"optimize: tolerance: expected one, since a copy of the model in float64, which would "
            f"show how far its own rounding goes, takes {needed / 2**30:.1f} GiB, of which "
            f"{free / 2**30:.1f} are free"
        )


def _peak_of_cpu(run: Callable[[], object]) -> int:
    """Return the most bytes that torch held at once during a call, above those before it."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with (
        tempfile.TemporaryDirectory() as folder,
        _without_stderr(),
    ):
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            run()
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        trace = json.loads(path.read_bytes())
    held = peak = 0
    events = (event for event in trace["traceEvents"] if event.get("name") == "[memory]")
    for event in sorted(events, key=lambda event: float(event["ts"])):
        held += int(event["args"]["Bytes"])
        peak = max(peak, held)
    return peak


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """Drop what is written to stderr: torch's profiler says there when it begins and ends."""
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
