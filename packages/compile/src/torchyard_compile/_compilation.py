"""``compile_regions``: torch.compile for the blocks of a model that repeat."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from torchyard import arguments
from torchyard_compile import torch_compat
from torchyard_compile._dispatch_modes import eager_in_modes
from torchyard_compile._errors import FallbackError, RecompileBudgetError, RegionWarning
from torchyard_compile._report import Compilation, Region, Report
from torchyard_compile._search import repeated_blocks

__all__ = ["compile_regions"]

_Model = TypeVar("_Model", bound=nn.Module)
_CHOICES = ("raise", "warn")


def compile_regions(
    model: _Model,
    *,
    least: int = 2,
    budget: int = 4,
    on_fallback: str = "raise",
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
) -> _Model:
    """Compile each kind of block that repeats in a model once, in place.

    Blocks of a kind share what is compiled, so that a model of many layers starts in the time of
    one. What is between them runs as it is, hooks of the blocks among it. Nothing is compiled
    before the first call.

    Args:
        model: whose blocks are compiled; parameters, names and ``state_dict`` stay as they are.
        least: how many blocks of a kind there must be.
        budget: how often a kind may be compiled again, for other shapes, dtypes or values.
        on_fallback: what happens where a block, or a part of one, would run uncompiled, or the
            budget is exceeded: ``raise`` or ``warn``. torch itself goes on, with a line in its log.
        dynamic, backend, mode: as of torch.compile.

    Returns:
        The model, with ``report``, a :class:`Report`, which grows as it is called.

    Raises:
        TypeError, ValueError: an argument does not fit, or no block repeats.
        CompileRecordError: this torch keeps no record of compilations.
    """
    of = "compile_regions"
    arguments.instance(of, "model", model, nn.Module, "a torch.nn.Module")
    least = arguments.integer(of, "least", least, least=1)
    budget = arguments.integer(of, "budget", budget, least=0)
    strict = arguments.choice(of, "on_fallback", on_fallback, _CHOICES) == "raise"
    if dynamic is not None:
        dynamic = arguments.boolean(of, "dynamic", dynamic)
    if not callable(backend):
        known = torch.compiler.list_backends(exclude_tags=())
        backend = arguments.choice(of, "backend", backend, known)
    if mode is not None:
        mode = arguments.text(of, "mode", mode)
    kinds = repeated_blocks(model, least)
    if not kinds:
        raise arguments.wrong_value(
            of,
            "model",
            f"blocks with modules inside of which {least} are of one kind",
            f"a {type(model).__name__} without",
            "torch.compile the whole model",
        )
    watch = _Watch(budget, strict)
    for blocks in sorted(kinds.values(), key=len, reverse=True):
        watch.add(blocks, {"dynamic": dynamic, "backend": backend, "mode": mode})
    given: Any = model
    given.report = watch.report
    return model


class _Watch:
    """Regions, and what torch compiled of them since."""

    def __init__(self, budget: int, strict: bool) -> None:
        self.report = Report([])
        self._budget = budget
        self._strict = strict
        self._before = torch_compat.graph_breaks()
        self._newest = torch_compat.newest()
        self._refusals = torch_compat.refusals()
        self._known = set(map(_number, torch_compat.recent_compilations()))

    def add(self, blocks: list[tuple[str, nn.Module]], options: dict[str, Any]) -> None:
        """Compile blocks of a kind."""
        first = blocks[0][1]
        function: Any = inspect.unwrap(type(first).forward)
        code = function.__code__
        region = Region(
            type(first).__name__,
            f"{code.co_filename}:{code.co_firstlineno}",
            tuple(name for name, _ in blocks),
        )
        self.report.regions.append(region)
        for name, block in blocks:
            compiled = torch.compile(block.forward, fullgraph=self._strict, **options)
            block.__dict__["forward"] = self._watched(name, region, compiled)

    def _watched(
        self, name: str, region: Region, compiled: Callable[..., Any]
    ) -> Callable[..., Any]:
        in_modes = eager_in_modes(compiled)

        def forward(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return compiled(*args, **kwargs)
            if torch_compat.in_dispatch_mode():
                self._refuse_mode(name)
                return in_modes(*args, **kwargs)
            limit = torch_compat.failing_at_limit() if self._strict else contextlib.nullcontext()
            try:
                with limit:
                    result = compiled(*args, **kwargs)
            except self._refusals as error:
                raise FallbackError(
                    f"compile_regions: {name} would run uncompiled: {error}"
                ) from error
            finally:
                if torch_compat.newest() is not self._newest:
                    self._look(region)
            self._check(name, region)
            return result

        return forward

    def _refuse_mode(self, name: str) -> None:
        text = (
            f"{name} would run uncompiled: a TorchDispatchMode is active, in which torch does not "
            "compile"
        )
        if self._strict:
            raise FallbackError(
                f'compile_regions: {text}; on_fallback="warn" runs it so, and compiles after it'
            )
        self._say(f"compile_regions: {text}")

    def _look(self, region: Region) -> None:
        """Add what torch compiled in a call of a region to the report."""
        self._newest = torch_compat.newest()
        for event in torch_compat.recent_compilations():
            if _number(event) in self._known:
                continue
            self._known.add(_number(event))
            seconds = float(event.get("entire_frame_compile_time_s") or 0.0)
            # Behind the guard torch shows where in its own and the user's code it was made.
            guard = str(event.get("recompile_reason") or "").partition("User stack trace")[0]
            reason = " ".join(guard.split())
            region.compilations.append(Compilation(str(event["compile_id"]), seconds, reason))
        for why, count in torch_compat.graph_breaks().items():
            new = count - self._before.get(why, 0)
            if new > self.report.graph_breaks.get(why, 0):
                self.report.graph_breaks[why] = new
                self._say(f"a graph was broken: {why}")

    def _check(self, name: str, region: Region) -> None:
        if region.recompilations <= self._budget:
            return
        reasons = "; ".join(item.reason for item in region.compilations if item.reason)
        text = (
            f"compile_regions: {region.kind} ({name}) was compiled again {region.recompilations} "
            f"times, more than its budget of {self._budget}: {reasons}; dynamic=True makes sizes "
            f"no reason"
        )
        if self._strict:
            raise RecompileBudgetError(text)
        self._say(text)

    def _say(self, text: str) -> None:
        warnings.warn(text, RegionWarning, stacklevel=5)


def _number(event: Mapping[str, Any]) -> tuple[str, int]:
    """Return what no two compilations share; after torch.compiler.reset() numbers come again."""
    return str(event["compile_id"]), int(event.get("start_time_us") or 0)
