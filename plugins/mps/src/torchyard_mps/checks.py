"""What ``torchyard doctor`` shows of an Apple GPU: memory, and operators that users miss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from torchyard import Check, CheckStatus, hookimpl
from torchyard_mps._family import DEVICE

if TYPE_CHECKING:
    from torchyard_mps.operators import Outcome

__all__ = ["memory_check", "operator_checks", "torchyard_checks"]

# Share of the memory that torch may use from which a process should give some back.
_MUCH: Final = 0.8


@hookimpl
def torchyard_checks() -> Sequence[Check]:
    """Try operators on the GPU; imports torch."""
    import torch

    if not torch.backends.mps.is_available():
        text = "no operator was tried: torch finds no GPU that Metal drives"
        return [Check("operators on mps", CheckStatus.UNVERIFIED, text)]
    from torchyard_mps.operators import probe

    memory = torch.mps.driver_allocated_memory(), torch.mps.recommended_max_memory()
    return [memory_check(*memory), *operator_checks(probe(DEVICE))]


def operator_checks(outcomes: Sequence[Outcome]) -> list[Check]:
    """Return what was tried as checks: a line for all, and one for each that is not native."""
    from torchyard_mps.operators import Support

    counts = Counter(outcome.support for outcome in outcomes)
    text = ", ".join(f"{counts[support]} {support}" for support in Support if counts[support])
    wrong = counts[Support.WRONG] > 0
    whole = Check("operators on mps", CheckStatus.FAIL if wrong else CheckStatus.PASS, text)
    return [whole, *map(_check, (one for one in outcomes if one.support is not Support.NATIVE))]


def _check(outcome: Outcome) -> Check:
    from torchyard_mps.operators import Support
    from torchyard_mps.operators.replacements import REPLACEMENTS

    status, hint = CheckStatus.WARN, ""
    if outcome.support is Support.OURS:
        status = CheckStatus.PASS
    elif outcome.support is Support.WRONG:
        status, hint = CheckStatus.FAIL, "compute it on the CPU: tensor.cpu()"
    elif outcome.support in (Support.MISSING, Support.FAILS):
        hint = "compute it on the CPU, or set PYTORCH_ENABLE_MPS_FALLBACK=1"
    if status is not CheckStatus.PASS:
        for one in REPLACEMENTS:
            # What falls to the CPU is no better for being computed there by ours.
            if one.program == outcome.operator and (one.kernels or hint):
                where = "on the device" if one.kernels else "on the CPU, with a warning"
                hint = f"torchyard_mps.operators.register() has it computed {where}"
    cost = f", {outcome.ratio:.0f} times the CPU's time" if outcome.ratio else ""
    text = f"{outcome.support}{cost}: {outcome.text}"
    return Check(outcome.operator, status, text, hint)


def memory_check(used: int, most: int) -> Check:
    """Return how much of the memory that torch may use it holds, in bytes, as a check."""
    text = f"torch holds {used / 2**30:.1f} GiB of {most / 2**30:.1f} GiB that it should use"
    if used > _MUCH * most:
        hint = "torch.mps.empty_cache() gives back what no tensor uses"
        return Check("memory of mps", CheckStatus.WARN, text, hint)
    return Check("memory of mps", CheckStatus.PASS, text)
