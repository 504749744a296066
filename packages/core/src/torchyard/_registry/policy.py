"""Policy: what a user asked for, beyond what the devices' lists say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from torchyard._contracts.contract import ContractId
from torchyard._errors import PolicyError
from torchyard._registry.decision import Source


@dataclass(frozen=True, slots=True)
class Use:
    """A demand that one implementation computes one contract; it never falls back."""

    implementation: str
    source: Source


@dataclass(frozen=True, slots=True)
class Policy:
    """What a user asked for, as the resolver takes it; pure data.

    Attributes:
        use: the demand for this contract, strongest source first; None lets the lists decide.
        enlist: implementations that may be chosen although no list names them.
        locked: bucket to implementation, from a file of decisions.
        lock_path: of that file, for messages.
        tuned: bucket to the implementation that was measured to be the fastest; a wish, not a
            demand: where it refuses, the lists decide.
    """

    use: Use | None = None
    enlist: frozenset[str] = frozenset()
    locked: tuple[tuple[str, str], ...] = ()
    lock_path: str = ""
    tuned: tuple[tuple[str, str], ...] = ()


_CONTEXT: Final[ContextVar[tuple[tuple[str, str], ...]]] = ContextVar("torchyard_use", default=())


def contract_of(keyword: str) -> str:
    """Return the op, or ``op/version``, that a keyword of ``use`` names.

    Raises:
        PolicyError: the keyword cannot be one.
    """
    op, mark, version = keyword.rpartition("_v")
    contract = f"{op}/{version}" if mark and version.isdigit() else keyword
    _check_contract(f"use({keyword}=...)", contract)
    return contract


@contextmanager
def demanding(implementations: Mapping[str, str]) -> Iterator[None]:
    """Demand implementations by keywords of ``use`` inside a ``with`` block."""
    chosen = dict(_CONTEXT.get())
    for key, implementation in implementations.items():
        given: object = implementation
        if not isinstance(given, str) or "." not in given:
            raise PolicyError(
                f"use({key}=...): expected '<plugin>.<implementation>', got {implementation!r}; "
                f"`torchyard explain {key}` lists the names"
            )
        contract = contract_of(key)
        # The innermost block wins, also where it names the op and an outer one a version of it.
        for outer in [name for name in chosen if name.startswith(f"{contract}/")]:
            del chosen[outer]
        chosen[contract] = implementation
    token = _CONTEXT.set(tuple(chosen.items()))
    try:
        yield
    finally:
        _CONTEXT.reset(token)


# Returns what the enclosing blocks of this context demand. Every call of a component asks,
# and a function of Python would take twice as long.
context_demands: Final = _CONTEXT.get


def demanded(contract: ContractId, argument: str | None, environment: str) -> Use | None:
    """Return the strongest demand for a contract: argument, then context, then environment.

    Args:
        contract: the contract in question.
        argument: what the call itself asked for, or None.
        environment: the text of ``TORCHYARD_USE``.
    """
    if argument is not None:
        return Use(argument, Source.ARGUMENT)
    context = _CONTEXT.get()
    if context:
        found = _lookup(dict(context), contract)
        if found is not None:
            return Use(found, Source.CONTEXT)
    if environment:
        found = _lookup(parse_uses(environment), contract)
        if found is not None:
            return Use(found, Source.ENVIRONMENT)
    return None


def parse_uses(text: str) -> dict[str, str]:
    """Read ``contract=implementation,...``, the form of ``TORCHYARD_USE``."""
    uses = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        contract, equals, implementation = (part.strip() for part in item.partition("="))
        if not (contract and equals and "." in implementation):
            raise PolicyError(
                f"TORCHYARD_USE: expected 'contract=plugin.implementation,...' such as "
                f"'attention=cpu.native', got {item!r}"
            )
        _check_contract("TORCHYARD_USE", contract)
        uses[contract] = implementation
    return uses


def parse_enlisted(text: str) -> frozenset[str]:
    """Read ``name,name,...``, the form of ``TORCHYARD_ENLIST``."""
    names = frozenset(filter(None, (part.strip() for part in text.split(","))))
    for name in names:
        if "." not in name:
            raise PolicyError(
                f"TORCHYARD_ENLIST: expected '<plugin>.<implementation>,...', got {name!r}"
            )
    return names


def _check_contract(where: str, text: str) -> None:
    try:
        ContractId.parse(text if "/" in text else f"{text}/1")
    except ValueError as error:
        raise PolicyError(f"{where}: {error}") from None


def _lookup(uses: Mapping[str, str], contract: ContractId) -> str | None:
    return uses.get(str(contract), uses.get(contract.op))
