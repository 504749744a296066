"""Compiled programs compute what the model does, and are loaded only where they can run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from packages.export.tests.artifact.test_artifact import keys
from packages.export.tests.models.recurrent import Cell, prepared
from torchyard_export import ArtifactError, export, load
from torchyard_export.contract import TargetError
from torchyard_export.targets.aotinductor import check_processor, metadata


# A compiler takes a while over each of its two files.
@pytest.mark.sweep
def test_a_compiled_gru_is_proven_and_needs_a_signature(tmp_path: Path) -> None:
    model, kwargs = prepared(Cell("GRU", 2, True, True, False, False, False, "both"))
    dynamic = {"x": {0: "batch:1..5", 1: "time:1..17"}}
    made = export(model, (), kwargs, dynamic=dynamic, targets=["aotinductor"], trials=1)
    assert [stage.name for stage in made.report.stages][-1] == "aotinductor"
    x = torch.randn(2, 9, 3)
    with torch.no_grad():
        torch.testing.assert_close(made(x)[0], model(x)[0])
    package = made.files("aotinductor")["model.pt2"]
    assert metadata(package)["AOTI_CPU_ISA"] in {"AVX2", "NEON"}
    private, public = keys(tmp_path, "author")
    path = made.save(tmp_path / "gru.tya", key=private)
    with pytest.raises(ArtifactError, match="holds machine code, and nothing proves who made it"):
        load(path)(x)
    loaded = load(path, key=public)
    assert torch.equal(loaded(x)[0], made(x)[0])
    assert loaded.verify().passed


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"AOTI_MACHINE": "vax"}, "expected a processor 'vax'"),
        ({"AOTI_MACHINE": "x86_64", "AOTI_CPU_ISA": "AVX2 AMX_TILE"}, "with AMX_TILE, which"),
        ({}, "expected a processor ''"),
    ],
)
def test_code_for_another_processor_is_refused(said: dict[str, str], match: str) -> None:
    with pytest.raises(TargetError, match=match):
        check_processor(said, frozenset({"avx2", "avx512bw"}), "x86_64")


def test_code_for_this_processor_is_not() -> None:
    has = frozenset({"avx2", "avx512bw", "avx512vnni"})
    check_processor({"AOTI_MACHINE": "x86_64", "AOTI_CPU_ISA": "AVX512 AVX512_VNNI"}, has, "x86_64")
    check_processor({"AOTI_MACHINE": "aarch64", "AOTI_CPU_ISA": "NEON"}, frozenset(), "aarch64")


def test_what_is_no_package_is_refused() -> None:
    with pytest.raises(TargetError, match="expected an AOTInductor package"):
        metadata(b"PK")
