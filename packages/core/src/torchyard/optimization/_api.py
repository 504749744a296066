"""``optimize`` and plans: what users call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torchyard import arguments
from torchyard._contracts.optimization import Optimization
from torchyard._errors import NotApplicableError, OptimizeError, PlanError
from torchyard._plugins.activation import PluginCodeError
from torchyard.optimization._example import ExampleCall
from torchyard.optimization._plan import (
    Plan,
    PlanStep,
    described_machine,
    described_model,
    read_plan,
)
from torchyard.optimization._report import Report, TrialOutcome
from torchyard.optimization._steps import Steps

if TYPE_CHECKING:
    from torch import Tensor, nn

    from torchyard._plugins.plugin import Plugin

__all__ = ["Optimized", "apply_plan", "optimize"]

_GOALS: Final = ("latency", "throughput", "memory")


class Optimized:
    """A model that was optimized in place, and the way back.

    Attributes:
        model: the model.
        plan: what was done, for another process or machine.
        report: the trials; None where a plan was applied.
    """

    def __init__(self, model: nn.Module, steps: Steps, plan: Plan, report: Report | None) -> None:
        self.model = model
        self.plan = plan
        self.report = report
        self._steps = steps

    def undo(self) -> None:
        """Leave the model as it was, to the very parameters.

        Raises:
            OptimizeError: the original weights were given up (``goal="memory"``), or the model was
                changed by something else since.
        """
        if self._steps.final:
            raise OptimizeError(
                "Optimized.undo: expected original weights, got none: goal='memory' gave them up; "
                "load the model again"
            )
        self._steps.undo()


def optimize(
    model: nn.Module,
    example: Tensor | Sequence[Any] | Mapping[str, Any] | Callable[[nn.Module], Any],
    *,
    goal: str = "latency",
    tolerance: float | None = None,
    budget: float = 120.0,
    skip: Sequence[str] = (),
    progress: bool = True,
) -> Optimized:
    """Make a model faster or smaller, in place, by what the installed plugins offer.

    Each optimization is tried on top of those that were kept: its results are compared with the
    model's own, it is measured, and it stays if it brings at least 3 %. See docs/optimize.md for
    what is tried.

    Args:
        model: in evaluation (``model.eval()``).
        example: what the model is called with: a tensor, a tuple of arguments, or a mapping of
            keyword arguments; or a function of the model, such as one that generates. It is run
            some hundred times, without gradients, each time with a copy of the inputs.
        goal: ``latency``: the seconds of one call that is waited for; ``throughput``: of one of
            several calls, waited for together; ``memory``: the bytes of the model's tensors and of
            what a call allocates, where calls take at most 1.25 of the time. For ``memory`` the
            original weights are given up, so that nothing can be undone.
        tolerance: how far results may be from the model's own, as a share of their norm, or of
            integers the share that differs; quantised weights are tried too. None: rounding alone:
            at most four times as far from the model's results in float64 as they themselves are.
        budget: seconds after which nothing new is tried; a trial that has begun is finished.
        skip: names of optimizations that are not tried.
        progress: show a bar, where stderr is a terminal.

    Returns:
        The model with a report, a plan and ``undo()``.

    Raises:
        TypeError, ValueError: an argument does not fit.
        OptimizeError: the model does not take the example, its results cannot be judged by, or an
            optimization left the model changed; the message says which.
    """
    of = "optimize"
    _check_model(of, model)
    call = ExampleCall.parse(of, example)
    goal = arguments.choice(of, "goal", goal, _GOALS)
    if tolerance is not None:
        tolerance = arguments.number(of, "tolerance", tolerance, above=0.0)
    budget = arguments.number(of, "budget", budget, least=0.0)
    skipped = arguments.sequence(of, "skip", skip, arguments.text, sets=True)
    progress = arguments.boolean(of, "progress", progress)
    found, broken = _offered()
    known = {optimization.name for _, optimization in found}
    for name in skipped:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise arguments.wrong_value(of, "skip", f"names of optimizations ({names})", repr(name))

    from torchyard._progress import Steps as Progress
    from torchyard.optimization._search import Search

    with Progress(2, shown=progress) as steps:
        search = Search(model, call, goal, tolerance, budget, steps)
        for name in skipped:
            search.note(name, TrialOutcome.NOT_TRIED, "skip names it")
        for plugin, reason in broken:
            search.note(plugin, TrialOutcome.FAILED, reason)
        described = described_model(model)
        report = search.run([one for _, one in found if one.name not in skipped])
    owners = {optimization.name: plugin for plugin, optimization in found}
    plan = Plan(
        goal,
        described,
        described_machine(model),
        tuple(
            PlanStep(
                owners[step.optimization.name].name,
                _version(owners[step.optimization.name]),
                step.optimization.name,
                step.variant.name,
            )
            for step in search.steps.made
        ),
        report.before.seconds,
        report.after.seconds,
    )
    return Optimized(model, search.steps, plan, report)


def apply_plan(
    model: nn.Module,
    plan: Plan | str | Path,
    *,
    elsewhere: bool = False,
) -> Optimized:
    """Do to a model, in place, what a plan says, without trials.

    Args:
        model: in evaluation, of the class and the shapes that the plan is for.
        plan: a plan, or the file that holds one.
        elsewhere: also where torch, the machine or a plugin's version is another one than where
            the plan was made.

    Raises:
        TypeError, ValueError: an argument does not fit.
        PlanError: the plan is for something else, what it names is not offered here, or fails; says
            which. The model is as it was.
    """
    of = "apply_plan"
    _check_model(of, model)
    elsewhere = arguments.boolean(of, "elsewhere", elsewhere)
    if not isinstance(plan, Plan):
        plan = read_plan(arguments.path(of, "plan", plan))
    plan.check(model, elsewhere=elsewhere)
    offered = {(plugin.name, one.name): (plugin, one) for plugin, one in _offered()[0]}
    steps = Steps(model)
    try:
        for step in plan.steps:
            if (step.plugin, step.optimization) not in offered:
                raise PlanError(
                    f"plan: steps: {step.optimization} of plugin {step.plugin} is not offered here;"
                    f" `torchyard plugins` says what is installed"
                )
            plugin, optimization = offered[step.plugin, step.optimization]
            version = _version(plugin)
            if version != step.version and not elsewhere:
                raise PlanError(
                    f"plan: steps: expected plugin {step.plugin} {step.version}, got {version}; "
                    f"make a plan here, or apply it with elsewhere=True"
                )
            _apply(steps, model, optimization, step)
        if plan.goal == "memory":
            steps.give_up_originals()
    except BaseException:
        if not steps.final:
            steps.undo()
        raise
    return Optimized(model, steps, plan, None)


def _apply(steps: Steps, model: nn.Module, optimization: Optimization, step: PlanStep) -> None:
    what = f"plan: steps: {step.optimization} {step.variant}"
    try:
        variants = optimization.variants(model)
    except NotApplicableError as error:
        raise PlanError(f"{what}: it does not apply to this model: {error}") from error
    variant = next((one for one in variants if one.name == step.variant), None)
    if variant is None:
        names = ", ".join(one.name for one in variants)
        raise PlanError(f"{what}: expected one of {names}; make the plan again")
    try:
        steps.apply(optimization, variant)
    except OptimizeError:
        raise
    except Exception as error:
        raise PlanError(f"{what} failed: {type(error).__name__}: {error}") from error


def _check_model(of: str, model: nn.Module) -> None:
    from torch import nn

    arguments.instance(of, "model", model, nn.Module, "a torch.nn.Module")
    if model.training:
        raise arguments.wrong_value(
            of, "model", "one in evaluation", "one in training", "call model.eval()"
        )


def _offered() -> tuple[list[tuple[Plugin, Optimization]], list[tuple[str, str]]]:
    """Return what plugins offer, and the plugins that fail to, with the reason."""
    from torchyard._registry.registry import registry

    found: list[tuple[Plugin, Optimization]] = []
    broken: list[tuple[str, str]] = []
    owners: dict[str, str] = {}
    known = registry()
    for plugin in known.plugins:
        try:
            offered = known.optimizations(plugin)
        except PluginCodeError as error:
            broken.append((plugin.name, str(error)))
            continue
        for one in offered:
            if one.name in owners:
                text = f"{one.name} is offered by plugin {owners[one.name]} already"
                broken.append((plugin.name, text))
                continue
            owners[one.name] = plugin.name
            found.append((plugin, one))
    return found, broken


def _version(plugin: Plugin) -> str:
    return plugin.source.version or ""
