"""Models whose weights are packed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from packages.cache.tests.reuse.models import llama
from torchyard_cache import reuse
from torchyard_cache._reuse._identity import fingerprint, state_of
from torchyard_kernels import accelerate


@pytest.mark.parametrize("weights", [None, "int8"])
def test_prompts_of_a_model_on_packed_weights_are_reused(weights: Any) -> None:
    model = llama()
    accelerate(model, weights=weights, measure=False)
    # Without 0, which pads.
    prompt = torch.arange(1, 91)[None]
    words = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    expected = model.generate(prompt, **words)
    with reuse(model, page=16) as cache:
        for _ in range(2):
            assert torch.equal(model.generate(prompt, **words), expected)
        assert cache.stats().hits == 1


def test_what_is_written_to_a_packed_weight_is_another_model() -> None:
    model = llama()
    accelerate(model, measure=False)
    state, before = state_of(model), fingerprint(model, "")
    weight = model.get_submodule("model.layers.0.mlp.up_proj").weight
    with torch.no_grad():
        weight.copy_(torch.randn(weight.shape))
    assert state_of(model) != state
    assert fingerprint(model, "") != before
