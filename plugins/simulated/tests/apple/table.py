"""Print what the probe and ``register`` say of a device that lacks operators, as tables.

``python -m plugins.simulated.tests.apple.table``
"""

from __future__ import annotations

import warnings

import torch

import torchyard_simulated
from plugins.mps.tests.operators.cases import CASES
from plugins.simulated.tests.apple.runs import run, worst
from plugins.simulated.tests.apple.stand_in import DEVICE, missing
from torchyard_mps.operators import ComputedOnCpuWarning, register
from torchyard_mps.operators.replacements import REPLACEMENTS


def main() -> None:
    """Register every operator of ours, and hold each to the CPU."""
    torchyard_simulated.load()
    warnings.simplefilter("ignore", ComputedOnCpuWarning)
    operators = [operator for one in REPLACEMENTS for operator in one.operators]
    with missing(*operators), register(DEVICE) as registration:
        errors = {name: worst(run(case, DEVICE), run(case, "cpu")) for name, case in CASES.items()}
    print("| operator | before | with ours | calls | worst error | of gradients |")
    print("| --- | --- | --- | --- | --- | --- |")
    for one in registration.replaced:
        assert one.after is not None
        found = [errors[name] for name, case in CASES.items() if case.program == one.operator]
        cells = [one.operator, one.before.support, f"{one.after.support}: {one.after.text}"]
        cells.append(str(len(found)))
        cells += [f"{max(part):.1g}" for part in zip(*found, strict=True)] or ["", ""]
        print(f"| {' | '.join(cells)} |")
    print(f"\ntorch {torch.__version__}, {len(CASES)} calls")


if __name__ == "__main__":
    main()
