"""Implementations: what a plugin offers for a contract, as data, and its verdict on a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from torchyard import arguments
from torchyard._contracts.contract import ContractId, Request
from torchyard._failure import describe
from torchyard._platforms.platform import Platform

if TYPE_CHECKING:
    from torchyard._contracts.compilation import Compilation


class ReasonCode(StrEnum):
    """Why a candidate was not chosen: stable names, one documented paragraph each.

    A code is never renamed or reused; texts may change between releases.
    """

    DEVICE = "E_DEVICE"
    DTYPE = "E_DTYPE"
    SHAPE = "E_SHAPE"
    HEAD_DIM = "E_HEAD_DIM"
    LAYOUT = "E_LAYOUT"
    MASK = "E_MASK"
    SCORE_MOD = "E_SCORE_MOD"
    GRAD = "E_GRAD"
    OUTPUT = "E_OUTPUT"
    DROPOUT = "E_DROPOUT"
    DETERMINISM = "E_DETERMINISM"
    ISA = "E_ISA"
    MEMORY = "E_MEMORY"
    DEPENDENCY = "E_DEPENDENCY"
    VERSION = "E_VERSION"
    BLOCKED = "E_BLOCKED"
    NOT_LISTED = "E_NOT_LISTED"
    PLUGIN = "E_PLUGIN"
    SLOT = "E_SLOT"
    MISSING = "E_MISSING"
    PURPOSE = "E_PURPOSE"
    SUPPORTS_RAISED = "E_SUPPORTS_RAISED"
    OTHER = "E_OTHER"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Say whether a request is supported and, where it is not, why and what would help.

    Attributes:
        supported: whether the implementation computes the request exactly as the contract says.
        code: the stable reason; None exactly where ``supported`` is true.
        text: one line for a person: the limit, and what the request asked for.
        hint: what the person could change; empty where nothing helps.
    """

    supported: bool
    code: ReasonCode | None = None
    text: str = ""
    hint: str = ""

    def __post_init__(self) -> None:
        for field, value in (("text", self.text), ("hint", self.hint)):
            # Asked here first: verdicts are made for every candidate of every new request.
            if type(value) is not str:
                arguments.instance("Verdict", field, value, str, "a string")
        if self.supported != (self.code is None):
            raise ValueError(
                f"Verdict: a supported verdict has no code and a refusal needs one; got "
                f"supported={self.supported}, code={self.code}; use Verdict.yes or Verdict.no"
            )
        if not self.supported and not self.text:
            raise ValueError(
                "Verdict: text: a refusal needs a text that says which limit was met, got ''"
            )

    @classmethod
    def yes(cls, text: str = "") -> Verdict:
        """Return a verdict that accepts the request; ``text`` may say how it will run."""
        return cls(True, None, text)

    @classmethod
    def no(cls, code: ReasonCode, text: str, hint: str = "") -> Verdict:
        """Return a verdict that refuses the request for a stable reason."""
        # A plugin may write a code as its text.
        given: object = code
        if not isinstance(given, ReasonCode):
            code = ReasonCode(arguments.choice("Verdict", "code", given, map(str, ReasonCode)))
        return cls(False, code, text, hint)


class Claim(StrEnum):
    """What an implementation may promise of its results, for every request that it accepts.

    A claim changes no decision. It is what the conformance kit holds the implementation to, and
    what the device matrix says of it. "Same bits" is of outputs that the contract defines.

    A claim is never renamed, and its meaning is never weakened.
    """

    DETERMINISTIC = "deterministic"
    """Equal inputs give the same bits in every run, from any number of threads."""

    BATCH_INVARIANT = "batch-invariant"
    """One batch entry's results have the same bits alone, in any batch, at any place in it.

    Of sums over the batch, such as a captured tensor's gradient, it says nothing.
    """


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to compute what a contract means.

    Attributes:
        contract: ``op/version``.
        name: ``<plugin>.<implementation>``; the part before the first dot is the plugin's name.
        supports: pure and cheap; called with the request and the platform, never with tensors.
        load: returns the callable that the contract describes; may import and may be slow, and
            is called once, when the implementation is first chosen.
        before: names of implementations that are listed behind this one.
        after: names of implementations that are listed before this one. Both place it only
            where a policy enlists it: installing a plugin changes no choice.
        minor: the newest minor of the contract that ``supports`` knows, where that is newer than
            the one in the manifest. A request for something newer is refused without asking it.
        claims: what it promises beyond the contract, see :class:`torchyard.Claim`; each is proven
            by the conformance kit, and nothing else is claimed by silence.
        compilations: returns its kernels as they are compiled ahead of time, of each architecture
            that it supports; None where it has none. May import, and compiles nothing by itself.
    """

    contract: str
    name: str
    supports: Callable[[Any, Platform], Verdict]
    load: Callable[[], Callable[..., Any]]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    minor: int = 0
    claims: frozenset[str] = frozenset()
    compilations: Callable[[], Iterable[Compilation]] | None = None

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
        if self.compilations is not None:
            arguments.function(of, "compilations", self.compilations)
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
        needed = int(getattr(request, "contract_minor", 0))
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


def round_size(size: int) -> int:
    """Return a size as requests have it: exact up to 16, above that the next power of two.

    So a decision holds for all sizes of a bucket, and few requests stand for many calls.
    """
    return size if size <= 16 else 1 << (size - 1).bit_length()
