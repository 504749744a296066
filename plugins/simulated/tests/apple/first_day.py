"""Print a session of the first day, for docs/plugins/mps.md, of a device in place of ``mps``.

``python -m plugins.simulated.tests.apple.first_day``
"""

from __future__ import annotations

import re
import warnings

import torch
from click.testing import CliRunner

import torchyard_mps
import torchyard_simulated
from plugins.mps.tests.emulated import emulated
from plugins.simulated.tests.apple.stand_in import DEVICE, plays_mps
from torchyard.cli._main import cli
from torchyard_mps import IndexRangeError
from torchyard_mps.operators import probe, register


def main() -> None:
    """Run doctor, register what is missing, call an operator, and make a mistake."""
    torchyard_simulated.load()
    with plays_mps():
        _doctor()
        print(">>> registered = operators.register()\n>>> print(registered)")
        with register(DEVICE) as registration:
            print(registration)
            print('>>> torch.linalg.svdvals(torch.eye(3, device="mps"))')
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                values = torch.linalg.svdvals(torch.eye(3, device=DEVICE))
            print(*(f"{one.category.__name__}: {one.message}" for one in said), values, sep="\n")
            print(">>> for one in operators.probe('mps'):")
            print("...     print(f'{one.operator}: {one.support}: {one.text}')")
            print(
                *(f"{one.operator}: {one.support}: {one.text}" for one in probe(DEVICE)), sep="\n"
            )
    table = torch.zeros(3, 4, device=DEVICE)
    try:
        with emulated(), torchyard_mps.checked():
            table.index_select(0, torch.tensor([7], device=DEVICE))
    except IndexRangeError as error:
        print(f"IndexRangeError: {error}")


def _doctor() -> None:
    """Print what doctor says of the plugin's checks, and what would compute a call on an M3."""
    print("$ torchyard doctor")
    output = CliRunner(env={"COLUMNS": "150"}).invoke(cli, ["doctor"]).output
    found = re.findall(r"^ \w+ +mps: .*\n(?: {20,}.*\n)*", output, re.MULTILINE)
    print("".join(re.sub(r" +$", "", one, flags=re.MULTILINE) for one in found))
    words = ["explain", "topk", "--platform", "m3"]
    print("$ torchyard", *words)
    print(CliRunner(env={"COLUMNS": "150"}).invoke(cli, words).output)


if __name__ == "__main__":
    main()
