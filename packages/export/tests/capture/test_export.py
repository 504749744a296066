"""What export takes, refuses, and leaves as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from packages.export.tests.models.small import Scorer, factory, scorer
from torchyard_export import Artifact, Dimension, ExportError, FindingKind, InputError, export

AXES = {"x": {0: "batch:1..8", 1: "time:1..16"}}


def _kinds(error: pytest.ExceptionInfo[ExportError]) -> set[FindingKind]:
    return {finding.kind for finding in error.value.findings}


def test_an_artifact_is_called_like_the_model(artifact: Artifact) -> None:
    model = scorer()
    for batch, time in ((1, 1), (8, 16), (3, 11)):
        x = torch.randn(batch, time, 4)
        got, wanted = artifact(x), model(x)
        assert list(got) == list(wanted)
        assert torch.equal(got["steps"], wanted["steps"])
        assert torch.equal(artifact(x=x)["mean"], wanted["mean"])


def test_every_form_is_compared_on_corners_and_drawn_sizes(artifact: Artifact) -> None:
    report = artifact.report
    assert [stage.name for stage in report.stages] == ["export", "decompositions", "pt2"]
    corners = [{"batch": b, "time": t} for b in (1, 8) for t in (1, 16)]
    assert all(corner in report.sizes for corner in corners)
    assert len(report.sizes) > len(corners) + 1
    assert all(stage.cases == len(report.sizes) for stage in report.stages)
    assert report.passed
    assert report.ruler == "float64"


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (torch.zeros(2, 5, 4, dtype=torch.float64), "input x: expected float32, got float64"),
        (torch.zeros(9, 5, 4), r"input x: axis 0: expected batch:1\.\.8, got 9"),
        (torch.zeros(2, 17, 4), r"input x: axis 1: expected time:1\.\.16, got 17"),
        (torch.zeros(2, 5, 3), "input x: axis 2: expected 4, got 3"),
        (torch.zeros(2, 5), r"input x: expected 3 dimensions, got shape \(2, 5\)"),
        (1.0, "input x: expected a tensor, got float"),
        ([torch.zeros(2, 5, 4)], "inputs: expected {x: leaf}, got"),
    ],
    ids="dtype batch time width rank number list".split(),
)
def test_a_call_outside_of_the_declared_ranges_is_refused(
    artifact: Artifact, x: Any, match: str
) -> None:
    with pytest.raises(InputError, match=match):
        artifact(x)


def test_a_number_that_the_program_holds_cannot_be_another(artifact: Artifact) -> None:
    made = export(scorer(), (torch.randn(2, 5, 4), 2.0), dynamic=AXES)
    x = torch.randn(2, 3, 4)
    assert torch.equal(made(x, 2.0)["steps"], scorer()(x, 2.0)["steps"])
    with pytest.raises(InputError, match=r"input scale: expected 2\.0, which the program holds"):
        made(x, 3.0)
    with pytest.raises(TypeError, match="too many positional"):
        artifact(x, 2.0)


class _Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 4)
        self.rnn = nn.LSTM(4, 3, bidirectional=True, batch_first=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(
            self.words(words), lengths, batch_first=True, enforce_sorted=False
        )
        output: Tensor = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]
        return output


def _tagger_call() -> dict[str, Any]:
    return {
        "args": (torch.randint(0, 11, (3, 6)), torch.tensor([6, 2, 4])),
        "dynamic": {"words": {0: "batch:1..4", 1: "time:1..9"}, "lengths": {0: "batch"}},
        "values": {"words": (0, 10), "lengths": (1, "time")},
    }


@pytest.mark.sweep
def test_a_packed_model_keeps_the_length_that_its_data_gives() -> None:
    torch.manual_seed(0)
    model = _Tagger().eval()
    made = export(model, **_tagger_call())
    words, lengths = torch.randint(0, 11, (4, 9)), torch.tensor([1, 5, 7, 2])
    assert made(words, lengths).shape == (4, 7, 6)
    assert torch.equal(made(words, lengths), model(words, lengths))


def test_export_changes_neither_the_model_nor_torch_nor_a_random_state() -> None:
    torch.manual_seed(0)
    model = _Tagger().eval()
    before = {name: (id(item), item.clone()) for name, item in model.named_parameters()}
    attributes = {name: list(vars(module)) for name, module in model.named_modules()}
    forwards = [kind.forward for kind in (nn.LSTM, nn.GRU, nn.RNN)]
    state = torch.get_rng_state()
    call = _tagger_call()
    rng = torch.get_rng_state()
    export(model, **call)
    assert not torch.equal(rng, state)
    assert torch.equal(torch.get_rng_state(), rng)
    assert [kind.forward for kind in (nn.LSTM, nn.GRU, nn.RNN)] == forwards
    for name, item in model.named_parameters():
        assert id(item) == before[name][0]
        assert torch.equal(item, before[name][1])
        assert item.grad is None
    assert {name: list(vars(module)) for name, module in model.named_modules()} == attributes


def test_values_that_the_model_cannot_take_are_found_with_its_line() -> None:
    call = _tagger_call()
    call["values"] = {"words": (0, 10), "lengths": (1, 9)}
    with pytest.raises(ExportError, match="the model itself refuses") as error:
        export(_Tagger().eval(), **call)
    assert _kinds(error) == {FindingKind.MODEL_REFUSES}
    assert error.value.findings[0].line.startswith("output: Tensor = pad_packed")


def test_inputs_can_be_drawn_by_the_user() -> None:
    seen = []

    def sample(sizes: dict[str, int], generator: torch.Generator) -> dict[str, Any]:
        seen.append(dict(sizes))
        return {"x": torch.randn(sizes["batch"], sizes["time"], 4, generator=generator)}

    made = export(scorer(), (torch.randn(2, 5, 4),), dynamic=AXES, sample=sample)
    assert tuple(seen) == made.report.sizes


def test_an_accepted_finding_is_kept_in_the_report() -> None:
    class Mutating(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.add_(1) * 2

    model, x = Mutating().eval(), torch.randn(3)
    with pytest.raises(ExportError) as error:
        export(model, (x,))
    assert _kinds(error) == {FindingKind.INPUT_MUTATION}
    made = export(model, (x,), accept=["input-mutation"])
    assert {finding.kind for finding in made.report.accepted} == {FindingKind.INPUT_MUTATION}


def test_one_name_for_two_sizes_is_one_dimension_and_two_names_are_two() -> None:
    class Sum(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a + b

    pair = (torch.randn(4), torch.randn(4))
    made = export(Sum().eval(), pair, dynamic={"a": {0: "n:2..9"}, "b": {0: "n"}})
    with pytest.raises(InputError, match=r"axis 0: expected n = 3 as in a\[0\], got 4"):
        made(torch.zeros(3), torch.zeros(4))
    with pytest.raises(ExportError) as error:
        export(Sum().eval(), pair, dynamic={"a": {0: "n:2..9"}, "b": {0: "m:2..9"}})
    assert error.value.findings


def test_a_range_that_the_code_narrows_is_found_with_its_line() -> None:
    class Narrow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[0] > 4:
                return x * 2
            return x

    with pytest.raises(ExportError) as error:
        export(Narrow().eval(), (torch.randn(7),), dynamic={"x": {0: "n:1..9"}})
    assert _kinds(error) == {FindingKind.NARROWED_DIMENSION}
    assert error.value.findings[0].line == "if x.shape[0] > 4:"


def test_a_target_that_nobody_offers_is_refused() -> None:
    call = factory()
    with pytest.raises(
        ExportError, match=r"nothing: expected one of .*onnx.*pt2; got 'nothing'"
    ) as error:
        export(**call, targets=["nothing"])
    assert _kinds(error) == {FindingKind.TARGET_REFUSES}


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"dynamic": {"y": {}}}, ValueError, r"expected names of arguments \(x\), got 'y'"),
        ({"dynamic": {"x": {3: "n"}}}, ValueError, "expected axes of a tensor with 3 dimensions"),
        ({"dynamic": {"x": {0: "n..3"}}}, ValueError, "expected a name, 'name:least..most'"),
        ({"dynamic": {"x": {0: 3}}}, TypeError, "expected a name or a Dimension"),
        ({"dynamic": {"x": ["n"]}}, TypeError, "expected a dict axis -> dimension"),
        ({"dynamic": {"x": {0: "n:1..3", 1: "n:1..4"}}}, ValueError, "differs from n:1..3"),
        ({"values": {"y": (0, 1)}}, ValueError, r"values: expected tensors \(x\), got 'y'"),
        ({"values": {"x": (0, "n")}}, ValueError, "no dimension is named 'n'"),
        ({"accept": ["everything"]}, ValueError, "accept: expected kinds of findings"),
        ({"kwargs": {"nothing": 1}}, TypeError, "args: expected a call of Scorer"),
        ({"args": (object(),)}, TypeError, "expected tensors and plain numbers"),
    ],
)
def test_an_argument_that_is_not_understood_is_refused(
    change: dict[str, Any], error: type[Exception], match: str
) -> None:
    call: dict[str, Any] = {"model": scorer(), "args": (torch.randn(2, 5, 4),), **change}
    with pytest.raises(error, match=match):
        export(**call)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("a b",), "expected an identifier"),
        (("n", 0), "min: expected an int of at least 1"),
        (("n", 3, 3), "max: expected more than min"),
    ],
)
def test_a_dimension_has_a_name_and_a_range(words: tuple[Any, ...], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Dimension(*words)


def test_keyword_arguments_of_any_name_are_refused() -> None:
    class Loose(nn.Module):
        def forward(self, x: Tensor, **more: Tensor) -> Tensor:
            return x

    with pytest.raises(TypeError, match=r"takes \*\*more"):
        export(Loose().eval(), (torch.zeros(1),), {"y": torch.zeros(1)})


def test_a_model_in_training_mode_is_refused() -> None:
    model = copy.deepcopy(scorer()).train()
    assert isinstance(model, Scorer)
    with pytest.raises(ExportError) as error:
        export(model, (torch.randn(2, 5, 4),))
    assert _kinds(error) == {FindingKind.TRAINING_BEHAVIOUR}
