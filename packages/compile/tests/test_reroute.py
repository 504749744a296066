"""torch's functions in an unmodified model, by what the registry chooses, or left to torch."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import torchyard
from torchyard_compile import CallSite, RerouteMismatchError, reroute


def _drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def _attend(**words: Any) -> Tensor:
    kv_heads = words.pop("kv_heads", 4)
    dtype = words.pop("dtype", torch.float32)
    query, key = _drawn(2, 4, 33, 16, dtype=dtype), _drawn(2, kv_heads, 40, 16, dtype=dtype)
    return functional.scaled_dot_product_attention(query, key, key.flip(0), **words)


def _layer(kind: Any, **words: Any) -> Any:
    torch.manual_seed(0)
    shape: tuple[int, ...] = (3, 7, 8) if words.get("batch_first") else (7, 3, 8)
    shape = shape[1:] if words.pop("one", False) else shape
    return kind(8, 12, **words)(_drawn(*shape))


_VISIBLE = torch.rand((2, 1, 33, 40), generator=torch.Generator().manual_seed(2)) < 0.5

REROUTED: dict[str, Callable[[], Any]] = {
    "attention": _attend,
    "attention bfloat16": lambda: _attend(dtype=torch.bfloat16),
    "attention causal": lambda: _attend(is_causal=True),
    "attention scale": lambda: _attend(scale=0.3),
    "attention grouped": lambda: _attend(kv_heads=2, enable_gqa=True),
    "attention mask": lambda: _attend(attn_mask=_VISIBLE),
    "attention mask of rows": lambda: _attend(attn_mask=_VISIBLE[0, 0]),
    "attention mask of keys": lambda: _attend(attn_mask=_VISIBLE[:, :, :1]),
    "attention mask of heads": lambda: _attend(attn_mask=_VISIBLE[:1].expand(1, 4, -1, -1)),
    "linear": lambda: functional.linear(_drawn(3, 5, 8), _drawn(4, 8), _drawn(4)),
    "linear bfloat16": lambda: functional.linear(
        _drawn(3, 64, dtype=torch.bfloat16), _drawn(8, 64, dtype=torch.bfloat16)
    ),
    "addmm": lambda: torch.addmm(_drawn(4), _drawn(3, 8), _drawn(8, 4)),
    "addmm bfloat16": lambda: torch.addmm(
        *(_drawn(*shape, dtype=torch.bfloat16) for shape in ((8,), (3, 64), (64, 8)))
    ),
    "topk": lambda: torch.topk(_drawn(5, 100), 7),
    "topk method": lambda: _drawn(5, 100).topk(7, dim=0 - 1, largest=False),
    "topk of columns": lambda: _drawn(100, 5).topk(7, 0, sorted=False),
    "lstm": lambda: _layer(nn.LSTM, num_layers=2, bidirectional=True),
    "lstm projected": lambda: _layer(nn.LSTM, proj_size=5),
    "lstm without bias": lambda: _layer(nn.LSTM, bias=False, batch_first=True),
    "gru": lambda: _layer(nn.GRU, batch_first=True),
    "gru of one sequence": lambda: _layer(nn.GRU, one=True),
    "rnn": lambda: _layer(nn.RNN),
    "rnn relu": lambda: _layer(nn.RNN, nonlinearity="relu"),
}


def _flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [t for item in result for t in _flat(item)]


@pytest.mark.parametrize("name", REROUTED)
def test_a_call_gives_what_torch_gives(name: str) -> None:
    call = REROUTED[name]
    expected = call()
    with torch.no_grad(), reroute(verify=True) as rerouted:
        found = call()
    (site,) = rerouted.explain()
    # The plugin chooses torch's own layers for some recurrent calls.
    assert site.implementation in {"cpu.native", "cpu.torch"}
    assert type(found) is type(expected)
    for ours, theirs in zip(_flat(found), _flat(expected), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if not name.startswith("topk of"):
            torch.testing.assert_close(ours, theirs, rtol=2e-2 if "16" in name else 1e-4, atol=1e-2)


def _packed() -> Any:
    packed = nn.utils.rnn.pack_sequence([_drawn(5, 8), _drawn(3, 8)])
    return nn.LSTM(8, 8)(packed)


LEFT_ALONE: dict[str, tuple[Callable[[], Any], str]] = {
    "dropout": (lambda: _attend(dropout_p=0.5), "torch draws other weights"),
    "added mask": (lambda: _attend(attn_mask=_VISIBLE.float()), "a mask that is added"),
    "mask and causal": (
        lambda: _attend(attn_mask=_VISIBLE, is_causal=True),
        "attn_mask and is_causal together",
    ),
    "three dimensions": (
        lambda: functional.scaled_dot_product_attention(
            _drawn(4, 8, 16), _drawn(4, 8, 16), _drawn(4, 8, 16)
        ),
        "expected [B, H, S, D], got 3",
    ),
    "addmm of a matrix": (
        lambda: torch.addmm(_drawn(3, 4), _drawn(3, 8), _drawn(8, 4)),
        "adds [3, 4], no bias",
    ),
    "addmm scaled": (
        lambda: torch.addmm(_drawn(4), _drawn(3, 8), _drawn(8, 4), beta=2, alpha=0.5),
        "beta 2 and alpha 0.5",
    ),
    "topk of nothing": (lambda: _drawn(3).topk(0), "k: expected 1 to 3, got 0"),
    "subclass": (
        lambda: functional.linear(_Own(_drawn(2, 3)), _drawn(4, 3)),
        "a _Own, no plain tensor",
    ),
    "packed sequences": (_packed, "packed sequences"),
    "out": (
        lambda: torch.topk(_drawn(9), 2, out=(torch.empty(2), torch.empty(2).long())),
        "arguments that are not rerouted",
    ),
    "vmap": (lambda: torch.vmap(lambda x: x.topk(2).values)(_drawn(3, 9)), "torch.vmap"),
    "complex": (
        lambda: functional.linear(
            _drawn(2, 3, dtype=torch.complex64), _drawn(4, 3, dtype=torch.complex64)
        ),
        "x is torch.complex64",
    ),
}


class _Own(Tensor):
    pass


def _takes_both() -> bool:
    try:
        LEFT_ALONE["mask and causal"][0]()
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_call_that_the_op_computes_otherwise_is_left_to_torch_with_the_reason(name: str) -> None:
    if name == "mask and causal" and not _takes_both():
        pytest.skip("this torch refuses it")
    call, reason = LEFT_ALONE[name]
    with torch.no_grad(), reroute() as rerouted:
        call()
    (site,) = rerouted.explain()
    assert not site.implementation
    assert reason in site.reason
    assert "test_reroute.py" in site.where
    assert f"left alone: {site.reason}" in str(site)


def test_an_error_of_torch_stays_torchs() -> None:
    for call in (
        lambda: functional.linear(_drawn(2, 3), _drawn(4, 5)),
        lambda: _drawn(3).topk(9),
        lambda: functional.scaled_dot_product_attention(
            _drawn(2, 3, 4, 5), _drawn(2, 3, 4, 5), _drawn(1, 1)
        ),
    ):
        with pytest.raises(RuntimeError) as stock:
            call()
        with reroute(), pytest.raises(RuntimeError) as rerouted:
            call()
        assert str(rerouted.value) == str(stock.value)


def test_what_the_user_demands_is_what_the_registry_chooses() -> None:
    with reroute() as rerouted, torchyard.use(attention="attention.sdpa"):
        _attend()
    (site,) = rerouted.explain()
    assert (site.implementation, "attention.sdpa" in site.reason) == ("", True)
    with reroute() as rerouted:
        _attend()
    assert rerouted.explain()[0].implementation == "cpu.native"


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return x + out


def _model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(_Block(), _Block())


def test_a_model_is_rerouted_until_it_is_undone() -> None:
    model, x = _model(), _drawn(2, 20, 32)
    expected = model(x)
    rerouted = reroute(model, verify=True)
    torch.testing.assert_close(model(x), expected)
    sites = {site.function: site for site in rerouted.explain() if site.implementation}
    assert set(sites) == {"linear", "scaled_dot_product_attention"}
    assert sites["scaled_dot_product_attention"].calls == 2
    rerouted.undo()
    model(x)
    assert sum(site.calls for site in rerouted.explain()) == 6
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_gradients_are_those_of_a_stock_model() -> None:
    model, x = _model(), _drawn(2, 20, 32)
    model(x).square().sum().backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    with reroute() as rerouted:
        model(x).square().sum().backward()
    assert any(site.implementation for site in rerouted.explain())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-3, atol=1e-4)


def test_a_model_that_raises_leaves_no_mode_behind() -> None:
    model = _model()
    rerouted = reroute(model)
    with pytest.raises(RuntimeError):
        model(_drawn(2, 20, 31))
    before = rerouted.explain()
    _attend()
    assert rerouted.explain() == before


def test_a_copy_and_a_state_dict_are_those_of_the_model() -> None:
    model, x = _model(), _drawn(2, 20, 32)
    names = list(model.state_dict())
    expected = model(x)
    reroute(model)
    assert list(model.state_dict()) == names
    torch.testing.assert_close(copy.deepcopy(model)(x), expected)


def test_a_function_is_rerouted_in_every_thread() -> None:
    rerouted = reroute()
    attend = rerouted(_attend)
    expected = _attend()
    threads = [threading.Thread(target=lambda: found.append(attend())) for _ in range(4)]
    found: list[Tensor] = []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in found:
        torch.testing.assert_close(result, expected)
    assert sum(site.calls for site in rerouted.explain()) == len(found) == 4


@pytest.mark.sweep
@pytest.mark.parametrize("of", ["with", "model"])
def test_what_torch_leaves_uncompiled_in_a_compiled_model_is_rerouted(of: str) -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LSTM(4, 5, batch_first=True)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layers(x + 1)[0] * 2

    torch.compiler.reset()
    model, x = Layers().eval(), torch.randn(2, 3, 4)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model(x)
        if of == "model":
            routes: Any = reroute(model)
            found = torch.compile(model.forward, backend="aot_eager")
            model.__dict__["forward"] = found
            torch.testing.assert_close(model(x), expected)
        else:
            routes = reroute()
            compiled = torch.compile(model, backend="aot_eager")
            with routes:
                torch.testing.assert_close(compiled(x), expected)
    assert [site.function for site in routes.explain()] == ["lstm"]
    torch.compiler.reset()


@pytest.mark.sweep
def test_calls_inside_of_torch_compile_are_the_compilers() -> None:
    model, x = _model(), _drawn(2, 20, 32)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with reroute() as rerouted:
        torch.testing.assert_close(compiled(x), model(x))
    # Those of the model that is not compiled.
    assert sum(site.calls for site in rerouted.explain()) == 6


def test_autocast_is_as_torchs() -> None:
    x, weight = _drawn(3, 64), _drawn(8, 64)
    with torch.autocast("cpu", torch.bfloat16):
        expected = functional.linear(x, weight)
        with reroute(verify=True):
            found = functional.linear(x, weight)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("inference", [False, True])
def test_a_mask_that_was_written_to_is_read_again(inference: bool) -> None:
    with torch.inference_mode(inference), reroute(verify=True):
        visible = _VISIBLE.clone()
        _attend(attn_mask=visible)
        visible.logical_not_()
        _attend(attn_mask=visible)


def test_masks_of_several_threads_are_not_exchanged() -> None:
    masks = [torch.rand((2, 1, 33, 40)) < 0.5 for _ in range(4)]
    expected = [_attend(attn_mask=mask) for mask in masks]
    wrong: list[int] = []
    rerouted = reroute()

    def run(place: int) -> None:
        with rerouted:
            for _ in range(30):
                if not torch.allclose(_attend(attn_mask=masks[place]), expected[place], atol=1e-5):
                    wrong.append(place)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(site.calls for site in rerouted.explain() if site.implementation) == 120


def test_a_wrong_result_is_named_where_both_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    import torchyard_kernels

    right = torchyard_kernels.linear
    monkeypatch.setattr(
        "torchyard_kernels.linear", lambda x, weight, bias: right(x, weight, bias) * 1.01
    )
    with reroute(verify=True), pytest.raises(RerouteMismatchError, match="linear: expected"):
        functional.linear(_drawn(3, 8), _drawn(4, 8))
    with reroute():
        functional.linear(_drawn(3, 8), _drawn(4, 8))


@pytest.mark.parametrize(
    ("words", "error"),
    [({"model": 3}, "model: expected a torch.nn.Module"), ({"verify": 1}, "verify: expected")],
)
def test_bad_arguments(words: dict[str, Any], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        reroute(**words)


def test_a_call_site_is_one_line() -> None:
    site = CallSite("linear", "a.py:3", 2, "cpu.native", "the registry's choice by order")
    assert str(site) == "linear (a.py:3, 2 calls): cpu.native: the registry's choice by order"
