"""Decisions for requests of a toy contract, on a machine written by hand."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard import Decision, Implementation, Platform, Policy, ReasonCode, Verdict, decide

__all__ = ["MACHINE", "NO", "YES", "decide_toys", "offer", "outcomes"]

YES = Verdict.yes()
NO = Verdict.no(ReasonCode.DTYPE, "float32 only")
MACHINE = Platform("Linux", "x86_64", frozenset({"avx2"}), 4, "3.11", None, frozenset({"cpu"}))


@dataclass(frozen=True, slots=True)
class Ask:
    device: str = "cpu"
    size: int = 1

    def bucket(self) -> str:
        return self.device


def offer(
    name: str,
    verdict: Verdict = YES,
    *,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
) -> Implementation:
    return Implementation(
        "toy/1", name, lambda request, platform: verdict, lambda: print, before, after
    )


def decide_toys(*offers: Implementation, order: tuple[str, ...], **policy: object) -> Decision:
    absent = policy.pop("absent", ())
    return decide(
        "toy/1",
        Ask(),
        MACHINE,
        offers,
        order,
        policy=Policy(**policy),  # type: ignore[arg-type]
        absent=absent,  # type: ignore[arg-type]
    )


def outcomes(decision: Decision) -> dict[str, str]:
    return {candidate.name: str(candidate.outcome) for candidate in decision.trace}
