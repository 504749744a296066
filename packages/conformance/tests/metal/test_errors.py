"""The errors of a source or a call that cannot be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import platformdirs
import pytest
import torch

from torchyard_conformance.metal import (
    CompilationError,
    CompilerMissingError,
    Empty,
    UnsupportedSourceError,
    run,
)

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void copy(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
"""
BUFFERS = [torch.zeros(4), Empty((4,), torch.float32)]


def test_without_a_compiler_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "no-such-folder")
    with pytest.raises(
        CompilerMissingError, match=r"g\+\+: not on the path.*apt-get install g\+\+"
    ):
        run(SOURCE, "copy", 1, 4, BUFFERS)


def test_the_compilers_message_has_the_sources_line() -> None:
    with pytest.raises(CompilationError, match=r"kernel\.metal:6.*unknown"):
        run(SOURCE.replace("x[i]", "unknown[i]"), "copy", 1, 4, BUFFERS)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("device const float* x [[buffer(0)]]", "texture2d<float> x [[texture(0)]]", "textures"),
        ("device const float* x [[buffer(0)]]", "device const float* x", "no attribute"),
        ("#include <metal_stdlib>", '#include "mine.h"', r"line 2.*only <metal_"),
        ("using namespace metal;", "constant int n [[function_constant(0)]];", "line 3"),
    ],
)
def test_what_the_shim_does_not_have_is_named_with_its_line(
    old: str, new: str, message: str
) -> None:
    with pytest.raises(UnsupportedSourceError, match=message):
        run(SOURCE.replace(old, new), "copy", 1, 4, BUFFERS)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kernel": "paste"}, r"kernel: expected one of \['copy'\], got 'paste'"),
        ({"threads": 2048}, "threads: expected at most 1024"),
        ({"grid": (1, 1, 1, 1)}, "grid: expected one to three sizes, got 4"),
        ({"buffers": BUFFERS[:1]}, r"buffers: .*none for \['y'\]"),
        ({"buffers": {"x": BUFFERS[0], "y": BUFFERS[1], "z": b""}}, "buffers: .*'z'"),
        ({"buffers": [BUFFERS[1], BUFFERS[1]]}, r"buffers\['x'\]: expected values"),
        ({"group_memory": {0: 64}}, "group_memory"),
        ({"simd_widths": (6,)}, "simd_widths: expected multiples of 4"),
        ({"orders": 0}, "orders"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"kernel": "copy", "grid": 1, "threads": 4, "buffers": BUFFERS}
    with pytest.raises(ValueError, match=message):
        run(SOURCE, **given | changed)


def test_a_value_of_another_kind_is_no_buffer() -> None:
    with pytest.raises(TypeError, match=r"buffers\['x'\]: expected a tensor, Empty, bytes"):
        run(SOURCE, "copy", 1, 4, [3, BUFFERS[1]])


def test_a_program_that_another_process_removed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path)
    folder = tmp_path / "metal"
    folder.mkdir()
    # Listed, and then not found.
    (folder / "removed.program").symlink_to(folder / "nowhere")
    outcome = run(SOURCE, "copy", 1, 4, BUFFERS)
    assert outcome.outputs["y"].tolist() == [0.0] * 4
    assert len(list(folder.glob("*.program"))) > 1
