"""max_autotune: the fastest of all who compute a call is chosen from then on."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn.functional import gelu, silu

import torchyard
from torchyard import Source, registry
from torchyard_kernels import PackedWeight, bmm, linear, max_autotune
from torchyard_kernels.linear import _tuning
from torchyard_kernels.linear.contract import LINEAR, LinearRequest
from torchyard_kernels.linear.implementations import compiled

REQUEST = LinearRequest("cpu", "float32", 5, 48, 32)


def forget():
    registry()._tuned = None
    registry()._plugins_changed()


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    """Keep what is measured in a folder of the test; measure nobody who compiles."""
    file = tmp_path / "tuned.json"
    monkeypatch.setattr("torchyard._registry.tuned.tuned_path", lambda: file)
    candidates = _tuning._candidates
    monkeypatch.setattr(
        _tuning,
        "_candidates",
        lambda request: [name for name in candidates(request) if name != "kernels.compiled"],
    )
    forget()
    yield file
    monkeypatch.undo()
    forget()


@pytest.fixture
def tensors():
    return torch.randn(5, 32), torch.randn(48, 32)


def times(monkeypatch, **milliseconds):
    """Let the candidates take these times."""
    given = {name.replace("_", ".", 1): found for name, found in milliseconds.items()}
    monkeypatch.setattr(_tuning, "_turns", lambda calls, runs, seconds: given)


def test_a_bucket_is_measured_once_and_the_choice_stored(path, tensors, monkeypatch):
    x, weight = tensors
    expected = linear(x, weight)
    with max_autotune(seconds=0.01) as found:
        for rows in (5, 5, 3):
            linear(x[:rows], weight)
        linear(x, weight, epilogue=gelu)
        linear(x.half(), PackedWeight(weight.half()))
    assert [tuned.bucket for tuned in found] == [
        "cpu float32 1x5x48x32",
        "cpu float32 1x3x48x32",
        "cpu float32 1x5x48x32 epilogue",
        "cpu float16 1x5x48x32 weight=panels",
    ]
    first = found[0]
    assert {first.before, "kernels.torch"} <= set(first.milliseconds)
    assert not any("reference" in name for name in first.milliseconds)
    entries = next(iter(json.loads(path.read_text())["machines"].values()))
    assert entries["linear/1 cpu float32 1x5x48x32"]["implementation"] == first.chosen
    torch.testing.assert_close(linear(x, weight), expected)
    # Another process reads it.
    forget()
    assert registry().decide(LINEAR, REQUEST).source is Source.TUNED
    with max_autotune(seconds=0.01) as more:
        linear(x, weight)
    assert more == []
    with max_autotune(seconds=0.01, again=True) as more:
        linear(x, weight)
    assert len(more) == 1
    monkeypatch.setenv("TORCHYARD_TUNED", "off")
    assert registry().decide(LINEAR, REQUEST).source is Source.ORDER


@pytest.mark.parametrize(
    ("before", "other", "replaced"),
    [
        ([2.0] * 5, [1.0] * 5, True),
        ([1.0] * 5, [0.99] * 5, False),
        ([1.0] * 5, [0.5, 0.5, 0.5, 1.1, 1.1], False),
        ([1.0] * 5, [2.0] * 5, False),
    ],
    ids=["clearly faster", "hardly faster", "not each time", "slower"],
)
def test_only_who_is_clearly_faster_replaces_the_present_choice(
    tensors, monkeypatch, before, other, replaced
):
    present = registry().decide(LINEAR, REQUEST).name
    times(monkeypatch, **{present.replace(".", "_"): before, "kernels_torch": other})
    with max_autotune() as found:
        linear(*tensors)
    assert found[0].chosen == ("kernels.torch" if replaced else present)
    decision = registry().decide(LINEAR, REQUEST)
    assert decision.name == found[0].chosen
    assert "decided by tuned" in decision.render()
    torch.testing.assert_close(linear(*tensors), torch.nn.functional.linear(*tensors))


@pytest.mark.parametrize("fault", ["raises", "wrong"])
def test_who_raises_or_is_wrong_is_not_measured(tensors, monkeypatch, fault):
    resolve = type(registry()).resolve

    def faulty(call):
        if fault == "raises":
            raise RuntimeError("no compiler\nand more")
        return torch.zeros(5, 48)

    def found(self, contract, request, *, use=None):
        chosen = resolve(self, contract, request, use=use)
        return faulty if use == "kernels.torch" else chosen

    monkeypatch.setattr(type(registry()), "resolve", found)
    with max_autotune(seconds=0.01) as report:
        linear(*tensors)
    assert "kernels.torch" not in report[0].milliseconds
    reason = "RuntimeError: no compiler" if fault == "raises" else "its result is 1.0e+00 away"
    assert report[0].refused["kernels.torch"].startswith(reason)


def test_who_is_demanded_is_not_measured_against_others(tensors):
    with torchyard.use(linear="kernels.torch"), max_autotune() as found:
        linear(*tensors)
    assert found == []


def test_packed_weights_are_not_compiled():
    request = LinearRequest("cpu", "float32", 1, 4096, 4096, weight="panels")
    trace = registry().decide(LINEAR, request).trace
    verdict = {item.name: item.verdict for item in trace}["kernels.compiled"]
    assert not verdict.supported
    assert verdict.text == "compiles plain weights; got panels"


def test_no_time_is_refused():
    with (
        pytest.raises(ValueError, match="seconds: expected a finite number above 0, got 0"),
        max_autotune(seconds=0),
    ):
        pass


def test_weights_take_turns_from_memory(tensors):
    call = _tuning.LinearCall(*tensors)
    copies = _tuning._copies(call)
    assert len(copies) == _tuning._MOST_COPIES
    assert copies[0] is call.weight
    assert len({copy.data_ptr() for copy in copies}) == len(copies)
    assert torch.equal(copies[-1], call.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_is_compiled_is_the_call(dtype):
    x, weight = torch.randn(2, 5, 32).to(dtype), torch.randn(48, 32).to(dtype)
    bias, scale = torch.randn(48).to(dtype), torch.randn(32).to(dtype)

    def gated(gate, up):
        return (silu(gate) * up).float()

    # So small that it is not compiled: what a compiler would be given.
    with torchyard.use(linear="kernels.compiled"):
        found = linear(x, weight, bias, prologue=lambda x: x * scale, epilogue=gated)
        plain = linear(x, weight)
        batched = bmm(x, weight.view(2, 24, 32).mT)
    exact = torch.nn.functional.linear(x.double() * scale.double(), weight.double(), bias.double())
    gate, up = exact.chunk(2, -1)
    size = 32 * torch.finfo(dtype).eps * (1 + gate.abs()) * (1 + up.abs())
    assert found.dtype == torch.float32
    assert ((found.double() - silu(gate) * up).abs() <= 8 * size).all()
    torch.testing.assert_close(plain, torch.nn.functional.linear(x, weight))
    torch.testing.assert_close(batched, torch.bmm(x, weight.view(2, 24, 32).mT))


@pytest.mark.sweep
def test_torch_compiles_a_call_of_its_own_code(monkeypatch):
    monkeypatch.setattr(compiled, "_LEAST_WORK", 0)
    compiled._compiled.cache_clear()
    with torchyard.use(linear="kernels.compiled"):
        for rows in (3, 7):
            x, weight = torch.randn(rows, 32), torch.randn(48, 32)
            torch.testing.assert_close(
                linear(x, weight, epilogue=gelu), gelu(torch.nn.functional.linear(x, weight))
            )
