"""A published embedding model is exported with free sizes, verified, and run as two programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.models import embedding
from packages.export.tests.models.attending import Encoder, encoder
from torchyard_export import Artifact, export, load

TEXTS = embedding.sources(6)


@pytest.fixture(scope="module")
def made() -> tuple[Encoder, Artifact]:
    """Return the model and its artifact."""
    call = encoder()
    artifact = export(**call, targets=["pt2", "onnx"], trials=1)
    model: Encoder = call["model"]
    return model, artifact


def test_it_passes_in_every_form(made: tuple[Encoder, Artifact], tmp_path: Any) -> None:
    assert made[1].report.passed
    loaded = load(made[1].save(tmp_path / "encoder.tya"))
    assert loaded.verify().passed


@pytest.mark.parametrize("target", ["pt2", "onnx"])
def test_real_texts_are_embedded_alike(made: tuple[Encoder, Artifact], target: str) -> None:
    model, artifact = made
    batch = embedding.tokens(TEXTS[:3])
    ids, mask = (batch[name][:, :128] for name in ("input_ids", "attention_mask"))
    with torch.no_grad():
        wanted = model(ids, mask)
    torch.testing.assert_close(artifact.run(target, ids, mask), wanted, atol=1e-6, rtol=1e-5)
