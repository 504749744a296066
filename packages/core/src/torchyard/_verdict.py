"""What an implementation answers when asked whether it can serve a request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torchyard import arguments


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
        for field in ("text", "hint"):
            arguments.instance("Verdict", field, getattr(self, field), str, "a string")
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
