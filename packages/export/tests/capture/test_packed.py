"""Packed sequences go in and out as they are, and are a padded tensor and lengths inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

from packages.export.tests.artifact.test_artifact import _forged
from torchyard_export import (
    Artifact,
    ArtifactError,
    ExportError,
    FindingKind,
    InputError,
    export,
    load,
)
from torchyard_export._artifact.manifest import GOLDEN
from torchyard_export._tree import flatten

AXES = {0: "time:1..20", 1: "batch:1..6"}


def _like(packed: PackedSequence, data: Tensor) -> PackedSequence:
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


class Labels(nn.Module):
    """Layers on the data of packed sequences, and a recurrent one between them."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(4, 6)
        self.rnn = nn.LSTM(6, 5, 2, bidirectional=True)
        self.labels = nn.Linear(10, 3)

    def forward(self, x: PackedSequence, more: dict[str, Any] | None = None) -> dict[str, Any]:
        found, final = self.rnn(_like(x, torch.relu(self.into(x.data))))
        return {"labels": _like(found, self.labels(found.data)), "final": final}


def sequences(*lengths: int, enforce_sorted: bool = False) -> PackedSequence:
    """Return sequences of four features, packed."""
    drawn = [torch.randn(length, 4) for length in lengths]
    return pack_sequence(drawn, enforce_sorted=enforce_sorted)


@pytest.fixture(scope="module")
def model() -> Labels:
    """Return a model that takes and gives packed sequences."""
    torch.manual_seed(0)
    return Labels().eval()


@pytest.fixture(scope="module")
def labels(model: Labels) -> Artifact:
    """Return it exported."""
    return export(model, (sequences(3, 7, 5),), dynamic={"x": AXES}, trials=1)


def _close(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert torch.equal(got["labels"].batch_sizes, wanted["labels"].batch_sizes)
    for (_, left), (_, right) in zip(flatten(got), flatten(wanted), strict=True):
        torch.testing.assert_close(left, right)
    torch.testing.assert_close(got["labels"].data, wanted["labels"].data)


@pytest.mark.sweep
@settings(max_examples=30)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.booleans())
def test_packed_sequences_of_any_lengths_go_in_and_out(
    labels: Artifact, model: Labels, lengths: list[int], ordered: bool
) -> None:
    if ordered:
        lengths = sorted(lengths, reverse=True)
    x = sequences(*lengths, enforce_sorted=ordered)
    with torch.no_grad():
        _close(labels(x), model(x))


def test_the_manifest_has_data_and_lengths_by_name(labels: Artifact) -> None:
    leaves = [(leaf.name, leaf.dtype, leaf.shape) for leaf in labels.manifest.inputs]
    assert leaves == [
        ("x.data", "float32", ("time", "batch", 4)),
        ("x.lengths", "int64", ("batch",)),
    ]
    assert labels.manifest.outputs[0].name == "labels.data"
    # What is drawn has the time that it is said to have.
    for case in labels.golden():
        assert len(case.arguments["x"].batch_sizes) == case.sizes["time"]
        assert int(case.arguments["x"].batch_sizes[0]) == case.sizes["batch"]


def test_a_file_takes_and_gives_them_too(labels: Artifact, model: Labels, tmp_path: Path) -> None:
    loaded = load(labels.save(tmp_path / "a.tya"))
    assert loaded.verify().passed
    x = sequences(2, 9, 9, 4)
    with torch.no_grad():
        _close(loaded(x), model(x))


# The compilers, and torch's exporter, take a while.
@pytest.mark.sweep
@pytest.mark.parametrize("target", ["aotinductor_native", "onnx"])
def test_every_target_takes_and_gives_them(target: str, model: Labels) -> None:
    made = export(model, (sequences(3, 7),), dynamic={"x": AXES}, targets=[target], trials=1)
    x = sequences(2, 9, 9, 4)
    with torch.no_grad():
        _close(made(x), model(x))


def test_a_call_outside_of_the_declared_ranges_is_refused(labels: Artifact) -> None:
    with pytest.raises(InputError, match=r"input x\.data: axis 0: expected time:1\.\.20, got 21"):
        labels(sequences(3, 21))
    with pytest.raises(InputError, match=r"inputs: expected {x: PackedSequence}, got {x: leaf}"):
        labels(torch.randn(5, 2, 4))


class Given(nn.Module):
    """Calls a function on a packed sequence that it makes."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 3)
        self.function = function

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return self.function(self.rnn(packed)[0])


def _given(function: Any) -> Artifact:
    return export(
        *(Given(function).eval(), (torch.randn(5, 2, 4), torch.tensor([5, 2]))),
        dynamic={"x": {0: "time:1..9", 1: "batch:1..4"}, "lengths": {0: "batch"}},
        values={"lengths": (1, "time")},
        trials=1,
    )


def test_what_is_packed_inside_goes_out_packed() -> None:
    made = _given(lambda packed: [packed])
    x, lengths = torch.randn(8, 3, 4), torch.tensor([2, 6, 1])
    (got,) = made(x, lengths)
    assert isinstance(got, PackedSequence)
    assert got.batch_sizes.tolist() == [3, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("function", "kind", "match"),
    [
        (lambda packed: packed.data, FindingKind.WRONG_RESULT, "expected shape"),
        (lambda packed: packed.data.mean(), FindingKind.WRONG_RESULT, "from float64"),
        (
            lambda packed: PackedSequence(packed.data, packed.batch_sizes.clone()),
            FindingKind.NOT_TRACEABLE,
            "pass batch_sizes of the packed sequence on as they are",
        ),
    ],
    ids=["rows", "a mean of rows", "own batch_sizes"],
)
def test_what_depends_on_rows_of_packed_data_is_refused(
    function: Any, kind: FindingKind, match: str
) -> None:
    with pytest.raises(ExportError, match=match) as error:
        _given(function)
    assert error.value.findings[0].kind is kind


class Changing(nn.Module):
    """Changes what it is given."""

    def forward(self, x: PackedSequence) -> PackedSequence:
        x.data.mul_(2)
        return x


def test_a_change_of_packed_data_in_place_is_seen() -> None:
    with pytest.raises(ExportError, match="forward changes input x in place") as error:
        export(Changing().eval(), (sequences(3, 2),))
    assert error.value.findings[0].kind is FindingKind.INPUT_MUTATION
    assert error.value.findings[0].line == "x.data.mul_(2)"


@pytest.mark.parametrize("lengths", [[0, 3, 7], [8, 3, 7], [7, 3], [-1, 7, 2], [1 << 62, 1, 1]])
def test_lengths_that_no_sequence_has_are_refused_in_a_file(
    labels: Artifact, tmp_path: Path, lengths: list[int]
) -> None:
    data = labels.to_bytes()
    tensors = safetensors.torch.load(labels._members[GOLDEN])
    tensors["0.in.0"] = torch.zeros(7, 3, 4)
    tensors["0.in.1"] = torch.tensor(lengths)
    path = tmp_path / "a.tya"
    path.write_bytes(_forged(data, GOLDEN, safetensors.torch.save(tensors)))
    with pytest.raises(ArtifactError, match="golden calls: ValueError: structure: a packed"):
        load(path).verify()


@pytest.mark.sweep
def test_one_target_leaves_nothing_behind_for_another(model: Labels) -> None:
    targets = ["onnx", "aotinductor_native"]
    made = export(model, (sequences(3, 7),), dynamic={"x": AXES}, targets=targets, trials=1)
    assert made.report.passed
