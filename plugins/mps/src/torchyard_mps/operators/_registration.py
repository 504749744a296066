"""``register``: give a device the operators that torch lacks or computes wrong there."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import torch
from torch.library import Library, register_kernel

from torchyard import arguments
from torchyard_mps._family import DEVICE
from torchyard_mps.operators._calls import Call, report
from torchyard_mps.operators._on_cpu import kernel_on_cpu
from torchyard_mps.operators._probe import Outcome, Support, probe
from torchyard_mps.operators._programs import PROGRAMS
from torchyard_mps.operators.replacements import REPLACEMENTS, Replacement

__all__ = ["Registration", "Replaced", "register"]

_BY_NAME: Final = MappingProxyType({one.program: one for one in REPLACEMENTS})
_WARNED_OF_OVERRIDING: Final = "(?s).*[Oo]verriding a previously registered kernel"


@dataclass(frozen=True, slots=True)
class Replaced:
    """What came of an operator that was tried.

    Attributes:
        operator: its name in the probe's table.
        registered: whether ours computes it from now on.
        before: what torch had.
        after: what came of trying ours; None where it was not tried.
        kernels: the operators of ATen that ours has, with their overloads.
        on_cpu: whether the CPU computes ours.
    """

    operator: str
    registered: bool
    before: Outcome
    after: Outcome | None
    kernels: tuple[str, ...]
    on_cpu: bool

    def __str__(self) -> str:
        had = f"{self.before.support}: {self.before.text}".removesuffix(": ")
        if self.registered:
            where = "on the CPU" if self.on_cpu else "on the device"
            return f"{self.operator}: registered, computed {where}; torch's was {had}"
        if self.after is None:
            return f"{self.operator}: left as it is, {had}"
        tried = f"{self.after.support}: {self.after.text}".removesuffix(": ")
        return f"{self.operator}: not registered, since ours was {tried}; torch's is {had}"


class Registration:
    """Operators of ours that torch calls until they are removed; ``with`` removes them at its end.

    Attributes:
        device: whose operators they are, such as ``mps``.
        replaced: what came of each operator that was tried; ``str`` shows it by lines.
    """

    def __init__(
        self, device: str, replaced: tuple[Replaced, ...], libraries: list[Library]
    ) -> None:
        self.device: Final = device
        self.replaced: Final = replaced
        self._libraries = libraries
        if libraries:
            # Operators stay registered where a caller drops what it got.
            _REGISTRATIONS.append(self)

    def remove(self) -> None:
        """Give the operators back to torch, as they were before; a second call does nothing."""
        self._libraries.clear()
        _REGISTRATIONS[:] = [one for one in _REGISTRATIONS if one is not self]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __str__(self) -> str:
        return "\n".join([f"operators of {self.device}:", *(f"  {one}" for one in self.replaced)])


_REGISTRATIONS: Final[list[Registration]] = []


def register(device: str = DEVICE, *, operators: Collection[str] | None = None) -> Registration:
    """Register operators of ours where torch has none, or has been shown wrong.

    Each is tried first, on small inputs: what torch computes right is left to torch. What is
    registered is tried again, and given back where ours is wrong as well. Kernels are called below
    autograd, so that torch's formulas of derivatives hold. They are for all of the process, as
    torch's own are. What the CPU computes warns once for each operator, by
    :class:`ComputedOnCpuWarning`; what falls to the CPU without ours is left as it is.

    Args:
        device: a torch device that is there; its operators are those of all devices of its type.
        operators: names of the table (``PROGRAMS``) for which there are kernels of ours; None: all.

    Returns:
        What came of each operator, and the way to remove those that were registered.

    Raises:
        TypeError, ValueError: it is no device, or there is no kernel of such a name.
        RuntimeError: torch finds no such device.
    """
    where = arguments.device("register", "device", device)
    chosen = _chosen(operators)
    _require(where)
    replaced, libraries = [], []
    for replacement in chosen:
        one, library = _replaced(replacement, where)
        replaced.append(one)
        if library is not None:
            libraries.append(library)
    return Registration(where.type, tuple(replaced), libraries)


def _require(device: torch.device) -> None:
    """Raise an error without a device: each operator would be taken for one that fails."""
    try:
        torch.empty(0, device=device)
    # A torch without CUDA asserts.
    except (RuntimeError, AssertionError) as error:
        text = str(error).partition("\n")[0]
        raise RuntimeError(
            f"register: device: expected a device that torch finds, got {device}: {text}; "
            "torchyard doctor says which there are"
        ) from error


def _chosen(operators: Collection[str] | None) -> list[Replacement]:
    if operators is None:
        return list(REPLACEMENTS)
    names = arguments.sequence("register", "operators", operators, _name, sets=True)
    return [one for one in REPLACEMENTS if one.program in names]


def _name(of: str, argument: str, value: Any) -> str:
    return arguments.choice(of, argument, value, _BY_NAME)


def _replaced(replacement: Replacement, device: torch.device) -> tuple[Replaced, Library | None]:
    name, on_cpu = replacement.program, bool(replacement.on_cpu)
    before = _tried(name, device)
    left = {Support.NATIVE, Support.OURS}
    if on_cpu:
        # The CPU computes it already.
        left.add(Support.CPU)
    if before.support in left:
        return Replaced(name, False, before, None, replacement.operators, on_cpu), None
    library = kernels_registered(
        replacement, device, f"torch's was {before.support}: {before.text}"
    )
    after = _tried(name, device)
    right = after.support is Support.OURS
    found = Replaced(name, right, before, after, replacement.operators, on_cpu)
    return found, library if right else None


def _tried(name: str, device: torch.device) -> Outcome:
    (outcome,) = probe(str(device), {name: PROGRAMS[name]})
    return outcome


def kernels_registered(replacement: Replacement, device: torch.device, reason: str) -> Library:
    """Register kernels for as long as the library lives that is returned."""
    library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    warned: set[str] = set()

    def done(operator: str, copied: int = 0) -> None:
        report(Call(operator, copied), reason, warned)

    kernels: Mapping[str, Callable[..., Any]] = {
        **{name: _reporting(kernel, name, done) for name, kernel in replacement.kernels.items()},
        **{name: kernel_on_cpu(name, functools.partial(done, name)) for name in replacement.on_cpu},
    }
    with warnings.catch_warnings():
        # The caller asked for it, and what is returned says so.
        warnings.filterwarnings("ignore", _WARNED_OF_OVERRIDING)
        for name, kernel in kernels.items():
            register_kernel(f"aten::{name}", device.type, kernel, lib=library)
    return library


def _reporting(
    kernel: Callable[..., Any], operator: str, done: Callable[[str], None]
) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def reporting(*given: Any, **named: Any) -> Any:
        result = kernel(*given, **named)
        done(operator)
        return result

    return reporting
