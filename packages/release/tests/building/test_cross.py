"""Wheels of other platforms are compiled here: of their machine, and twice to the same bytes."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any

import pytest

from torchyard_release._artifacts._members import members_of
from torchyard_release._artifacts._promises import judge_promises
from torchyard_release._build._round import ROUNDS, Conditions, build_package
from torchyard_release._build._steps import BuildError
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._platform import platform_of
from torchyard_release._errors import ReleaseError

_PROJECT = """\
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"

[project]
name = "orchard-mill"
version = "1.4.0"

[tool.scikit-build]
wheel.py-api = "cp311"
"""
_CMAKE = """\
cmake_minimum_required(VERSION 3.26...4.4)
project(mill LANGUAGES C)
find_package(Python 3.11 REQUIRED COMPONENTS Development.SABIModule)
python_add_library(mill MODULE WITH_SOABI USE_SABI 3.11 mill.c)
install(TARGETS mill LIBRARY DESTINATION orchard_mill)
"""
_SOURCE = """\
#include <Python.h>

static PyObject *mill(PyObject *self, PyObject *apples) {
  (void)self;
  const long count = PyLong_AsLong(apples);
  if (count == -1 && PyErr_Occurred()) return NULL;
  return count < 0 ? PyErr_Format(PyExc_ValueError, "apples: expected some, got %ld", count)
                   : PyLong_FromLong(3 * count);
}

static PyMethodDef methods[] = {{"mill", mill, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "mill", NULL, 0, methods};

PyMODINIT_FUNC PyInit_mill(void) { return PyModule_Create(&module); }
"""
_LINUX = "cp311-abi3-manylinux_2_28_x86_64"
_ARM = "cp311-abi3-manylinux_2_28_aarch64"
_MACOS = "cp311-abi3-macosx_11_0_arm64"
_WINDOWS = "cp311-abi3-win_amd64"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a repository of one package with an extension module."""
    folder = tmp_path / "repository" / "mill"
    (folder / "src/orchard_mill").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PROJECT)
    (folder / "CMakeLists.txt").write_text(_CMAKE)
    (folder / "mill.c").write_text(_SOURCE)
    (folder / "src/orchard_mill/__init__.py").write_text('"""Flour."""\n')
    return folder.parent


def _package(*wheels: str) -> Package:
    return Package(
        name="orchard-mill",
        module="orchard_mill",
        folder=Path("mill"),  # type: ignore[arg-type]
        requires=(),
        torch="",
        hardware=(),
        wheels=wheels,
        contains=(),
        contains_on=(),
        budget=1_000_000,
        owner="ann",
        patch=None,
        reverse=False,
        version_files=(),
    )


def _build(
    source: Path, tmp_path: Path, *wheels: str, conditions: Conditions = ROUNDS[0]
) -> dict[str, Path]:
    name = conditions.name
    files = build_package(
        source,
        _package(*wheels),
        tmp_path / name / "out",
        tmp_path / name / "log.txt",
        conditions,
        1_580_608_800,
        isolated=False,
    )
    return {path.name: path for path in files}


def _library(wheel: Path) -> bytes:
    (found,) = (
        content
        for name, content in members_of(wheel).items()
        if name.endswith((".so", ".pyd", ".dll", ".dylib"))
    )
    return found


@pytest.mark.sweep
def test_each_wheel_holds_a_library_of_its_platform(source: Path, tmp_path: Path) -> None:
    wheels = (_LINUX, _ARM, _MACOS, _WINDOWS)
    files = _build(source, tmp_path, *wheels)
    assert set(files) == {
        "orchard_mill-1.4.0.tar.gz",
        *(f"orchard_mill-1.4.0-{tag}.whl" for tag in wheels),
    }
    libraries = {tag: _library(files[f"orchard_mill-1.4.0-{tag}.whl"]) for tag in wheels}
    # The machines' numbers in ELF, Mach-O and PE.
    for tag, machine in ((_LINUX, 62), (_ARM, 183)):
        assert libraries[tag][:4] == b"\x7fELF"
        assert struct.unpack_from("<H", libraries[tag], 18) == (machine,)
    assert struct.unpack_from("<II", libraries[_MACOS]) == (0xFEEDFACF, 0x0100000C)
    assert libraries[_WINDOWS][:2] == b"MZ"
    (header,) = struct.unpack_from("<I", libraries[_WINDOWS], 60)
    assert libraries[_WINDOWS][header : header + 6] == b"PE\0\0" + struct.pack("<H", 0x8664)
    for tag in wheels:
        path = files[f"orchard_mill-1.4.0-{tag}.whl"]
        (written,) = (text for name, text in members_of(path).items() if name.endswith("/WHEEL"))
        assert f"Tag: {tag}\n".encode() in written
        assert list(judge_promises(path)) == []


@pytest.mark.sweep
def test_two_rounds_make_the_same_bytes(source: Path, tmp_path: Path) -> None:
    rounds = [
        _build(source, tmp_path, _ARM, conditions=conditions)[f"orchard_mill-1.4.0-{_ARM}.whl"]
        for conditions in ROUNDS
    ]
    assert rounds[0].read_bytes() == rounds[1].read_bytes()


@pytest.mark.sweep
def test_a_compiler_that_fails_is_quoted(source: Path, tmp_path: Path) -> None:
    (source / "mill" / "mill.c").write_text("#error the press is broken\n")
    with pytest.raises(BuildError, match=r"orchard-mill: .*(?s:.*)the press is broken"):
        _build(source, tmp_path, _ARM)


def test_without_a_compiler_the_package_to_install_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def missing(name: str, *rest: Any) -> Any:
        return None if name == "ziglang" else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    with pytest.raises(ReleaseError, match=r"ziglang; pip install 'torchyard-release\[cross\]'"):
        _build(source, tmp_path, _ARM)


@pytest.mark.parametrize(
    ("tag", "target"),
    [
        ("py3-none-any", None),
        ("py3-none-linux_x86_64", None),
        (_ARM, "aarch64-linux-gnu.2.28"),
        ("cp312-cp312-macosx_10_13_x86_64", "x86_64-macos.10.13"),
        (_MACOS, "aarch64-macos.11.0"),
        ("py3-none-win_arm64", "aarch64-windows-gnu"),
    ],
)
def test_a_tag_names_what_is_compiled_for(tag: str, target: str | None) -> None:
    platform = platform_of(tag)
    assert (platform and platform.target) == target


@pytest.mark.parametrize("tag", ["py3-none-beos", "py3-none-manylinux1_x86_64", "py3-none-win32"])
def test_a_platform_without_a_compiler_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="a platform such as any, manylinux_2_28_x86_64"):
        platform_of(tag)
