"""Unmodified models of transformers whose calls of torch's functions are rerouted."""

from __future__ import annotations

import warnings
from typing import Final

import pytest
import torch
import transformers

from tests.models.architectures import BOUND, Result, difference, eager, model_of, outputs_of
from tests.models.families import FAMILIES, text
from torchyard_compile import reroute

_NAMES: Final = (
    *("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model", "GemmaModel", "Gemma3TextModel"),
    *("Phi3Model", "OlmoModel", "CohereModel", "StableLmModel", "GPT2Model", "GPTNeoXModel"),
    *("OPTModel", "BertModel", "RobertaModel", "DistilBertModel", "BartModel", "ViTModel"),
    *("CLIPVisionModel", "HubertModel"),
)


@pytest.mark.parametrize("name", _NAMES)
def test_outputs_are_those_of_eager_attention(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = eager(name)
        assert not isinstance(built, Result), built
        kind, config, inputs, wanted = built
        model = model_of(kind, config, "sdpa")
        rerouted = reroute(model, verify=True)
        found = outputs_of(model, inputs)
        if difference(found, wanted, inputs) > BOUND:
            # A query that sees no key gets 0 from "sdpa", and a mean from "eager".
            rerouted.undo()
            wanted = outputs_of(model, inputs)
    assert difference(found, wanted, inputs) <= BOUND
    functions = {site.function for site in rerouted.explain() if site.implementation}
    assert "scaled_dot_product_attention" in functions, rerouted.explain()


@pytest.mark.parametrize("name", ["Llama", "Qwen3", "Mistral"])
def test_generated_tokens_are_a_stock_models(name: str) -> None:
    model = FAMILIES[name].model("sdpa")
    prompt = text(1, 40)
    words = {"max_new_tokens": 24, "do_sample": False}
    with torch.no_grad():
        expected = model.generate(prompt, **words)
        rerouted = reroute(model)
        found = model.generate(prompt, **words)
    assert torch.equal(found, expected)
    sites = rerouted.explain()
    assert any(site.implementation and site.function == "linear" for site in sites)


def test_a_model_without_such_calls_is_left_as_it_is() -> None:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1])
    model = transformers.ResNetModel(config).eval()
    pixels = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = model(pixels).pooler_output
        rerouted = reroute(model)
        assert torch.equal(model(pixels).pooler_output, expected)
    assert rerouted.explain() == ()
