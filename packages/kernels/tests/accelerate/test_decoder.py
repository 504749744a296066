"""Layers of a decoder that decode one token by what the kernels do at once."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import transformers
from transformers import DynamicCache, StaticCache

from torchyard import use
from torchyard_kernels import AccelerateError, accelerate
from torchyard_kernels._accelerate.decoder import _forward as decoder_forward

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 128,
    "vocab_size": 90,
    "pad_token_id": 0,
}
KINDS = {
    "llama": (transformers.LlamaConfig, {}),
    "llama with biases": (transformers.LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "mistral": (transformers.MistralConfig, {"sliding_window": None}),
    "qwen2": (transformers.Qwen2Config, {}),
}
OTHERS = {
    "gemma2": (transformers.Gemma2Config, {}),
    "phi3": (transformers.Phi3Config, {}),
    "qwen3": (transformers.Qwen3Config, {}),
}
TOKENS = torch.arange(1, 15)[None]
READ = 8
KIND = "layer, around attention at once for one token"


def model_of(name="llama", dtype=torch.float32, **more):
    kind, options = {**KINDS, **OTHERS}[name]
    torch.manual_seed(0)
    config = kind(**SIZES, **options, **more)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.to(dtype).eval()


def decoded(model, cache=None, tokens=TOKENS, **more):
    """Logits of tokens that are read at once, and of others that are decoded behind them."""
    cache = DynamicCache(config=model.config) if cache is None else cache
    given = {"past_key_values": cache, "use_cache": True, **more}
    found = [model(tokens[:, :READ], **given).logits]
    for place in range(READ, tokens.shape[1]):
        found.append(model(tokens[:, place : place + 1], **given).logits)
    return torch.cat(found, 1).double()


@pytest.fixture
def steps(monkeypatch):
    """Whether each forward of a layer was a step, in order."""
    found = []
    own = decoder_forward._decoded

    def noting(*args, **kwargs):
        out = own(*args, **kwargs)
        found.append(out is not None)
        return out

    monkeypatch.setattr(decoder_forward, "_decoded", noting)
    return found


@pytest.fixture
def by_modules(monkeypatch):
    """A function that computes something with no layer in steps."""

    def compute(function, *args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(decoder_forward, "_decoded", lambda *args, **kwargs: None)
            return function(*args, **kwargs)

    return compute


@pytest.mark.parametrize(
    ("name", "dtype", "attention"),
    [
        *((name, torch.float32, "sdpa") for name in KINDS),
        ("llama with biases", torch.float32, "eager"),
        ("llama with biases", torch.bfloat16, "sdpa"),
        ("llama with biases", torch.float16, "sdpa"),
    ],
)
def test_logits_are_no_further_from_exact_ones_than_stock(name, dtype, attention):
    exact = model_of(name, attn_implementation="eager")
    model = exact.to(dtype) if dtype != torch.float32 else copy.deepcopy(exact)
    model.set_attn_implementation(attention)
    with torch.inference_mode():
        truth = decoded(copy.deepcopy(model).double())
        stock = decoded(model)
        accelerate(model, measure=False)
        found = decoded(model)
    # Both round at as many places; the numbers differ there.
    assert (found - truth).norm() <= 2 * (stock - truth).norm() + 1e-7 * truth.norm()


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_steps_of_a_quantised_model_are_what_its_modules_compute(weights, steps, by_modules):
    model = model_of()
    accelerate(model, weights=weights, measure=False)
    with torch.inference_mode():
        found = decoded(model)
        expected = by_modules(decoded, model)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"weights": "int8"}], ids=str)
def test_weights_are_read_where_they_lie_now(options, by_modules):
    model = model_of()
    accelerate(model, measure=False, **options)
    with torch.inference_mode():
        decoded(model)
        # To memory that other processes see, which leaves each tensor the object that it is.
        model.share_memory()
        expected = by_modules(decoded, model)
        others = [torch.full((1 << 16,), 7.0) for _ in range(50)]
        found = decoded(model)
    assert len(others) == 50
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_the_report_names_the_layers_and_undo_gives_their_forward_back(name):
    model = model_of(name)
    kinds = [type(layer) for layer in model.model.layers]
    attributes = [set(vars(layer)) for layer in model.model.layers]
    state = list(model.state_dict())
    done = accelerate(model, measure=False)
    named = [change.name for change in done.report.changes if change.kind == KIND]
    assert named == ["model.layers.0", "model.layers.1"]
    assert all(
        isinstance(layer, kind) for layer, kind in zip(model.model.layers, kinds, strict=True)
    )
    with torch.inference_mode():
        decoded(model)
    done.undo()
    assert [type(layer) for layer in model.model.layers] == kinds
    assert [set(vars(layer)) for layer in model.model.layers] == attributes
    assert list(model.state_dict()) == state


@pytest.mark.parametrize("name", OTHERS)
def test_layers_of_another_form_keep_their_class(name):
    model = model_of(name)
    kinds = [type(layer) for layer in model.model.layers]
    done = accelerate(model, measure=False)
    assert not any(change.kind == KIND for change in done.report.changes)
    assert [type(layer) for layer in model.model.layers] == kinds


@pytest.mark.parametrize("given", [{"fuse": False}, {"skip": ["model.layers.0.mlp.up_proj"]}])
def test_layers_stay_where_their_parts_do(given):
    model = model_of()
    done = accelerate(model, measure=False, **given)
    named = [change.name for change in done.report.changes if change.kind == KIND]
    assert named == ([] if "fuse" in given else ["model.layers.1"])


def test_a_layer_with_a_norm_of_another_kind_keeps_its_class():
    model = model_of()
    norm = model.model.layers[0].post_attention_layernorm
    norm.forward = lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], norm.weight)
    done = accelerate(model, measure=False)
    named = [change.name for change in done.report.changes if change.kind == KIND]
    assert named == ["model.layers.1"]


def test_undo_refuses_a_layer_with_yet_another_forward():
    model = model_of()
    done = accelerate(model, measure=False)
    layer = model.model.layers[0]
    layer.forward = lambda *args, own=layer.forward, **kwargs: own(*args, **kwargs)
    with pytest.raises(AccelerateError, match="another forward on a LlamaDecoderLayer"):
        done.undo()


def test_accelerating_twice_is_refused():
    model = model_of()
    accelerate(model, measure=False)
    with pytest.raises(AccelerateError, match="accelerated already"):
        accelerate(model, measure=False)


@pytest.mark.parametrize("copied", ["deepcopy", "pickle", "torch.save"])
def test_a_copy_decodes_the_same(copied, steps):
    model = model_of()
    accelerate(model, measure=False)
    with torch.inference_mode():
        expected = decoded(model)
    if copied == "deepcopy":
        other = copy.deepcopy(model)
    elif copied == "pickle":
        other = pickle.loads(pickle.dumps(model))
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    before = list(steps)
    steps.clear()
    assert type(other.model.layers[0]) is type(model.model.layers[0])
    with torch.inference_mode():
        assert torch.equal(decoded(other), expected)
    assert steps == before


class TestOtherwise:
    """What a step does not do is done as before."""

    def test_gradients_reach_the_input(self, steps):
        model = model_of()
        accelerate(model, measure=False)
        cache = DynamicCache(config=model.config)
        model(TOKENS[:, :READ], past_key_values=cache, use_cache=True)
        x = model.get_input_embeddings()(TOKENS[:, READ : READ + 1]).detach().requires_grad_()
        model(inputs_embeds=x, past_key_values=cache, use_cache=True).logits.sum().backward()
        assert x.grad is not None
        assert x.grad.abs().sum() > 0
        assert not any(steps)

    @pytest.mark.parametrize("batch", [2, 3])
    def test_several_sequences(self, batch, by_modules):
        model = model_of()
        accelerate(model, measure=False)
        tokens = TOKENS.expand(batch, -1)
        with torch.inference_mode():
            found = decoded(model, tokens=tokens)
            expected = by_modules(decoded, model, tokens=tokens)
        assert torch.equal(found, expected)

    def test_a_static_cache(self, by_modules):
        model = model_of()
        accelerate(model, measure=False)

        def run():
            return decoded(model, StaticCache(config=model.config, max_cache_len=32))

        with torch.inference_mode():
            assert torch.equal(run(), by_modules(run))

    def test_hidden_states_and_attentions_are_all_there(self, by_modules):
        model = model_of(attn_implementation="eager")
        accelerate(model, measure=False)

        def run():
            cache = DynamicCache(config=model.config)
            model(TOKENS[:, :READ], past_key_values=cache, use_cache=True)
            return model(
                TOKENS[:, READ : READ + 1],
                past_key_values=cache,
                use_cache=True,
                output_hidden_states=True,
                output_attentions=True,
            )

        with torch.inference_mode():
            found, expected = run(), by_modules(run)
        assert len(found.hidden_states) == 3
        assert len(found.attentions) == 2
        for name in ("hidden_states", "attentions"):
            for one, other in zip(found[name], expected[name], strict=True):
                torch.testing.assert_close(one, other)

    @pytest.mark.parametrize("place", ["input_layernorm", "self_attn.o_proj", "mlp", "mlp.act_fn"])
    def test_hooks_are_called(self, place):
        model = model_of()
        accelerate(model, measure=False)
        calls = []
        with torch.inference_mode():
            decoded(model)
            module = model.model.layers[1].get_submodule(place)
            module.register_forward_hook(lambda *args: calls.append(args))
            decoded(model)
        assert len(calls) == 1 + TOKENS.shape[1] - READ

    def test_a_module_that_was_put_in_later_is_used(self):
        model = model_of()
        accelerate(model, measure=False)
        with torch.inference_mode():
            before = decoded(model)
            model.model.layers[0].mlp = torch.nn.Identity()
            after = decoded(model)
            expected = decoded(model)
        assert not torch.allclose(before[:, READ:], after[:, READ:])
        assert torch.equal(after, expected)

    @pytest.mark.parametrize("way", ["in place", "another", "data"])
    def test_changed_norms_are_read(self, way, by_modules):
        model = model_of()
        accelerate(model, measure=False)
        with torch.inference_mode():
            before = decoded(model)
        norm = model.model.layers[0].input_layernorm
        with torch.no_grad():
            if way == "in place":
                norm.weight.mul_(2)
            elif way == "another":
                norm.weight = torch.nn.Parameter(norm.weight * 2)
            else:
                norm.weight.data = norm.weight.data * 2
        with torch.inference_mode():
            after, expected = decoded(model), by_modules(decoded, model)
        assert not torch.allclose(before, after)
        torch.testing.assert_close(after, expected, rtol=1e-5, atol=1e-5)

    def test_a_demand_for_another_implementation_is_obeyed(self, steps):
        model = model_of()
        accelerate(model, measure=False)
        with torch.inference_mode():
            expected = decoded(model)
            steps.clear()
            with use(linear="kernels.torch"):
                found = decoded(model)
        assert not any(steps)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    def test_weights_of_another_dtype_than_the_norms(self, steps):
        model = model_of()
        accelerate(model, weights="bfloat16", measure=False)
        with torch.inference_mode():
            decoded(model)
        assert steps
        assert not any(steps)

    def test_a_compiled_layer_is_one_graph(self):
        model = model_of()
        accelerate(model, measure=False)
        layer = model.model.layers[0]
        x, rotation = torch.randn(1, 1, 64), torch.randn(2, 1, 1, 32).unbind()
        compute = torch.compile(
            lambda x: layer(x, position_embeddings=rotation), fullgraph=True, backend="eager"
        )
        with torch.inference_mode():
            expected = layer(x, position_embeddings=rotation)
            torch.testing.assert_close(compute(x), expected, rtol=1e-5, atol=1e-5)
