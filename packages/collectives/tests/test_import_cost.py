"""A plugin that imports a contract of this package does not pay for the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from torchyard_collectives._torch_compat import constant


@pytest.mark.sweep
def test_importing_the_contract_does_not_import_the_compiler() -> None:
    program = (
        "import sys, torch, warnings; before = list(warnings.filters)\n"
        "import torchyard_collectives.contract\n"
        "assert 'torch._dynamo' not in sys.modules and 'sympy' not in sys.modules\n"
        "assert warnings.filters == before\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_mark_is_the_one_that_torch_sets() -> None:
    def ours() -> int:
        return 1

    def torchs() -> int:
        return 1

    torch.compiler.assume_constant_result(torchs)  # type: ignore[no-untyped-call]
    assert vars(constant(ours)) == vars(torchs) != {}
