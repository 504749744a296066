"""A program that would run code of its author's while it is loaded is refused before that."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import torch

from packages.export.tests.models.small import scorer
from torchyard_export import ArtifactError
from torchyard_export._artifact.program import load_program, save_program

_MODEL = "program/models/model.json"
ran: list[str] = []


def _touch(word: str) -> dict[str, Any]:
    ran.append(word)
    return {}


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return _touch, ("pickle",)


def _program() -> torch.export.ExportedProgram:
    time = torch.export.Dim("time", min=2, max=9)
    shapes = {"x": {1: time}, "scale": None}
    return torch.export.export(scorer(), (torch.randn(2, 5, 4), 1.0), dynamic_shapes=shapes)


@pytest.fixture(scope="module")
def members() -> dict[str, bytes]:
    """Return the members of a good program, with the folder that they are in."""
    with zipfile.ZipFile(io.BytesIO(save_program(_program()))) as archive:
        found = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    return {f"program/{name.partition('/')[2]}": content for name, content in found.items()}


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _edited(members: dict[str, bytes], change: Callable[[Any], None]) -> bytes:
    model = json.loads(members[_MODEL])
    change(model)
    return _zip({**members, _MODEL: json.dumps(model).encode()})


def test_a_good_program_loads_and_computes_the_same() -> None:
    loaded = load_program(save_program(_program()))
    x = torch.randn(2, 3, 4)
    assert torch.equal(loaded.module()(x, 1.0)["steps"], scorer()(x)["steps"])


def test_torch_itself_reads_what_we_save() -> None:
    loaded = torch.export.load(io.BytesIO(save_program(_program())))
    assert loaded.module()(torch.randn(2, 3, 4), 1.0)["steps"].shape == (2, 3, 3)


def test_pickled_samples_are_refused(members: dict[str, bytes]) -> None:
    evil = {**members, "program/data/sample_inputs/model.pt": pickle.dumps(_Evil())}
    with pytest.raises(
        ArtifactError, match="expected no sample inputs, which torch would unpickle"
    ):
        load_program(_zip(evil))
    assert not ran


def test_a_pickled_weight_is_refused(members: dict[str, bytes]) -> None:
    name = "program/data/weights/model_weights_config.json"
    config = json.loads(members[name])
    next(iter(config["config"].values()))["use_pickle"] = True
    with pytest.raises(ArtifactError, match="expected raw bytes, got a pickle"):
        load_program(_zip({**members, name: json.dumps(config).encode()}))


def test_a_constant_that_is_an_object_is_refused(members: dict[str, bytes]) -> None:
    name = "program/data/constants/model_constants_config.json"
    entry = {"path_name": "opaque_obj_0", "use_pickle": False}
    evil = {**members, name: json.dumps({"config": {"evil": entry}}).encode()}
    with pytest.raises(ArtifactError, match="expected a tensor, got 'opaque_obj_0'"):
        load_program(_zip(evil))
    evil["program/data/constants/opaque_obj_0"] = pickle.dumps(_Evil())
    with pytest.raises(ArtifactError, match="not a member of a program"):
        load_program(_zip(evil))
    assert not ran


def _all_expressions(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, dict):
        found = [data] if "expr_str" in data else []
        return found + [item for value in data.values() for item in _all_expressions(value)]
    if isinstance(data, list):
        return [item for value in data for item in _all_expressions(value)]
    return []


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getpid()",
        "print(1)",
        "(lambda: 1)()",
        "s77.__class__",
        "Symbol('s77', positive=__import__('os'))",
        "Symbol('x; y')",
        "[1][0]",
        "s1 if s2 else s3",
        7,
    ],
)
def test_a_size_that_is_more_than_arithmetic_is_refused(
    members: dict[str, bytes], text: object
) -> None:
    def change(model: Any) -> None:
        expressions = _all_expressions(model)
        assert expressions
        expressions[0]["expr_str"] = text

    with pytest.raises(ArtifactError, match="expected arithmetic on sizes"):
        load_program(_edited(members, change))


def test_torch_itself_evaluates_such_a_size(members: dict[str, bytes]) -> None:
    """The reason for the check: without it, the file's text runs."""

    def change(model: Any) -> None:
        path = f"__import__('builtins').setattr(__import__({__name__!r}), 'evaluated', 1)"
        for expression in _all_expressions(model):
            expression["expr_str"] = path.replace(repr(__name__), "'torch'")

    with contextlib.suppress(Exception):
        torch.export.load(io.BytesIO(_edited(members, change)))
    assert vars(torch).pop("evaluated") == 1


@pytest.mark.parametrize(
    "target",
    [
        "torch.hub.load",
        "torch.load",
        "torch.ops.load_library",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.add.Tensor.__class__",
        "torch.ops.evil.run.default",
        "torch.ops.higher_order.triton_kernel_wrapper_functional",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "math.__loader__",
        "#extension",
        7,
    ],
)
def test_a_node_that_calls_another_function_is_refused(
    members: dict[str, bytes], target: object
) -> None:
    def change(model: Any) -> None:
        model["graph_module"]["graph"]["nodes"][0]["target"] = target

    with pytest.raises(ArtifactError, match=r"operators|operator, got"):
        load_program(_edited(members, change))


def _injected(model: Any, place: str, text: str) -> None:
    graph = model["graph_module"]["graph"]
    if place == "guards":
        model["guards_code"] = [text]
    elif place == "input":
        _renamed(model, graph["inputs"][2]["as_tensor"]["name"], text)
    elif place == "operator":
        graph["nodes"][0]["inputs"][0]["arg"] = {"as_operator": "torch.hub.load"}
    else:
        calls = model["graph_module"]["module_call_graph"]
        calls[0]["signature"]["in_spec"] = text


def _renamed(data: Any, old: str, new: str) -> None:
    if isinstance(data, dict):
        for key in list(data):
            if data[key] == old:
                data[key] = new
            _renamed(data[key], old, new)
            if key == old:
                data[new] = data.pop(key)
    elif isinstance(data, list):
        for index, item in enumerate(data):
            if item == old:
                data[index] = new
            _renamed(item, old, new)


@pytest.mark.parametrize(
    ("place", "text", "match"),
    [
        ("input", "x=print(1)", "expected a name"),
        ("input", "x\n", "expected a name"),
        ("operator", "", "expected nodes that call operators"),
        ("tree", "[1, print(1)]", "in_spec: expected a name"),
    ],
)
def test_a_name_that_is_code_is_refused(
    members: dict[str, bytes], place: str, text: str, match: str
) -> None:
    with pytest.raises(ArtifactError, match=match):
        load_program(_edited(members, lambda model: _injected(model, place, text)))


def test_guards_of_a_file_are_not_executed(members: dict[str, bytes]) -> None:
    text = "__import__('builtins').setattr(__import__('torch'), 'guarded', 1)"
    loaded = load_program(_edited(members, lambda model: _injected(model, "guards", text)))
    assert loaded._guards_code == []
    loaded.module()(torch.randn(2, 3, 4), 1.0)
    assert not hasattr(torch, "guarded")


def test_no_json_no_zip_and_no_model_are_refused(members: dict[str, bytes]) -> None:
    with pytest.raises(ArtifactError, match=r"expected a \.pt2 file"):
        load_program(b"PK")
    with pytest.raises(ArtifactError, match="expected JSON"):
        load_program(_zip({**members, _MODEL: b"{"}))
    with pytest.raises(ArtifactError, match=r"expected a member 'models/model\.json'"):
        load_program(_zip({name: item for name, item in members.items() if name != _MODEL}))
