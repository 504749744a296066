"""AOTInductor packages hold the op, for batches and lengths that they were not compiled at."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import torch

from torchyard_attention import create_block_mask, flex_attention

HEADS, LENGTH, HEAD_DIM = 2, 160, 16
LONGEST = 256

pytestmark = pytest.mark.skipif(
    shutil.which("c++") is None and shutil.which("g++") is None,
    reason="AOTInductor compiles C++, and there is no compiler",
)

_RUN = """
import sys, torch
{imports}
program = torch._inductor.aoti_load_package(sys.argv[1])
cases = torch.load(sys.argv[2])
torch.save([program(*case) for case in cases], sys.argv[3])
"""


def window(b, h, q, k):
    return (q >= k) & (q - k < 48)


class Biased(torch.nn.Module):
    """A score_mod with parameters, and a mask of the input's own length."""

    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.rand(HEADS))
        self.table = torch.nn.Parameter(torch.randn(2 * LONGEST))

    def forward(self, query, key, value):
        length = query.shape[2]
        mask = create_block_mask(window, None, None, length, length, device="cpu")

        def score_mod(score, b, h, q, k):
            return score + self.slopes[h] * (k - q) + self.table[q - k + LONGEST]

        return flex_attention(query, key, value, score_mod, block_mask=mask) + flex_attention(
            query, key, value
        )


def inputs(batch, length):
    return tuple(torch.randn(batch, HEADS, length, HEAD_DIM) for _ in range(3))


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return Biased()


@pytest.fixture(scope="module")
def package(module, tmp_path_factory):
    # A length is dynamic on one side of the mask's block size: torch takes one block as special.
    sizes = {0: torch.export.Dim("batch", max=64), 2: torch.export.Dim("length", min=129, max=256)}
    shapes = dict.fromkeys(("query", "key", "value"), sizes)
    with torch.no_grad():
        program = torch.export.export(module, inputs(2, LENGTH), dynamic_shapes=shapes)
        path = tmp_path_factory.mktemp("package") / "attention.pt2"
        return torch._inductor.aoti_compile_and_package(program, package_path=str(path))


def run_elsewhere(package, cases, folder, imports):
    torch.save(cases, folder / "cases.pt")
    return subprocess.run(
        [
            *(sys.executable, "-c", _RUN.format(imports=imports)),
            *(package, str(folder / "cases.pt"), str(folder / "results.pt")),
        ],
        capture_output=True,
        text=True,
    )


@pytest.mark.sweep
def test_a_package_runs_in_another_process_at_other_sizes(module, package, tmp_path):
    cases = [inputs(2, LENGTH), inputs(5, 131), inputs(1, LONGEST)]
    finished = run_elsewhere(package, cases, tmp_path, "import torchyard_attention")
    assert finished.returncode == 0, finished.stderr

    for result, case in zip(torch.load(tmp_path / "results.pt"), cases, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(result, module(*case))


@pytest.mark.sweep
def test_a_package_without_the_import_names_the_op_that_it_lacks(package, tmp_path):
    finished = run_elsewhere(package, [inputs(2, LENGTH)], tmp_path, "")

    assert finished.returncode != 0
    assert "torchyard_attention::" in finished.stderr
