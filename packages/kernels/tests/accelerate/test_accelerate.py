"""A model on packed weights: the same results, a report that is true, and the way back."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.utils.prune
from safetensors.torch import load_file, save_file

from torchyard_kernels import AccelerateError, accelerate, quantize
from torchyard_kernels.linear._weights import product as products
from torchyard_kernels.linear._weights.packed_tensor import PackedTensor

from .few_layers import TOKENS, Gated, Mixing, Swapped, model_of

WEIGHTS = (None, "bfloat16", "float16", "int8", "int4")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_results_are_those_of_the_model_with_rounded_weights(weights, fuse, bias):
    model = model_of(bias=bias)
    accelerated = copy.deepcopy(model)
    with torch.inference_mode():
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
    before, originals = list(model.named_modules()), dict(model.named_parameters())
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    done = accelerate(model, weights=weights, measure=False)
    parameters = dict(model.named_parameters())
    assert type(parameters["gated.down_proj.weight"]) is PackedTensor
    done.undo()
    after = list(model.named_modules())
    assert [name for name, _ in after] == [name for name, _ in before]
    assert all(new is old for (_, new), (_, old) in zip(after, before, strict=True))
    assert all(new is originals[name] for name, new in model.named_parameters())
    assert not any("forward" in vars(module) for module in model.modules())
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
            "replaced": torch.nn.Linear(4, 4),
            "pruned": torch.nn.utils.prune.identity(torch.nn.Linear(4, 4), "weight"),
            "kept": torch.nn.Sequential(torch.nn.Linear(4, 4)),
            "wide": torch.nn.Linear(4, 4, dtype=torch.float64),
            "meta": torch.nn.Linear(4, 4, device="meta"),
            "normed": torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4)),
        }
    ).eval()
    model["replaced"].forward = lambda x: x
    report = accelerate(model, skip=["kept"], measure=False).report
    assert [change.name for change in report.changes] == ["plain"]
    assert {skipped.name: skipped.reason for skipped in report.skipped} == {
        "other": "Other computes something else than torch.nn.Linear does",
        "replaced": "it has a forward of its own, put on the object",
        "pruned": "its weight is no parameter: hooks compute it before each call",
        "kept.0": "skip names it",
        "wide": "its weight is of torch.float64",
        "meta": "its weight has no data yet (device meta)",
        "normed": "its weight is computed at each access (parametrize)",
    }


def test_a_gated_layer_is_believed_after_a_trial_alone():
    model = torch.nn.Sequential(Swapped(32, 64)).eval()
    x = torch.randn(2, 32)
    with torch.inference_mode():
        before = model(x)
        report = accelerate(model, measure=False).report
        torch.testing.assert_close(model(x), before)
    assert [change.kind for change in report.changes] == ["linear layer"] * 3


class TestProjections:
    """Three layers of one input."""

    def test_they_are_multiplied_once_and_nothing_is_stored(self, monkeypatch):
        model = torch.nn.Sequential(Mixing(32)).eval()
        accelerate(model, measure=False)
        shapes = []
        multiply = products.packed_linear

        def noting(x, packed, bias):
            shapes.append(tuple(packed.shape))
            return multiply(x, packed, bias)

        monkeypatch.setattr(products, "packed_linear", noting)
        with torch.inference_mode():
            model(torch.randn(3, 32))
        assert shapes == [(256, 32), (32, 64)]
        assert products._LAST.x is None
        assert products._LAST.outs == {}

    def test_layers_of_different_inputs_soon_go_by_themselves(self, monkeypatch):
        model = torch.nn.Sequential(Mixing(32)).eval()
        accelerate(model, measure=False)
        one, other = torch.randn(3, 32), torch.randn(5, 32)
        mixing = model[0]
        with torch.inference_mode():
            expected = mixing.q_proj(one), mixing.k_proj(other), mixing.v_proj(other)
            for _ in range(4):
                found = mixing.q_proj(one), mixing.k_proj(other), mixing.v_proj(other)
                for new, old in zip(found, expected, strict=True):
                    torch.testing.assert_close(new, old)
            rows = []
            multiply = products.packed_linear
            monkeypatch.setattr(
                products,
                "packed_linear",
                lambda x, packed, bias: rows.append(packed.shape[0]) or multiply(x, packed, bias),
            )
            mixing.q_proj(one)
            mixing.k_proj(other)
        assert rows == [128, 64]

    def test_a_weight_that_changes_between_two_of_them_is_read_again(self):
        model = torch.nn.Sequential(Mixing(32)).eval()
        accelerate(model, measure=False)
        x, mixing = torch.randn(3, 32), model[0]
        with torch.no_grad():
            mixing.q_proj(x)
            mixing.k_proj.weight.data.mul_(2)
            expected = torch.nn.functional.linear(x, mixing.k_proj.weight.unpack())
            torch.testing.assert_close(mixing.k_proj(x), expected)

    def test_another_or_a_changed_input_is_multiplied_again(self):
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
        storages = {part.weight.packed_data.untyped_storage().data_ptr() for part in parts}
        assert len(storages) == 1
        assert [part.weight.shape[0] for part in parts] == [128, 64, 64]


def test_gradients_reach_the_input():
    model = torch.nn.Sequential(Mixing(32), Gated(32, 64)).eval()
    x = torch.randn(2, 32, requires_grad=True)
    (expected,) = torch.autograd.grad(model(x).sum(), x)
    accelerate(model, measure=False)
    (found,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", [None, "int4"], ids=str)
def test_a_compiled_model_gives_the_eager_results_in_one_graph(weights):
    model = model_of()
    # A graph multiplies by a tied weight itself, which is not rounded.
    accelerate(model, weights=weights, skip=["head"], measure=False)
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
    assert {name: tensor.shape for name, tensor in state.items()} == {
        name: tensor.shape for name, tensor in model_of().state_dict().items()
    }
    del state["head.weight"]
    save_file(state, tmp_path / "model.safetensors")
    other.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    with torch.inference_mode():
        torch.testing.assert_close(other(TOKENS), model(TOKENS), rtol=1e-4, atol=1e-4)


def test_a_copy_is_whole_and_independent():
    model = model_of()
    accelerate(model, weights="int8", measure=False)
    copied = copy.deepcopy(model)
    with torch.inference_mode():
        assert torch.equal(copied(TOKENS), model(TOKENS))
        expected = model(TOKENS)
    with torch.no_grad():
        for weight in copied.parameters():
            weight.copy_(torch.zeros(weight.shape))
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
        own = model.gated.forward
        model.gated.forward = lambda x: own(x) + 1
        with pytest.raises(AccelerateError, match="another forward on a Gated"):
            done.undo()
        assert type(model.gated.down_proj.weight) is PackedTensor
        model.gated.forward = own
        done.undo()

    def test_undo_keeps_what_was_put_in_since(self):
        model = model_of()
        done = accelerate(model, measure=False)
        model.mixing.o_proj.weight = own = torch.nn.Parameter(torch.zeros(32, 64))
        with torch.no_grad():
            model.gated.up_proj.weight.data += 1
            changed = model.gated.up_proj.weight.unpack()
            expected = model(TOKENS)
        done.undo()
        assert model.mixing.o_proj.weight is own
        assert torch.equal(model.gated.up_proj.weight, changed)
        with torch.no_grad():
            torch.testing.assert_close(model(TOKENS), expected, rtol=1e-4, atol=1e-4)

    def test_undo_of_a_rounded_weight_that_was_written_is_refused(self):
        model = model_of()
        done = accelerate(model, weights="int8", measure=False)
        with torch.no_grad():
            model.gated.up_proj.weight.copy_(torch.ones(64, 32))
        with pytest.raises(AccelerateError, match=r"gated\.up_proj\.weight was written since"):
            done.undo()
        assert type(model.gated.up_proj.weight) is PackedTensor

    def test_weights_that_cannot_be_rounded(self):
        model = model_of()
        with torch.no_grad():
            model.gated.up_proj.weight[0, 0] = float("nan")
        with pytest.raises(AccelerateError, match=r"finite numbers.*the model is unchanged"):
            accelerate(model, weights="int8")
        assert type(model.head) is torch.nn.Linear
