"""Calls a function with one bad argument at a time, and judges what came of it."""

from __future__ import annotations

import copy
import faulthandler
import importlib
import re
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from tests.fuzz.kinds import REFUSED, Kind, kind_of
from tests.fuzz.values import DAMAGED, VALUES
from torchyard import TorchyardError, UnsupportedError
from torchyard_programs import ProgramError

__all__ = ["Call", "Outcome", "Trial", "call_of", "public", "trials", "tried"]

# Seconds after which a call counts as one that hangs: a refusal takes microseconds.
_LIMIT = 60


@dataclass(frozen=True)
class Call:
    """A call that is right.

    Attributes:
        name: of the public function, class or method, with its module.
        run: takes the arguments by name.
        make: makes new ones, the same each time.
        kinds: of those that are tried, by name.
        says: other words for an argument, that an error may name it by.
        calls: the arguments that are called as they are: what they raise is the caller's.
    """

    name: str
    run: Callable[..., Any]
    make: Callable[[], dict[str, Any]]
    kinds: Mapping[str, Kind]
    says: Mapping[str, str] = field(default_factory=dict)
    calls: frozenset[str] = frozenset()


def public(name: str) -> Any:
    """Return what a dotted name stands for."""
    module, _, rest = name.rpartition(".")
    while True:
        try:
            found: Any = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, word = module.rpartition(".")
            rest = f"{word}.{rest}"
    for word in rest.split("."):
        found = getattr(found, word)
    return found


def call_of(
    name: str,
    good: Mapping[str, Any] | Callable[[], dict[str, Any]],
    run: Callable[..., Any] | None = None,
    /,
    *,
    says: Mapping[str, str] | None = None,
    calls: Collection[str] = (),
    **kinds: Kind,
) -> Call:
    """Return a call whose arguments are of the kinds of their good values, if not of ``kinds``.

    Args:
        name: as Call's.
        good: the arguments, or what makes them.
        run: takes the arguments; None: what the name stands for.
        says: as Call's.
        calls: as Call's.
    """
    if callable(good):
        make = good
    else:
        kept = dict(good)

        def make() -> dict[str, Any]:
            return copy.deepcopy(kept)

    every = {argument: kind_of(value) for argument, value in make().items()}
    return Call(name, run or public(name), make, {**every, **kinds}, says or {}, frozenset(calls))


@dataclass(frozen=True)
class Trial:
    call: Call
    argument: str
    value: str

    def __str__(self) -> str:
        return f"{self.call.name}({self.argument}={self.value})"


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: ``clear``, ``right``, ``raw`` or ``wrong``, and how that shows."""

    kind: str
    text: str = ""


def trials(call: Call) -> Iterator[Trial]:
    for argument, kind in call.kinds.items():
        for value in VALUES:
            yield Trial(call, argument, value)
        if kind.is_tensor:
            for value in DAMAGED:
                yield Trial(call, argument, value)


def tried(trial: Trial) -> Outcome:
    """Make a trial's call and judge it."""
    kind = trial.call.kinds[trial.argument]
    given = trial.call.make()
    # Whether the value is one that the argument takes, with whatever result.
    fits, meta = False, False
    expected: Any = REFUSED
    if trial.value in VALUES:
        value = VALUES[trial.value]()
        expected = kind.stands_for(value)
        # Another tensor may fit by chance.
        fits = kind.is_tensor and isinstance(value, Tensor)
        fits = fits or (kind.free and expected is not REFUSED)
    else:
        try:
            value = DAMAGED[trial.value](given[trial.argument])
        except Exception as error:
            # There is no such form of this tensor.
            return Outcome("clear", f"not made: {error}")
        fits = trial.value in kind.fits
        meta = trial.value == "meta"
    given[trial.argument] = value
    result, failed = _called(trial.call.run, given)
    if failed is not None:
        return _judged(trial, failed)
    if fits or (meta and _is_meta(result)):
        return Outcome("right")
    if expected is REFUSED:
        return Outcome("wrong", f"taken, with the result {_shown(result)}")
    given = trial.call.make()
    given[trial.argument] = expected
    wanted, failed = _called(trial.call.run, given)
    if failed is not None:
        return Outcome("wrong", f"taken, and {expected!r} is not: {failed}")
    if not _alike(result, wanted):
        return Outcome("wrong", f"other results than for {expected!r}: {_shown(result)}")
    return Outcome("right")


def _judged(trial: Trial, error: BaseException) -> Outcome:
    """A clear error is of a class that callers expect, and names an argument of the call.

    That may be another one than was changed, where two do not go together.
    """
    text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
    if isinstance(error, UnsupportedError) and trial.argument == "implementation":
        return Outcome("clear", text)
    expected = (TypeError, ValueError, IndexError, TorchyardError, NotImplementedError)
    if not isinstance(error, expected):
        return Outcome("raw", text)
    call = trial.call
    if trial.argument in call.calls and VALUES.get(trial.value, _nothing)() is not None:
        # What a function of the caller's raises is the caller's.
        return Outcome("clear", text)
    if isinstance(error, ProgramError) and call.kinds[trial.argument].free:
        return Outcome("clear", text)
    names = [call.says.get(name, re.escape(name)) for name in (*call.kinds, *call.make())]
    named = "|".join(names)
    clear = re.search(rf"(?<![\w'\"])({named})(\[[^\]]*\])*(:| \(|=)", str(error))
    return Outcome("clear" if clear else "raw", text)


def _nothing() -> None:
    return None


def _called(run: Callable[..., Any], given: Mapping[str, Any]) -> tuple[Any, BaseException | None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no end within {_LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_LIMIT)
    # For what is not interrupted while native code runs.
    faulthandler.dump_traceback_later(2 * _LIMIT, exit=True)
    try:
        torch.manual_seed(0)
        return run(**given), None
    except Exception as error:
        return None, error
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def _is_meta(result: Any) -> bool:
    """Return whether shapes alone were computed, as of tensors without memory is right."""
    if isinstance(result, Tensor):
        return result.is_meta
    return isinstance(result, tuple) and all(map(_is_meta, result))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        if not isinstance(other, Tensor) or one.shape != other.shape or one.dtype != other.dtype:
            return False
        return one.is_meta or torch.equal(one.nan_to_num(), other.nan_to_num())
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return type(one) is type(other)


def _shown(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"{list(result.shape)} of {result.dtype}"
    return f"a {type(result).__name__}"
