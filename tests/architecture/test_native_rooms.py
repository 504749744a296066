"""The rooms of the native CPU kernels: who may include whom.

plugins/cpu/README.md describes them. No op includes another op's folder.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.tree import ROOT, files

_NATIVE: Final = Path("plugins/cpu/src/native")
_INCLUDE: Final = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_OPS: Final = ("attention", "linear", "pointwise", "quantised", "recurrent", "topk")
# Folder -> the folders that its files may include besides their own.
_ROOMS: Final[dict[str, frozenset[str]]] = {
    "base": frozenset(),
    "simd": frozenset({"base"}),
    # The interpreter of recorded functions, which ops call inside their loops.
    "programs": frozenset({"base", "simd"}),
    **{op: frozenset({"base", "simd", "programs"}) for op in _OPS},
    "limits": frozenset({"base", "simd"}),
    "shm": frozenset({"base", "simd"}),
    # Runs the kernels of several ops one after another.
    "chain": frozenset({"base", "programs", *_OPS}),
    "bindings": frozenset({"base", "programs", "chain", "limits", "shm", *_OPS}),
}
# The same within attention; "" is the folder itself.
_ATTENTION: Final[dict[str, frozenset[str]]] = {
    "": frozenset(),
    "mask": frozenset({""}),
    "tile": frozenset({"", "mask"}),
    "forward": frozenset({"", "mask", "tile"}),
    "decode": frozenset({"", "mask", "tile"}),
    "backward": frozenset({"", "mask", "tile"}),
    # Kernels of the forward pass and of decoding, for one instruction set each.
    "isa": frozenset({"", "tile", "forward", "decode"}),
}
_SOURCES: Final = tuple(
    path
    for path in files()
    if path.is_relative_to(_NATIVE) and path.suffix in {".cc", ".h", ".inc"}
)


def _included(path: Path) -> list[Path]:
    return [Path(name) for name in _INCLUDE.findall((ROOT / path).read_text(encoding="utf-8"))]


def _room_of_attention(path: Path) -> str:
    return path.parts[1] if len(path.parts) > 2 else ""


@pytest.mark.parametrize("path", _SOURCES, ids=str)
def test_a_native_file_includes_rooms_below_its_own(path: Path) -> None:
    inside = path.relative_to(_NATIVE)
    room = inside.parts[0]
    allowed = _ROOMS[room] | {room}
    wrong = [str(name) for name in _included(path) if name.parts[0] not in allowed]
    assert not wrong, f"{room} may include {', '.join(sorted(allowed))}"


@pytest.mark.parametrize(
    "path", [path for path in _SOURCES if path.is_relative_to(_NATIVE / "attention")], ids=str
)
def test_a_file_of_attention_includes_rooms_below_its_own(path: Path) -> None:
    room = _room_of_attention(path.relative_to(_NATIVE))
    allowed = _ATTENTION[room] | {room}
    within = [name for name in _included(path) if name.parts[0] == "attention"]
    wrong = [str(name) for name in within if _room_of_attention(name) not in allowed]
    assert not wrong, f"attention/{room} may include {', '.join(sorted(allowed))}"


def test_no_op_includes_another() -> None:
    across = [
        f"{path}: {name}"
        for path in _SOURCES
        for name in _included(path)
        if (room := path.relative_to(_NATIVE).parts[0]) in _OPS
        and name.parts[0] in _OPS
        and name.parts[0] != room
    ]
    assert not across


def test_every_include_is_a_file() -> None:
    known = {path.relative_to(_NATIVE) for path in _SOURCES}
    missing = [
        f"{path}: {name}" for path in _SOURCES for name in _included(path) if name not in known
    ]
    assert not missing


def test_a_folder_of_native_code_holds_few_files() -> None:
    folders = Counter(path.parent for path in _SOURCES)
    assert not {str(folder): count for folder, count in folders.items() if count > 15}
