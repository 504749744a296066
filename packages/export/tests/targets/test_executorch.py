"""ExecuTorch programs compute what the model does up to the greatest sizes, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from packages.export.tests.models.recurrent import Cell
from packages.export.tests.models.small import factory, scorer
from packages.export.tests.programs.matrix import ours
from torchyard_export import ExportError, FindingKind, export, load
from torchyard_export.contract import TargetError
from torchyard_export.targets.executorch import ExecuTorch

_TARGET = ("executorch",)
_CELLS = (
    Cell("LSTM", 2, True, False, True, True, False, "both"),
    Cell("GRU", 2, True, True, False, True, False, "both"),
    Cell("RNN-relu", 1, True, False, False, False, False, "batch"),
    Cell("RNN-tanh", 1, False, True, False, False, False, "time"),
)


def test_a_program_takes_every_size_up_to_the_greatest(tmp_path: Path) -> None:
    made = export(**factory(), targets=["executorch"])
    assert {"batch": 8, "time": 16} in [*made.report.sizes]
    loaded = load(made.save(tmp_path / "a.tya"))
    x = torch.randn(8, 16, 4)[:, ::2]
    with torch.no_grad():
        wanted = scorer()(x)
    assert {name: item.shape for name, item in loaded(x).items()} == {
        name: item.shape for name, item in wanted.items()
    }
    torch.testing.assert_close(loaded(x), wanted)
    assert loaded.verify().passed
    assert "executorch" in loaded.manifest.versions


def test_a_number_stays_what_it_was() -> None:
    x = torch.randn(2, 5, 4)
    made = export(scorer(), (x, 2.0), targets=["executorch"])
    with torch.no_grad():
        torch.testing.assert_close(made(x, 2.0), scorer()(x, 2.0))


@pytest.mark.sweep
@pytest.mark.parametrize("cell", _CELLS, ids=str)
def test_a_recurrent_layer_is_a_loop(cell: Cell) -> None:
    forms = ("export", "decompositions", "saved", "executorch")
    assert ours(cell, _TARGET) == dict.fromkeys(forms, "passed")


class _Sorted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 4, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        found, state = self.rnn(pack_padded_sequence(x, lengths))
        return pad_packed_sequence(found, total_length=x.shape[0])[0], state


@pytest.mark.sweep
def test_sequences_that_come_sorted_keep_their_lengths() -> None:
    torch.manual_seed(0)
    model = _Sorted().eval()

    def draw(sizes: Any, generator: torch.Generator) -> dict[str, Tensor]:
        lengths = torch.randint(1, sizes["time"] + 1, (3,), generator=generator)
        x = torch.randn(sizes["time"], 3, 3, generator=generator)
        return {"x": x, "lengths": lengths.sort(descending=True).values}

    made = export(
        *(model, (torch.randn(7, 3, 3), torch.tensor([7, 4, 2]))),
        dynamic={"x": {0: "time:1..9"}},
        sample=draw,
        targets=["executorch"],
    )
    assert made.report.passed


def _refused(model: nn.Module, args: Any, **more: Any) -> str:
    with pytest.raises(ExportError) as error:
        export(model, args, targets=["executorch"], **more)
    (finding,) = error.value.findings
    assert finding.kind is FindingKind.TARGET_REFUSES
    return finding.text


def test_a_dimension_without_a_greatest_size_is_refused() -> None:
    text = _refused(scorer(), (torch.randn(2, 5, 4),), dynamic={"x": {1: "time"}})
    assert "x[1]: expected a greatest size, for which ExecuTorch plans its memory" in text


@pytest.mark.sweep
def test_an_operator_that_the_runtime_lacks_is_named() -> None:
    found = ours(Cell("GRU", 1, False, False, False, False, True, "batch"), _TARGET)
    assert (
        "expected operators of ExecuTorch's runtime, got aten::sort.values" in found["executorch"]
    )


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"model\.pte: expected a program"):
        ExecuTorch().load({"model.pte": b"\0" * 64}, tmp_path)
