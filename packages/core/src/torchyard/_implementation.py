"""Implementations: what a plugin offers for a contract, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchyard import arguments
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
        plugin, dot, rest = arguments.text("Implementation", "name", self.name).partition(".")
        if not (plugin and dot and rest):
            raise arguments.wrong_value(
                "Implementation", "name", "'<plugin>.<implementation>'", repr(self.name)
            )
        of = f"Implementation {self.name!r}"
        for field in ("supports", "load"):
            arguments.function(of, field, getattr(self, field))
        for field in ("before", "after"):
            names: object = getattr(self, field)
            if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
                raise arguments.wrong_kind(of, field, "a tuple of names", names)
        object.__setattr__(self, "minor", arguments.integer(of, "minor", self.minor, least=0))
        claims: object = self.claims
        known = f"a frozenset of {', '.join(Claim)}"
        if not isinstance(claims, frozenset):
            raise arguments.wrong_kind(of, "claims", known, claims)
        if not claims <= set(Claim):
            raise arguments.wrong_value(of, "claims", known, sorted(map(str, claims)))

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
