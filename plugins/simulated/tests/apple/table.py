"""Print what the probe says of the device that plays ``mps``, and how far ours is from the CPU.

``python -m plugins.simulated.tests.apple.table``
"""

from __future__ import annotations

import warnings

import torch

import torchyard_simulated
from plugins.mps.tests.operators.cases import CASES
from plugins.simulated.tests.apple.runs import run, worst
from plugins.simulated.tests.apple.stand_in import DEVICE, missing
from plugins.simulated.tests.apple.torch_list import absent
from torchyard_mps.operators import ComputedOnCpuWarning, Support, probe, register
from torchyard_mps.operators.replacements import REPLACEMENTS


def main() -> None:
    """Probe a device that has what torch has for Apple GPUs, then one that has none of ours."""
    torchyard_simulated.load()
    warnings.simplefilter("ignore", ComputedOnCpuWarning)
    print(f"torch {torch.__version__}\n")
    with missing(*absent()):
        before = {one.operator: one for one in probe(DEVICE)}
        with register(DEVICE) as registration:
            after = {one.operator: one for one in probe(DEVICE)}
    kernels = {one.operator: one.kernels for one in registration.replaced if one.registered}
    lacking = [one for one in before.values() if one.support is not Support.NATIVE]
    _print(
        ("operator", "torch's list", "after register()", "kernels of ours"),
        *(
            (
                one.operator,
                one.support,
                after[one.operator].support,
                ", ".join(kernels.get(one.operator, ())),
            )
            for one in lacking
        ),
    )
    print(f"\n{len(before) - len(lacking)} of {len(before)} are native.\n")
    operators = [operator for one in REPLACEMENTS for operator in one.operators]
    errors: dict[str, list[tuple[float, float]]] = {one.program: [] for one in REPLACEMENTS}
    with missing(*operators), register(DEVICE):
        for case in CASES.values():
            errors[case.program].append(worst(run(case, DEVICE), run(case, "cpu")))
    _print(
        ("operator", "computed", "calls", "worst error", "of gradients"),
        *(
            (
                one.program,
                "on the device" if one.kernels else "on the CPU",
                len(found),
                *(f"{max(part):.1g}" for part in zip(*found, strict=True)),
            )
            for one in REPLACEMENTS
            if (found := errors[one.program])
        ),
    )


def _print(heading: tuple[str, ...], *rows: tuple[object, ...]) -> None:
    """Print a table of Markdown."""
    for row in (heading, ("---",) * len(heading), *rows):
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
