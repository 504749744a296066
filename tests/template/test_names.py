"""Any legal answer makes a project that holds together; an illegal one is named and explained."""

from __future__ import annotations

import ast
import io
import keyword
import os
import re
import string
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import copier
import pytest
import yaml  # type: ignore[import-untyped]  # copier brings it, without types
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

from tests.architecture.tree import PACKAGES, ROOT
from torchyard import Manifest
from torchyard._plugins.manifest import parse_manifest

_TEMPLATE = ROOT / "plugins" / "template"
_QUESTIONS = yaml.safe_load((_TEMPLATE / "copier.yml").read_text(encoding="utf-8"))
_SHAPES = ("implementation", "device")
_RUFF = str(Path(sys.executable).with_name("ruff"))
_TAKEN = set(_QUESTIONS["taken_devices"]["default"])

_INNER = string.ascii_lowercase + string.digits + "-_"
_PLUGINS = st.builds(
    lambda first, rest, last: first + rest + last,
    st.sampled_from(string.ascii_lowercase),
    st.text(_INNER, max_size=30),
    st.sampled_from(["", *string.ascii_lowercase, *string.digits]),
).filter(lambda name: name[-1] not in "-_" and name.replace("_", "-") not in _taken_plugins())
_DEVICES = st.builds(
    lambda first, rest: first + rest,
    st.sampled_from(string.ascii_lowercase),
    st.text(string.ascii_lowercase + "_", max_size=31),
).filter(lambda name: name not in _TAKEN and not keyword.iskeyword(name))
# Any script, and what a template, a shell or a TOML file might stumble over.
_LINES = st.text(
    st.one_of(
        st.sampled_from("{}%#'$`<>&|[]=,"), st.characters(exclude_categories=["C", "Zl", "Zp"])
    ),
    min_size=1,
    max_size=72,
).filter(lambda text: text == text.strip() and not set(text) & {'"', "\\"} and text[-1] != ".")


def _taken_plugins() -> set[str]:
    return set(_QUESTIONS["taken_plugins"]["default"])


@contextmanager
def _generated(**answers: str) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        copier.run_copy(str(_TEMPLATE), folder, data=answers, defaults=True, quiet=True)
        yield Path(folder)


def _checked(folder: Path, plugin: str) -> Manifest:
    """Hold a project's files against one another; return its manifest."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert Requirement(project["name"]).name == project["name"] == f"torchyard-{plugin}"
    [(name, value)] = project["entry-points"]["torchyard.plugins"].items()
    package, _, file = value.partition(":")
    assert name == plugin
    assert package.isidentifier()
    source = folder / "src" / package
    manifest = parse_manifest((source / file).read_text(encoding="utf-8"), expected_name=plugin)
    assert manifest.summary == project["description"]
    modules = {entry.module for entry in manifest.implements}
    modules |= {device.module for device in manifest.devices}
    modules |= {manifest.doctor} if manifest.doctor else set()
    for module in modules:
        assert (folder / "src" / Path(*module.split("."))).with_suffix(".py").is_file()
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert text.endswith("\n") or not text, path
        assert not text.endswith("\n\n"), path
        if path.suffix == ".py":
            ast.parse(text)
            assert all(len(line) <= 100 for line in text.splitlines()), path
            _importable(text, package, source)
    assert project["authors"][0]["name"] in (folder / "LICENSE").read_text(encoding="utf-8")
    return manifest


def _importable(text: str, package: str, source: Path) -> None:
    """Check that what a file imports of its own package is there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{package}."):
            assert (source / f"{str(node.module).partition('.')[2]}.py").is_file()


@pytest.mark.sweep
@settings(max_examples=15)
@given(
    plugin=_PLUGINS,
    device=_DEVICES,
    shape=st.sampled_from(_SHAPES),
    summary=_LINES,
    author=_LINES,
    license=st.sampled_from(_QUESTIONS["license"]["choices"]),
)
def test_legal_answers_make_a_project_that_holds_together(
    plugin: str, device: str, shape: str, summary: str, author: str, license: str
) -> None:
    with _generated(
        plugin=plugin, device=device, shape=shape, summary=summary, author=author, license=license
    ) as folder:
        manifest = _checked(folder, plugin)
        assert manifest.summary == summary
        assert [entry.devices for entry in manifest.implements] == [(device,)]
        assert [entry.name for entry in manifest.devices] == [device] * (shape == "device")
        assert (folder / "csrc").is_dir() == (shape == "device")
        assert (folder / "CMakeLists.txt").is_file() == (shape == "device")


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("plugin", ["a", "z9", "x-1_y--z", "class", "a" * 32])
def test_a_name_alone_is_enough_and_the_project_is_well_formed(shape: str, plugin: str) -> None:
    # A device is named after its plugin where that can be; torch.class nobody could write.
    device = {"device": "classy"} if plugin == "class" else {}
    with _generated(plugin=plugin, shape=shape, **device) as folder:
        _checked(folder, plugin)
        for arguments in (["check"], ["format", "--diff"]):
            command = [_RUFF, *arguments, "--no-cache"]
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"plugin": ""}, "plugin: expected lower-case letters"),
        ({"plugin": "Lattice"}, "plugin: expected lower-case letters"),
        ({"plugin": "9a"}, "plugin: expected lower-case letters"),
        ({"plugin": "a-"}, "plugin: expected lower-case letters"),
        ({"plugin": "a.b"}, "plugin: expected lower-case letters"),
        ({"plugin": "../a"}, "plugin: expected lower-case letters"),
        ({"plugin": "a\n"}, "plugin: expected lower-case letters"),
        ({"plugin": "a" * 33}, "plugin: expected at most 32 characters, got 33"),
        ({"plugin": "cpu"}, "plugin: cpu is torchyard's own"),
        ({"plugin": "context_parallel"}, "plugin: context_parallel is torchyard's own"),
        ({"plugin": "a", "device": "a1"}, "device: torch reads lower-case letters and '_'"),
        ({"plugin": "a", "device": ""}, "device: torch reads lower-case letters and '_'"),
        ({"plugin": "a", "device": "cuda"}, "device: cuda is a device that torch"),
        ({"plugin": "a", "device": "lambda"}, "device: lambda is a word of Python"),
        ({"plugin": "a", "device": "a" * 33}, "device: expected at most 32 characters"),
        ({"plugin": "a", "summary": 'the "best"'}, "summary: expected one line without"),
        ({"plugin": "a", "summary": "a\\b"}, "summary: expected one line without"),
        ({"plugin": "a", "summary": "a\nb"}, "summary: expected one line without"),
        ({"plugin": "a", "summary": "Fast."}, "summary: expected words without"),
        ({"plugin": "a", "summary": "a" * 73}, "summary: expected at most 72 characters, got 73"),
        ({"plugin": "a", "author": "a\nb"}, "author: expected one line"),
        ({"plugin": "a", "license": "GPL"}, "license"),
        ({"plugin": "a", "shape": "sphere"}, "shape"),
    ],
    ids=str,
)
def test_an_illegal_answer_is_named_and_explained(answers: dict[str, str], message: str) -> None:
    with (
        pytest.raises(ValueError, match=re.escape(message)),
        _generated(**{"shape": "device", **answers}),
    ):
        pass


@pytest.mark.sweep
@given(name=st.one_of(_PLUGINS, st.text(_INNER, min_size=1, max_size=33)))
@settings(max_examples=15)
def test_names_are_legal_where_the_manifests_and_the_installers_rules_meet(name: str) -> None:
    legal = re.fullmatch(r"[a-z]([a-z0-9_-]*[a-z0-9])?", name) is not None and len(name) <= 32
    legal = legal and name.replace("_", "-") not in _taken_plugins()
    try:
        with _generated(plugin=name):
            accepted = True
    except ValueError:
        accepted = False
    assert accepted == legal


def test_the_names_of_our_own_plugins_and_of_torchs_devices_are_taken() -> None:
    ours = {
        plugin
        for package in PACKAGES
        for plugin in package.project.get("entry-points", {}).get("torchyard.plugins", {})
    }
    assert len(ours) > 3
    assert ours == _taken_plugins()
    import torch

    with pytest.raises(RuntimeError, match="Expected one of") as caught:
        torch.device("nothing")
    known = re.search(r"Expected one of (.*) device type", str(caught.value))
    assert known is not None
    assert set(known[1].split(", ")) <= _TAKEN
    assert set(_QUESTIONS["keywords"]["default"]) == {
        word for word in keyword.kwlist if word.islower()
    }


@pytest.mark.sweep
def test_a_device_whose_name_torch_uses_for_something_else_says_so(tmp_path: Path) -> None:
    """Only the torch that is there knows these names; the questions do not."""
    names = {"add": "torch", "backward": "Tensor", "train": "Module", "leaf": "Tensor.is_leaf"}
    for name in names:
        answers = {"plugin": f"a-{name}", "device": name, "shape": "device"}
        copier.run_copy(str(_TEMPLATE), tmp_path / name, data=answers, defaults=True, quiet=True)
    program = "from importlib import import_module\n" + "".join(
        f"try:\n    import_module('torchyard_a_{name}').load()\n"
        "except RuntimeError as error:\n    print(error)\n"
        for name in names
    )
    path = os.pathsep.join(str(tmp_path / name / "src") for name in names)
    settings = {"PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    assert result.stdout.splitlines() == [
        f"{name}: the device is not loaded: its name means something else in {where}; give it "
        "another name"
        for name, where in names.items()
    ], result.stderr


def test_the_template_is_no_package_of_this_tree() -> None:
    assert "template" not in {package.folder.name for package in PACKAGES}
    assert list(_TEMPLATE.rglob("pyproject.toml.jinja"))


def test_no_template_file_is_left_unrendered() -> None:
    with _generated(plugin="lattice", shape="device") as folder:
        for path in folder.rglob("*"):
            assert "jinja" not in path.name
            assert "{{" not in path.name
            if path.suffix == ".py":
                source = io.StringIO(path.read_text(encoding="utf-8"))
                comments = [
                    token.string
                    for token in tokenize.generate_tokens(source.readline)
                    if token.type == tokenize.COMMENT
                ]
                assert not any("{%" in comment for comment in comments)
