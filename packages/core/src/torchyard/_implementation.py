"""Implementations: what a plugin offers for a contract, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchyard._claim import Claim
from torchyard._contract import ContractId, Request, request_minor
from torchyard._failure import describe
from torchyard._platform import Platform
from torchyard._verdict import ReasonCode, Verdict


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to serve a contract.

    Attributes:
        contract: ``op/version``.
        name: ``<plugin>.<implementation>``; the part before the first dot is the plugin's name.
        supports: pure and cheap; called with the request and the platform, never with tensors.
        load: returns the callable that the contract describes; may import and may be slow, and
            is called once, when the implementation is first chosen.
        before: names of implementations that this one would stand in front of.
        after: names of implementations that this one would stand behind. Both place it only
            where a policy enlists it: installing a plugin changes no choice.
        minor: the newest minor of the contract that ``supports`` knows, where that is newer than
            the one in the manifest. A request for something newer is refused without asking it.
        claims: what it promises beyond the contract, see :class:`torchyard.Claim`; each is proven
            by the conformance kit, and nothing else is claimed by silence.
    """

    contract: str
    name: str
    supports: Callable[[Any, Platform], Verdict]
    load: Callable[[], Callable[..., Any]]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    minor: int = 0
    claims: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        ContractId.parse(self.contract)
        plugin, dot, rest = self.name.partition(".")
        if not (plugin and dot and rest):
            raise ValueError(
                f"Implementation.name: expected '<plugin>.<implementation>', got {self.name!r}"
            )
        for field in ("supports", "load"):
            if not callable(getattr(self, field)):
                raise TypeError(
                    f"Implementation {self.name!r}: {field} must be callable, got "
                    f"{type(getattr(self, field)).__name__}"
                )

        for field in ("before", "after"):
            names: object = getattr(self, field)
            if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
                raise TypeError(
                    f"Implementation {self.name!r}: {field} must be a tuple of names, got {names!r}"
                )
        minor: object = self.minor
        if not isinstance(minor, int) or isinstance(minor, bool) or minor < 0:
            raise TypeError(
                f"Implementation {self.name!r}: minor must be a whole number, 0 or more, got "
                f"{minor!r}"
            )
        claims: object = self.claims
        if not isinstance(claims, frozenset) or not claims <= set(Claim):
            raise ValueError(
                f"Implementation {self.name!r}: claims must be a frozenset of "
                f"{', '.join(Claim)}, got {claims!r}"
            )

    @property
    def plugin(self) -> str:
        """The name of the plugin that offers this implementation."""
        return self.name.partition(".")[0]

    def verdict(self, request: Request, platform: Platform) -> Verdict:
        """Ask ``supports``; an exception, or an answer of another type, is a refusal.

        So is a request for what the contract had only after the implementation was written: its
        ``supports`` cannot know that field, and would say yes to what it does not compute.
        """
        needed = request_minor(request)
        if needed > self.minor:
            return Verdict.no(
                ReasonCode.VERSION,
                f"the request needs {self.contract}.{needed}, and {self.name} was written for "
                f"{self.contract}.{self.minor}",
                f"install a newer version of plugin {self.plugin!r}",
            )
        try:
            verdict: object = self.supports(request, platform)
        except (Exception, SystemExit) as error:
            return Verdict.no(
                ReasonCode.SUPPORTS_RAISED,
                f"{self.name}: supports() raised {describe(error)}",
                f"report it to the author of plugin {self.plugin!r}",
            )
        if not isinstance(verdict, Verdict):
            return Verdict.no(
                ReasonCode.SUPPORTS_RAISED,
                f"{self.name}: supports() must return a Verdict, got {type(verdict).__name__}",
                f"report it to the author of plugin {self.plugin!r}",
            )
        return verdict
