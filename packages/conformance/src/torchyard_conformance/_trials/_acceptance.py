"""How many requests an implementation accepts, by the codes of its verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torchyard import ReasonCode, Verdict
from torchyard_conformance._outcome import Unverified, Violated

__all__ = ["accepts_some"]


def accepts_some(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """Count what is accepted; nothing at all would make every other law empty.

    Raises:
        Violated: none of the requests is accepted.
        Unverified: none is, and a library is missing that some of them need: what it accepts once
            that is installed is not known.
    """
    codes: Counter[str] = Counter()
    missing: Verdict | None = None
    for verdict in verdicts:
        codes["accepted" if verdict.supported else str(verdict.code)] += 1
        if verdict.code == ReasonCode.DEPENDENCY:
            missing = missing or verdict
    if not codes["accepted"] and missing is not None:
        raise Unverified(" ".join(filter(None, (f"{missing.text}.", missing.hint))))
    if not codes["accepted"]:
        raise Violated(f"refuses every request of the grid: {dict(codes)}")
    return {name: float(count) for name, count in sorted(codes.items())}
