"""A model on packed weights: the same results, a report that is true, and the way back."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file

from torchyard_kernels import AccelerateError, PackedWeight, accelerate, quantize

WEIGHTS = (None, "bfloat16", "float16", "int8", "int4")


class Gated(torch.nn.Module):
    """A gated layer as transformers' models have it."""

    def __init__(self, size, inner, bias=False):
        super().__init__()
        self.gate_proj = torch.nn.Linear(size, inner, bias=bias)
        self.up_proj = torch.nn.Linear(size, inner, bias=bias)
        self.down_proj = torch.nn.Linear(inner, size, bias=bias)
        self.act_fn = torch.nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Swapped(Gated):
    """The same names, and another function."""

    def forward(self, x):
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


class Mixing(torch.nn.Module):
    """Projections of one input."""

    def __init__(self, size, bias=False):
        super().__init__()
        self.q_proj = torch.nn.Linear(size, 128, bias=bias)
        self.k_proj = torch.nn.Linear(size, 64, bias=bias)
        self.v_proj = torch.nn.Linear(size, 64, bias=bias)
        self.o_proj = torch.nn.Linear(64, size, bias=bias)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.o_proj(torch.tanh(q[..., :64]) * k + torch.tanh(q[..., 64:]) * v)


class Model(torch.nn.Module):
    """An embedding, two blocks, and a head that is tied to the embedding."""

    def __init__(self, bias=False, size=32):
        super().__init__()
        self.embed = torch.nn.Embedding(50, size)
        self.mixing, self.gated = Mixing(size, bias), Gated(size, 48, bias)
        self.head = torch.nn.Linear(size, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.mixing(x)
        return self.head(x + self.gated(x))


def model_of(**options):
    torch.manual_seed(0)
    return Model(**options).eval()


TOKENS = torch.arange(10).reshape(2, 5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_results_are_those_of_the_model_with_rounded_weights(weights, fuse, bias):
    model = model_of(bias=bias)
    with torch.inference_mode():
        accelerated = copy.deepcopy(model)
        done = accelerate(accelerated, weights=weights, fuse=fuse, measure=False)
        found = accelerated(TOKENS)
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                weight = module.weight
                if weights in ("int8", "int4"):
                    weight = quantize(weight.detach(), bits=int(weights[3:])).unpack()
                elif weights is not None:
                    weight = weight.to(getattr(torch, weights)).float()
                module.weight = torch.nn.Parameter(weight)
        expected = model(TOKENS)
    # Of weights in 16 bits the activations are too.
    tolerance = 0.05 if weights in ("bfloat16", "float16") else 1e-4
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    kinds = [change.kind for change in done.report.changes]
    assert len(kinds) == (6 if fuse else 8)
    assert kinds.count("projection, three at once") == (3 if fuse else 0)


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_undo_puts_the_very_modules_back(weights):
    model = model_of()
    before = list(model.named_modules())
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    done = accelerate(model, weights=weights, measure=False)
    assert all(type(module) is not torch.nn.Linear for module in model.modules())
    done.undo()
    after = list(model.named_modules())
    assert [name for name, _ in after] == [name for name, _ in before]
    assert all(new is old for (_, new), (_, old) in zip(after, before, strict=True))
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert model.head.weight is model.embed.weight
    with pytest.raises(AccelerateError, match="there is nothing to put back"):
        done.undo()


def test_a_tied_head_gets_a_copy_and_the_embedding_stays():
    model = model_of()
    done = accelerate(model, weights="int8", measure=False)
    (head,) = (change for change in done.report.changes if change.name == "head")
    assert head.note == "tied to embed, which keeps the original"
    assert isinstance(model.embed.weight, torch.nn.Parameter)
    assert "head: tied to embed" in done.report.render()


def test_a_layer_in_two_places_stays_one():
    layer = torch.nn.Linear(8, 8)
    model = torch.nn.Sequential(layer, torch.nn.ReLU(), layer).eval()
    done = accelerate(model, measure=False)
    assert model[0] is model[2]
    assert len(done.report.changes) == 1
    done.undo()
    assert model[0] is layer
    assert model[2] is layer


def test_bytes_are_those_of_the_weights():
    model = torch.nn.Sequential(torch.nn.Linear(256, 128, bias=False)).eval()
    report = accelerate(model, weights="int4", group_size=32, measure=False).report
    assert report.bytes_before == 256 * 128 * 4
    assert report.bytes_after == 256 * 128 // 2 + 256 * 128 // 32 * 2


def test_the_gain_is_measured_on_layers_of_the_model():
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).eval()
    report = accelerate(model).report
    assert report.gain is not None
    assert report.gain.name == "0"
    assert report.gain.layers == 3
    assert report.gain.before > 0
    assert f"{report.gain.times:.2f} times as fast" in report.render()
    assert accelerate(torch.nn.Sequential().eval()).report.gain is None


def test_what_stays_says_why():
    class Other(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    class Plain(torch.nn.Linear):
        pass

    model = torch.nn.ModuleDict(
        {
            "other": Other(4, 4),
            "plain": Plain(4, 4),
            "hooked": torch.nn.Linear(4, 4),
            "kept": torch.nn.Sequential(torch.nn.Linear(4, 4)),
            "wide": torch.nn.Linear(4, 4, dtype=torch.float64),
            "meta": torch.nn.Linear(4, 4, device="meta"),
            "normed": torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4)),
        }
    ).eval()
    model["hooked"].register_forward_hook(lambda *_: None)
    report = accelerate(model, skip=["kept"], measure=False).report
    assert [change.name for change in report.changes] == ["plain"]
    assert {skipped.name: skipped.reason for skipped in report.skipped} == {
        "other": "Other computes something else than torch.nn.Linear does",
        "hooked": "hooks are registered on it",
        "kept.0": "skip names it",
        "wide": "its weight is of torch.float64",
        "meta": "its weight has no data yet (device meta)",
        "normed": "its weight is computed at each access (parametrize)",
    }


def test_a_gated_layer_is_believed_after_a_trial_alone():
    model = torch.nn.Sequential(Swapped(32, 48)).eval()
    x = torch.randn(2, 32)
    with torch.inference_mode():
        before = model(x)
        report = accelerate(model, measure=False).report
        torch.testing.assert_close(model(x), before)
    assert [change.kind for change in report.changes] == ["linear layer"] * 3


class TestProjections:
    """Three layers of one input."""

    def test_they_are_multiplied_once_and_nothing_is_kept(self, monkeypatch):
        model = torch.nn.Sequential(Mixing(32)).eval()
        accelerate(model, measure=False)
        shared = model[0].q_proj._shared[0]
        calls = []
        multiply = shared.layer.forward
        monkeypatch.setattr(shared.layer, "forward", lambda x: calls.append(1) or multiply(x))
        with torch.inference_mode():
            model(torch.randn(3, 32))
        assert len(calls) == 1
        assert shared._of is None
        assert shared._outs == {}

    def test_another_or_a_changed_input_is_multiplied_anew(self):
        model = torch.nn.Sequential(Mixing(32)).eval()
        x, other = torch.randn(3, 32), torch.randn(3, 32)
        mixing = model[0]
        with torch.no_grad():
            expected = mixing.k_proj(other), mixing.k_proj(x * 2)
            accelerate(model, measure=False)
            mixing.q_proj(x)
            torch.testing.assert_close(mixing.k_proj(other), expected[0])
            mixing.q_proj(x)
            x *= 2
            torch.testing.assert_close(mixing.k_proj(x), expected[1])
            # Twice in a row, which no other asked for.
            torch.testing.assert_close(mixing.k_proj(x), expected[1])

    def test_their_weights_are_views_of_one(self):
        model = torch.nn.Sequential(Mixing(32, bias=True)).eval()
        accelerate(model, weights="int8", measure=False)
        parts = [getattr(model[0], f"{name}_proj") for name in "qkv"]
        storages = {part.alone.packed.data.untyped_storage().data_ptr() for part in parts}
        assert len(storages) == 1
        assert [part.weight.shape[0] for part in parts] == [128, 64, 64]
        assert all(part.bias is not None for part in parts)


def test_gradients_reach_the_input():
    model = torch.nn.Sequential(Mixing(32), Gated(32, 48)).eval()
    x = torch.randn(2, 32, requires_grad=True)
    (expected,) = torch.autograd.grad(model(x).sum(), x)
    accelerate(model, measure=False)
    (found,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", [None, "int4"], ids=str)
def test_a_compiled_model_gives_the_eager_results_in_one_graph(weights):
    model = model_of()
    accelerate(model, weights=weights, measure=False)
    with torch.no_grad():
        expected = model(TOKENS)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(TOKENS), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", ["bfloat16", "int4"])
def test_the_state_goes_through_a_file(tmp_path, weights):
    model, other = model_of(), model_of(size=32)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    for one in (model, other):
        accelerate(one, weights=weights, measure=False)
    state = model.state_dict()
    assert "gated.gate_up.packed.data" in state
    assert "mixing.q_proj.alone.packed.spec" in state
    save_file(state, tmp_path / "model.safetensors")
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    with torch.inference_mode():
        assert torch.equal(other(TOKENS), model(TOKENS))


def test_a_copy_is_whole_and_independent():
    model = model_of()
    accelerate(model, weights="int8", measure=False)
    copied = copy.deepcopy(model)
    with torch.inference_mode():
        assert torch.equal(copied(TOKENS), model(TOKENS))
        expected = model(TOKENS)
        for module in copied.modules():
            if isinstance(module, PackedWeight):
                module.scale.zero_()
        assert not torch.equal(copied(TOKENS), expected)
        assert torch.equal(model(TOKENS), expected)


class TestErrors:
    """What cannot be done says why, and leaves the model as it was."""

    def test_arguments(self):
        model = model_of()
        for arguments, text in (
            ({"weights": "int3"}, "weights: expected 'bfloat16', .* or None, got 'int3'"),
            ({"activation": "int4"}, "activation: expected 'int8' or None, got 'int4'"),
            ({"group_size": 32}, "group_size: goes with weights of 'int8' or 'int4', got None"),
            ({"weights": "int4", "group_size": 7}, "group_size: expected one of 0, 32, .*, got 7"),
            ({"skip": "head"}, r"skip: expected a sequence of names, got 'head'; write \['head'\]"),
            ({"skip": ["hea"]}, "skip: expected names of the model's modules, got 'hea'"),
        ):
            with pytest.raises(AccelerateError, match=text):
                accelerate(model, **arguments)
        assert type(model.head) is torch.nn.Linear
        with pytest.raises(TypeError, match=r"model: expected a torch.nn.Module, got function"):
            accelerate(lambda x: x)
        with pytest.raises(AccelerateError, match=r"got one in training; call model.eval\(\)"):
            accelerate(model.train())

    def test_twice(self):
        model = model_of()
        accelerate(model, measure=False)
        with pytest.raises(AccelerateError, match="was accelerated already"):
            accelerate(model)

    def test_undo_without_originals_or_after_a_change(self):
        model = model_of()
        done = accelerate(model, keep_originals=False, measure=False)
        with pytest.raises(AccelerateError, match="were not kept"):
            done.undo()
        model = model_of()
        done = accelerate(model, measure=False)
        model.head = torch.nn.Linear(32, 50)
        with pytest.raises(AccelerateError, match="head of a Model is no longer what"):
            done.undo()
        assert type(model.gated.down_proj) is not torch.nn.Linear

    def test_weights_that_cannot_be_rounded(self):
        model = model_of()
        with torch.no_grad():
            model.gated.up_proj.weight[0, 0] = float("nan")
        with pytest.raises(AccelerateError, match=r"finite numbers.*the model is unchanged"):
            accelerate(model, weights="int8")
        assert type(model.head) is torch.nn.Linear
