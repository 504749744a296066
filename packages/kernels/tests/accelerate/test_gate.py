"""A gated layer's activation runs in the product before it, where that computes the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from torchyard import registry
from torchyard_kernels import accelerate

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# More than pass through a bound product, and than lie in one dimension.
SHAPE = (2, 20, 96)


class Gated(torch.nn.Module):
    """A gated layer as transformers' models have it."""

    def __init__(self, act, bias=False):
        super().__init__()
        self.gate_proj = torch.nn.Linear(96, 128, bias=bias)
        self.up_proj = torch.nn.Linear(96, 128, bias=bias)
        self.down_proj = torch.nn.Linear(128, 96, bias=bias)
        self.act_fn = act

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Shifted(torch.nn.Module):
    """An activation with a number and a tensor of its own."""

    def __init__(self):
        super().__init__()
        self.shift = 1.0
        self.held = torch.tensor(2.0)

    def forward(self, x):
        return torch.tanh(x + self.shift)


class Held(Shifted):
    def forward(self, x):
        return torch.tanh(x * self.held.to(x.dtype))


class Summed(torch.nn.Module):
    def forward(self, x):
        return x.softmax(-1)


class Asking(torch.nn.Module):
    def forward(self, x):
        return x if float(x.flatten()[0]) > 0 else -x


def model_of(act, dtype=torch.float32, weights=None, bias=False):
    torch.manual_seed(0)
    plain = torch.nn.Sequential(Gated(act, bias)).to(dtype).eval()
    model = copy.deepcopy(plain)
    accelerate(model, weights=weights, measure=False)
    return plain, model


def ops_of(call):
    with profile(activities=[ProfilerActivity.CPU]) as found:
        call()
    names = [event.key.removeprefix("torchyard_kernels::") for event in found.key_averages()]
    return sorted(name for name in names if name in ("linear", "linear_fused"))


def error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


@pytest.fixture
def x():
    torch.manual_seed(1)
    with torch.no_grad():
        yield torch.randn(SHAPE)


JOINED = ["linear", "linear_fused"]
ALONE = ["linear"]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "act",
    [torch.nn.SiLU(), torch.nn.GELU("tanh"), torch.relu, torch.nn.functional.silu, Shifted()],
    ids=lambda act: getattr(act, "__name__", type(act).__name__),
)
def test_it_is_as_near_to_float64_as_apart(act, dtype, bias, x):
    plain, model = model_of(act, dtype, bias=bias)
    x = x.to(dtype)
    exact = copy.deepcopy(plain).double()(x.double())
    assert ops_of(lambda: model(x)) == JOINED
    # Halves that are not rounded on the way can only be nearer, but for what the sums' order does.
    assert error(model(x), exact) <= 1.2 * error(plain(x), exact)


@pytest.mark.parametrize("act", [Held(), Summed(), Asking(), torch.nn.PReLU()])
def test_what_cannot_be_recorded_for_good_runs_after_the_product(act, x):
    plain, model = model_of(act)
    assert ops_of(lambda: model(x)) == ALONE
    torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 96), (16, 96), (0, 96), (2, 0, 96)], ids=str)
def test_few_rows_go_the_way_of_a_product_alone(shape, x):
    plain, model = model_of(torch.nn.SiLU())
    x = torch.randn(shape)
    assert "linear_fused" not in ops_of(lambda: model(x))
    torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)


def test_a_change_of_the_activation_is_seen(x):
    plain, model = model_of(Shifted())

    def same():
        assert ops_of(lambda: model(x)) == JOINED
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)

    same()
    before = model(x)
    for gated in (plain[0], model[0]):
        gated.act_fn.shift = 0.25
    same()
    assert not torch.equal(model(x), before)
    for gated in (plain[0], model[0]):
        gated.act_fn = torch.nn.SiLU()
    same()


def test_hooks_on_the_parts_are_called(x):
    plain, model = model_of(torch.nn.SiLU())
    model(x)
    for part in (model[0].gate_proj, model[0].act_fn):
        seen = []
        handle = part.register_forward_hook(lambda *_, seen=seen: seen.append(1))
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)
        assert seen == [1]
        handle.remove()
        part.forward = lambda given, seen=seen, own=part.forward: seen.append(2) or own(given)
        model(x)
        assert seen == [1, 2]
        del part.forward
    assert ops_of(lambda: model(x)) == JOINED


def test_gradients_and_autocast_pass_apart(x):
    plain, model = model_of(torch.nn.SiLU())
    with torch.enable_grad():
        given = x.clone().requires_grad_()
        assert ops_of(lambda: model(given).sum().backward()) == ALONE
        mine, given.grad = given.grad, None
        plain(given).sum().backward()
    torch.testing.assert_close(mine, given.grad, rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert "linear_fused" not in ops_of(lambda: model(x))


def test_a_copy_computes_alike(x):
    _, model = model_of(torch.nn.SiLU())
    expected = model(x)
    other = copy.deepcopy(model)
    del model
    assert torch.equal(other(x), expected)
    assert ops_of(lambda: other(x)) == JOINED


def test_a_product_that_another_implementation_computes_with_functions_stays_alone(x, monkeypatch):
    plain, model = model_of(torch.nn.SiLU())
    decide = registry().decide

    def other(contract, request, **options):
        found = decide(contract, request, **options)
        if not request.epilogue:
            return found
        return type(found)(contract, request, None, found.source, found.trace)

    monkeypatch.setattr(type(registry()), "decide", staticmethod(other))
    assert ops_of(lambda: model(x)) == ALONE
    torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)
