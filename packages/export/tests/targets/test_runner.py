"""The C++ runner is built from what is written, and says right and wrong as Python does."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zipfile
from importlib.resources import files
from io import BytesIO
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from packages.export.tests.artifact.test_artifact import keys
from packages.export.tests.models.recurrent import Cell, axes_of, prepared
from torchyard_export import Artifact, ArtifactError, export, load, write_runner
from torchyard_export._artifact.manifest import MANIFEST, Manifest
from torchyard_export._cli import command

_FILES = sorted(
    "CMakeLists.txt calls.txt golden.cpp golden.h main.cpp model.pt2 tensors.bin".split()
)
_PACKED = Cell("LSTM", 2, True, True, False, True, True, "both")


def _compiled(artifact: Artifact, calls: str, **changes: object) -> Artifact:
    """Return an artifact with a package that says which operators it calls, and holds no code."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model/data/aotinductor/model/a.wrapper.json", calls)
    members = dict(artifact._members)
    manifest = Manifest.read(members[MANIFEST])
    manifest.targets["native"] = {"implementation": "export.aotinductor", "native": True}
    said = manifest.to_bytes()
    for name, value in changes.items():
        said = re.sub(rf'"{name}": "\w+"'.encode(), f'"{name}": "{value}"'.encode(), said, count=1)
    members |= {MANIFEST: said, "targets/native/model.pt2": buffer.getvalue()}
    return Artifact(members, made=True)


def _call(target: str) -> str:
    return f'{{"nodes": [{{"name": "buf0", "node": {{"target": "{target}"}}}}]}}'


def test_a_program_without_recurrent_layers_has_no_source_of_them(
    artifact: Artifact, tmp_path: Path
) -> None:
    written = write_runner(_compiled(artifact, '{"nodes": []}'), tmp_path / "a" / "b")
    assert [path.name for path in written] == _FILES
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {*_FILES}
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(written)
    called = _compiled(artifact, _call("torchyard_export::gru"))
    more = write_runner(called, tmp_path / "c")
    assert {path.name for path in more} - {path.name for path in written} == {"recurrent.cpp"}


def test_golden_calls_are_what_the_artifact_has(artifact: Artifact, tmp_path: Path) -> None:
    write_runner(_compiled(artifact, '{"nodes": []}'), tmp_path)
    lines = (tmp_path / "calls.txt").read_text().splitlines()
    data = (tmp_path / "tensors.bin").read_bytes()
    cases = artifact.golden()
    assert sum(line.startswith("call ") for line in lines) == len(cases) > 3
    outs = [line.split() for line in lines if line.startswith("out ")]
    assert len(outs) == 2 * len(cases)
    wanted = [
        (exact, bound)
        for case in cases
        for exact, bound in zip(case.exact, case.bounds, strict=True)
    ]
    for words, (exact, bound) in zip(outs, wanted, strict=True):
        assert words[1] == "float32"
        assert float(words[2]) == bound > 0
        assert words[3] == "float64"
        start, length = int(words[4]), int(words[5])
        found = struct.unpack(f"<{length // 8}d", data[start : start + length])
        assert list(found) == exact.flatten().tolist()


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_the_operators_in_cpp_are_those_in_python(name: str) -> None:
    text = (files("torchyard_export") / "runner" / "recurrent.cpp").read_text()
    text = re.sub(r'"\s*"', "", text)
    (schema,) = re.findall(rf'library\.def\(\s*"({name}\(.*?)"\);', text)
    wanted = getattr(torch.ops.torchyard_export, name).default._schema
    assert torch._C.parse_schema(f"torchyard_export::{schema}") == wanted


def test_what_cannot_run_in_cpp_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with pytest.raises(
        ArtifactError, match="expected one of machine code for the runner, got none"
    ):
        write_runner(artifact, folder)
    other = _compiled(artifact, _call("torchyard_kernels::linear_packed"))
    with pytest.raises(
        ArtifactError, match="torchyard_kernels::linear_packed, which is registered"
    ):
        write_runner(other, folder)
    away = _compiled(artifact, '{"nodes": []}', device="cuda")
    with pytest.raises(ArtifactError, match="expected a program for the CPU, got one for cuda"):
        write_runner(away, folder)
    with pytest.raises(ArtifactError, match="expected an AOTInductor package"):
        write_runner(_compiled(artifact, "[]"), folder)
    unproven = Artifact(_compiled(artifact, '{"nodes": []}')._members)
    with pytest.raises(ArtifactError, match="nothing proves who made it"):
        write_runner(unproven, folder)
    assert not folder.exists()


def test_nothing_is_overwritten(artifact: Artifact, tmp_path: Path) -> None:
    made = _compiled(artifact, '{"nodes": []}')
    (tmp_path / "main.cpp").write_text("mine")
    with pytest.raises(FileExistsError, match="expected a new or an empty one"):
        write_runner(made, tmp_path)
    with pytest.raises(FileExistsError, match="expected a new or an empty one"):
        write_runner(made, tmp_path / "main.cpp")
    assert [path.name for path in tmp_path.iterdir()] == ["main.cpp"]
    assert (tmp_path / "main.cpp").read_text() == "mine"


def test_the_command_refuses_what_the_function_does(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tya"
    path.write_bytes(packed)
    found = CliRunner().invoke(command, ["runner", str(tmp_path / "new"), str(path)])
    assert found.exit_code == 1
    assert found.output.startswith("refused: target: expected one of machine code")


def _run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True)


# Two compilers run: the one behind AOTInductor, and that of the runner.
@pytest.mark.sweep
def test_a_packed_lstm_runs_in_cpp_and_a_changed_call_fails(tmp_path: Path) -> None:
    model, kwargs = prepared(_PACKED)
    dynamic = {
        name: {axis: {"batch": "batch:1..5", "time": "time:1..17"}[d] for axis, d in axes.items()}
        for name, axes in axes_of(_PACKED).items()
    }
    values = {"lengths": (1, "time")}
    made = export(
        *(model, (), kwargs), dynamic=dynamic, values=values, targets=["aotinductor"], trials=1
    )
    private, public = keys(tmp_path, "author")
    path = made.save(tmp_path / "lstm.tya", key=private)
    folder = tmp_path / "runner"
    words = ["runner", str(folder), str(path), "--key", str(public)]
    written = CliRunner().invoke(command, words)
    assert written.exit_code == 0, written.output
    assert (folder / "recurrent.cpp").is_file()
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command_line in (("cmake", "-B", "build", prefix), ("cmake", "--build", "build")):
        built = _run(*command_line, folder=folder)
        assert built.returncode == 0, built.stdout + built.stderr
    found = _run("build/runner", folder=folder)
    assert found.returncode == 0, found.stdout + found.stderr
    lines = found.stdout.splitlines()
    outputs = load(path).manifest.outputs
    assert [line.split(":")[0] for line in lines[:-1]] == [leaf.name for leaf in outputs]
    assert lines[-1] == f"{len(made.golden())} calls: passed"
    print(found.stdout, file=sys.stderr)
    calls = (folder / "calls.txt").read_text().splitlines()
    last = [line.split() for line in calls if line.startswith("out ")][-1]
    data = bytearray((folder / "tensors.bin").read_bytes())
    start = int(last[4])
    (value,) = struct.unpack_from("<d", data, start)
    struct.pack_into("<d", data, start, value + 2 * float(last[2]))
    (folder / "tensors.bin").write_bytes(data)
    found = _run("build/runner", folder=folder)
    assert found.returncode == 1
    assert "WRONG" in found.stdout
    (folder / "tensors.bin").write_bytes(data[:-1])
    found = _run("build/runner", folder=folder)
    assert found.returncode == 2
    assert "cannot run: tensors.bin: expected" in found.stderr
