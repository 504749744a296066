"""A CMake project in C++ that runs an artifact's machine code on its golden calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_export import _ops
from torchyard_export._artifact.artifact import Artifact
from torchyard_export._audit.reference import Case
from torchyard_export._errors import ArtifactError
from torchyard_export._tree import flatten
from torchyard_export.contract import TargetError
from torchyard_export.targets._native_calls import calls_of

_PACKAGE: Final = "model.pt2"
_ALWAYS: Final = ("CMakeLists.txt", "golden.cpp", "golden.h", "main.cpp")
_RECURRENT: Final = "recurrent.cpp"
_MADE: Final = "call torchyard_export.load of its file"
_DTYPES: Final = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
    | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
)


def write_runner(
    artifact: Artifact, folder: str | Path, *, target: str | None = None
) -> list[Path]:
    """Write a CMake project that runs a program without Python, on the artifact's golden calls.

    Built with the libtorch of an installed torch, it prints the largest difference per output and
    ends in 1 where one is beyond its bound. Recurrent layers are among its sources where the
    program has any.

    Args:
        artifact: with a target ``aotinductor`` or ``aotinductor_native``, made here or loaded with
            its author's key.
        folder: a new or an empty one; nothing is written elsewhere.
        target: which of the artifact's; None is its first of machine code.

    Returns:
        The files, sorted.

    Raises:
        TypeError, ValueError: an argument is of another kind, or empty.
        ArtifactError: there is no such program, nothing proves who made it, it is for another
            device, or it calls operators that are registered in Python alone.
        FileExistsError: something is in the folder, or it is a file.
    """
    of = "write_runner"
    arguments.instance(of, "artifact", artifact, Artifact, "an Artifact", remedy=_MADE)
    place = arguments.path(of, "folder", folder)
    if target is not None:
        arguments.text(of, "target", target)
    name, package = _package(artifact, target)
    calls, tensors = _written(artifact.golden())
    template = files("torchyard_export") / "runner"
    sources = [*_ALWAYS, _RECURRENT] if _check_calls(name, package) else list(_ALWAYS)
    contents = {source: (template / source).read_bytes() for source in sources}
    contents |= {_PACKAGE: package, "calls.txt": calls.encode(), "tensors.bin": tensors}
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise FileExistsError(f"folder: expected a new or an empty one, got {place}")
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for file, content in sorted(contents.items()):
        with (place / file).open("xb") as stream:
            stream.write(content)
        written.append(place / file)
    return written


def _package(artifact: Artifact, target: str | None) -> tuple[str, bytes]:
    native = [name for name, said in artifact.manifest.targets.items() if said.get("native")]
    name = target or next(iter(native), "")
    found = artifact.files(name) if name in artifact.targets else {}
    if name not in native or _PACKAGE not in found:
        raise ArtifactError(
            f"target: expected one of machine code for the runner, got {target or 'none'} of "
            f"{', '.join(artifact.targets)}; export with targets=['aotinductor']"
        )
    if not artifact.trusted:
        raise ArtifactError(
            f"target {name!r}: holds machine code, and nothing proves who made it; sign it, and "
            "load it with the key of its author"
        )
    if torch.device(artifact.manifest.device).type != torch.device("cpu").type:
        raise ArtifactError(
            f"target {name!r}: expected a program for the CPU, got one for "
            f"{artifact.manifest.device}; the runner's inputs lie in the CPU's memory"
        )
    return name, found[_PACKAGE]


def _check_calls(name: str, package: bytes) -> bool:
    """Return whether a program has recurrent layers of ours; refuse what C++ does not know."""
    spaces = {target.partition("::")[0]: target for target in _called(package)}
    recurrent = spaces.pop(_ops.NAMESPACE, None)
    for space, target in sorted(spaces.items()):
        if space not in {"aten", "prims"}:
            raise ArtifactError(
                f"target {name!r}: calls {target}, which is registered in Python alone, so no C++ "
                "program can run it; run the artifact from Python, or export the model without it"
            )
    return recurrent is not None


def _called(package: bytes) -> Iterable[str]:
    try:
        for table in calls_of(package):
            for entry in json.loads(table)["nodes"]:
                target = str(entry["node"]["target"])
                yield target.removeprefix("torch.ops.").replace(".", "::", 1)
    except (KeyError, TargetError, TypeError, ValueError) as error:
        raise ArtifactError(f"{_PACKAGE}: expected an AOTInductor package: {error}") from error


def _written(cases: Sequence[Case]) -> tuple[str, bytes]:
    lines: list[str] = []
    data = bytearray()
    for case in cases:
        sizes = ",".join(f"{key}={size}" for key, size in case.sizes.items())
        lines.append(f"call {sizes or 'the example'}")
        inputs = [leaf for _, leaf in flatten(case.arguments) if isinstance(leaf, Tensor)]
        lines += [f"in {_tensor(leaf, data)}" for leaf in inputs]
        for (path, leaf), exact, bound in zip(case.outputs, case.exact, case.bounds, strict=True):
            if not isinstance(leaf, Tensor):
                raise ArtifactError(f"output {path}: expected a tensor, got {leaf!r}")
            right = exact if leaf.is_floating_point() else leaf
            kind = str(leaf.dtype).removeprefix("torch.")
            lines.append(f"out {kind} {bound!r} {_tensor(right, data)} {path or 'the output'}")
    return "\n".join(lines) + "\n", bytes(data)


def _tensor(tensor: Tensor, data: bytearray) -> str:
    if tensor.dtype not in _DTYPES:
        raise ArtifactError(f"golden calls: the runner reads no {tensor.dtype}")
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    start = len(data)
    data += raw
    words = [str(tensor.dtype).removeprefix("torch."), start, len(raw), tensor.dim(), *tensor.shape]
    return " ".join(map(str, words))
