"""``compiled_backward``: backward passes as compiled graphs, where that works and is faster."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchyard import arguments
from torchyard_compile import torch_compat
from torchyard_compile._errors import CompiledBackwardError, RegionWarning

__all__ = ["BackwardReport", "CompiledBackward", "compiled_backward"]

_Backend = str | Callable[..., Any]

_CHOICES: Final = ("raise", "warn")
# Of a gradient's largest value: sums in another order.
_ROUNDINGS: Final = 256.0
# Of what one rounding of the parameters changes: a step rounds in many places.
_CHANGES: Final = 8.0
# Of the model's largest gradient: where one rounding changes more, equal gradients cannot be told.
_LARGEST_CHANGE: Final = 0.01


@dataclass(frozen=True, slots=True)
class BackwardReport:
    """Whether backward passes are compiled, and why.

    Attributes:
        active: whether they are.
        reason: why, or why not.
        eager_seconds, compiled_seconds: of a step, the median; 0 where none was measured.
        first_seconds: of the first compiled step, compilation included; 0 where none was measured.
    """

    active: bool
    reason: str
    eager_seconds: float = 0.0
    compiled_seconds: float = 0.0
    first_seconds: float = 0.0


def compiled_backward(
    model: nn.Module | None = None,
    step: Callable[[], Any] | None = None,
    *,
    backend: _Backend = "inductor",
    rounds: int = 5,
    on_refusal: str = "raise",
) -> CompiledBackward:
    """Compile the backward passes inside of a ``with`` by torch's Compiled Autograd, if it helps.

    First a small model with hooks, a checkpoint and accumulated gradients is tried with the
    backend on this torch. Given a model and a step, the step is then run with and without: where
    gradients differ by more than rounding, or the compiled step is not the faster one, it is
    refused with the reason. What rounding does to each gradient is measured by one run whose
    parameters are changed by one rounding. Ranks of a process group decide together.

    Args:
        model: whose gradients are compared; its parameters, gradients and buffers, and the
            generators of random numbers, are afterwards as they were.
        step: one forward and backward pass of it, without a step of an optimiser. Run
            ``2 * rounds + 4`` times.
        backend: as of torch.compile.
        rounds: timed runs of each.
        on_refusal: ``raise``, or ``warn`` and run the backward passes as without.

    Raises:
        TypeError, ValueError: an argument does not fit.
        CompiledBackwardError: it is refused, when the ``with`` is entered.
    """
    of = "compiled_backward"
    if (model is None) != (step is None):
        raise arguments.wrong_value(
            of, "step", "a model and a step of it, or neither", "one of them alone"
        )
    if model is not None:
        arguments.instance(of, "model", model, nn.Module, "a torch.nn.Module")
        arguments.function(of, "step", step)
    if not callable(backend):
        known = torch.compiler.list_backends(exclude_tags=())
        backend = arguments.choice(of, "backend", backend, known)
    rounds = arguments.integer(of, "rounds", rounds, least=1)
    strict = arguments.choice(of, "on_refusal", on_refusal, _CHOICES) == "raise"
    return CompiledBackward(model, step, backend, rounds, strict=strict)


class CompiledBackward:
    """A context whose backward passes may be compiled; see :func:`compiled_backward`."""

    def __init__(
        self,
        model: nn.Module | None,
        step: Callable[[], Any] | None,
        backend: _Backend,
        rounds: int,
        *,
        strict: bool,
    ) -> None:
        self._model, self._step = model, step
        self._backend, self._rounds, self._strict = backend, rounds, strict
        self._report: BackwardReport | None = None
        self._entered: list[AbstractContextManager[Any]] = []

    @property
    def report(self) -> BackwardReport:
        """Whether backward passes are compiled, and why; asked first, it is tried now."""
        if self._report is None:
            self._report = self._tried()
        return self._report

    def __enter__(self) -> Self:
        report = self.report
        if not report.active and self._strict:
            raise CompiledBackwardError(f"compiled_backward: refused: {report.reason}")
        if not report.active:
            warnings.warn(
                f"compiled_backward: not compiled: {report.reason}", RegionWarning, stacklevel=2
            )
        context = self._compiling() if report.active else nullcontext()
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered.pop().__exit__(*exception)  # type: ignore[arg-type]

    def _compiling(self) -> AbstractContextManager[Any]:
        return torch_compat.compiled_autograd(
            lambda graph: torch.compile(graph, backend=self._backend, dynamic=True)
        )

    def _tried(self) -> BackwardReport:
        failure = self._failure_of_small_model()
        if failure := _agreed(failure):
            return BackwardReport(False, failure)
        if self._model is None or self._step is None:
            return BackwardReport(True, "a small model has the same gradients with it")
        with _as_it_was(self._model) as restart:
            report = self._measured(self._model, self._step, restart)
        refused = _agreed("" if report.active else report.reason)
        if refused and report.active:
            return BackwardReport(False, f"another rank's: {refused}")
        return report

    def _failure_of_small_model(self) -> str:
        """Return how the backward of a small model fails with the backend; empty where not."""
        with torch.random.fork_rng(), torch.enable_grad():
            torch.manual_seed(0)
            model = _Small()
            x = torch.randn(3, 4)
            model.run(x)
            wanted = _gradients(model)
            model.zero_grad()
            try:
                with self._compiling():
                    model.run(x)
            except Exception as error:
                line = (str(error).strip().splitlines() or [""])[0][:200]
                return f"a small model's backward ends in {type(error).__name__}: {line}"
            off = _difference(_gradients(model), wanted, {})
        return f"a small model's gradients differ by {off:.1e} of the largest" if off else ""

    def _measured(
        self, model: nn.Module, step: Callable[[], Any], restart: Callable[[], None]
    ) -> BackwardReport:
        def run() -> float:
            restart()
            start = time.perf_counter()
            step()
            _wait(model)
            return time.perf_counter() - start

        run()
        eager = statistics.median(run() for _ in range(self._rounds))
        wanted = _gradients(model)
        with _rounded_otherwise(model):
            restart()
            step()
            changes = _changes(_gradients(model), wanted)
        # A rank that went on alone would wait for the others in its compiled step.
        if refused := _agreed(_incomparable(wanted, changes)):
            return BackwardReport(False, refused, eager)
        try:
            with self._compiling():
                first = run()
                off = _difference(_gradients(model), wanted, changes)
                run()
                compiled = statistics.median(run() for _ in range(self._rounds))
        except Exception as error:
            line = (str(error).strip().splitlines() or [""])[0][:200]
            return BackwardReport(False, f"the step ends in {type(error).__name__}: {line}", eager)
        times = eager, compiled, first
        if off:
            reason = f"the model's gradients differ by {off:.1e} of the largest"
            return BackwardReport(False, reason, *times)
        if compiled >= eager:
            reason = f"a step takes {compiled / eager:.2f} times as long as without"
            return BackwardReport(False, reason, *times)
        return BackwardReport(True, f"a step takes {compiled / eager:.2f} of the time", *times)


class _Small(nn.Module):
    """What Compiled Autograd has to carry: hooks, a checkpoint, and gradients that are added."""

    def __init__(self) -> None:
        super().__init__()
        first = nn.Linear(4, 8)
        first.weight.register_hook(lambda grad: 2 * grad)  # type: ignore[no-untyped-call]
        self.inner = nn.Sequential(first, nn.Tanh())
        self.outer = nn.Linear(8, 2)

    def run(self, x: Tensor) -> None:
        """Run two backward passes, whose gradients add up."""
        for part in (x, -x):
            hidden = checkpoint(self.inner, part, use_reentrant=False)
            self.outer(hidden).square().sum().backward()


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.grad.detach().clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@contextmanager
def _rounded_otherwise(model: nn.Module) -> Iterator[None]:
    """Change every parameter that is trained by one rounding."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kept = [parameter.detach().clone() for parameter in trained]
    with torch.no_grad():
        for parameter in trained:
            parameter.mul_(1.0 + torch.finfo(parameter.dtype).eps)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, before in zip(trained, kept, strict=True):
                parameter.copy_(before)


def _changes(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, float]:
    """Return by how much each gradient differs; infinity where there is none, or of other shape."""
    changes = dict.fromkeys(wanted, float("inf"))
    for name, gradient in wanted.items():
        other = found.get(name)
        if other is not None and other.shape == gradient.shape:
            changes[name] = _largest(other.double() - gradient.double())
    return changes


def _incomparable(wanted: dict[str, Tensor], changes: dict[str, float]) -> str:
    """Return why gradients of two ways cannot be compared; empty where they can."""
    if not wanted:
        return "step: it leaves the model's parameters no gradient"
    largest, most = max(map(_largest, wanted.values())), max(changes.values())
    if most <= _LARGEST_CHANGE * largest:
        return ""
    return (
        f"one rounding of the parameters changes a gradient by {most / (largest or 1.0):.1e} of "
        "the largest, so that gradients of two ways cannot be compared"
    )


def _largest(gradient: Tensor) -> float:
    return float(gradient.abs().max()) if gradient.numel() else 0.0


def _difference(
    found: dict[str, Tensor], wanted: dict[str, Tensor], changes: dict[str, float]
) -> float:
    """Return the largest difference over the largest value, 0 where it is rounding.

    Args:
        found: the gradients that are judged.
        wanted: those that they have to be.
        changes: by how much one rounding of the parameters changes a gradient.
    """
    if found.keys() != wanted.keys():
        return float("inf")
    worst = 0.0
    for name, gradient in wanted.items():
        other = found[name]
        if other.shape != gradient.shape or other.dtype != gradient.dtype:
            return float("inf")
        scale = _largest(gradient) or 1.0
        off = _largest(other.double() - gradient.double()) / scale
        rounding = _CHANGES * changes.get(name, 0.0) / scale
        if not off <= max(_ROUNDINGS * torch.finfo(gradient.dtype).eps, rounding):
            worst = max(worst, off) if off == off else float("nan")
    return worst


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Yield what makes every run of a step begin alike; leave the model as it was."""
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}

    def restart() -> None:
        model.zero_grad(set_to_none=True)
        torch.manual_seed(0)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])

    with torch.random.fork_rng():
        try:
            yield restart
        finally:
            restart()
            for name, parameter in model.named_parameters():
                parameter.grad = grads[name]


def _wait(model: nn.Module) -> None:
    """Wait for the devices of a model's parameters."""
    for device in {parameter.device for parameter in model.parameters()}:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)


def _agreed(reason: str) -> str:
    """Return a reason that any rank has; this one's own where it has one."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return reason
    reasons: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(reasons, reason)
    return reason or next((other for other in reasons if other), "")
