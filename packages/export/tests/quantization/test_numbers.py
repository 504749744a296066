"""A quantized program's numbers: from its codes and scales by hand, and from the float model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from packages.export.tests.models.quantizable import (
    perceptron,
    picture,
    pictures,
    quantized,
    rows,
)
from torchyard_export import quantize
from torchyard_export._audit.exact import ExactGraph
from torchyard_export._audit.reference import Reference
from torchyard_export._audit.rounding import ROUNDS, WIDENS, call_name
from torchyard_export._call import Call


def _arguments(graph: GraphModule, names: frozenset[str]) -> list[tuple[Any, ...]]:
    return [node.args for node in graph.graph.nodes if call_name(node) in names]


def _weights(graph: GraphModule) -> list[tuple[Tensor, Tensor]]:
    found = []
    for node in graph.graph.nodes:
        if "per_channel" in call_name(node):
            codes, scales = (getattr(graph, str(item.target)) for item in node.args[:2])
            found.append((codes, scales))
    return found


@pytest.mark.parametrize("target", ["x86", "xpu"])
def test_static_codes_and_scales_make_the_result(target: Any) -> None:
    model, made = perceptron(), quantized(target=target).model
    (x,) = rows(6)[0]
    low, high = (0, 255) if target == "x86" else (-128, 127)
    value = x.double()
    steps = []
    layers = (model.inner, model.classes)
    for layer, (_, scale, zero, *ends), (codes, scales) in zip(
        layers, _arguments(made, ROUNDS), _weights(made), strict=True
    ):
        assert ends[:2] == [low, high]
        weight = layer.weight.detach().double()
        # A scale per output channel, so that small channels keep their digits.
        torch.testing.assert_close(scales.double(), weight.abs().amax(1) / 127.5, rtol=1e-6, atol=0)
        assert codes.dtype == torch.int8
        # The greatest of a channel is at a tie, 127.5, which float32 rounds either way.
        assert float((codes - weight / scales.double()[:, None]).abs().max()) <= 0.5 + 1e-4
        value = ((value / scale).round() + zero).clamp(low, high).sub(zero).mul(scale)
        steps.append((value, scale))
        value = value @ (codes.double() * scales.double()[:, None]).T + layer.bias.double()
        if layer is model.inner:
            value = value.relu()
    with torch.no_grad():
        got = made(x)
    # A naive float32 sum of K products is off by at most K units of the sum of their sizes.
    codes, scales = _weights(made)[1]
    sizes = steps[1][0].abs() @ (codes.double().abs() * scales.double()[:, None]).T
    units = 33 * torch.finfo(torch.float32).eps
    assert bool(((got.double() - value).abs() <= units * (sizes + 1)).all())


def test_the_distance_from_float_is_what_half_steps_make() -> None:
    model = perceptron()
    made = quantized(keep=["classes"]).model
    ((_, scale, zero, low, high, _),) = _arguments(made, ROUNDS)
    (x,) = rows(32)[0]
    x = x.clamp((low - zero) * scale, (high - zero) * scale)
    ((codes, scales),) = _weights(made)
    half_x, half_w = scale / 2, scales.double()[:, None] / 2
    weight = model.inner.weight.detach().double()
    inner = (
        half_x * weight.abs().sum(1)
        + x.double().abs() @ half_w.expand_as(weight).T
        + (half_x * half_w * 16).T
    )
    bound = inner @ model.classes.weight.detach().double().abs().T
    with torch.no_grad():
        error = (made(x) - model(x)).double().abs()
    assert codes.shape == weight.shape
    assert bool((error <= 1.001 * bound + 1e-6).all())
    assert float(error.max()) > 0.0


def test_dynamic_scales_are_of_each_call_and_hold_zero() -> None:
    made = quantized(activations="dynamic").model
    assert not [node for node in made.graph.nodes if "choose_qparams" in call_name(node)]
    model = perceptron()
    for shift in (0.0, 10.0, -10.0):
        (x,) = rows(6)[0]
        x = x * (1 + abs(shift)) + shift
        with torch.no_grad():
            error = float((made(x) - model(x)).abs().max())
            size = float(model(x).abs().max())
        # Activations of all signs would saturate, were zero out of the range.
        assert error <= 0.02 * size


def test_float64_between_codes_is_what_the_program_approaches() -> None:
    for activations in ("static", "dynamic"):
        made = quantized(activations=activations).model
        (x,) = rows(6)[0]
        exact = ExactGraph(made)(x.double())
        with torch.no_grad():
            got = made(x)
        assert exact.dtype == torch.float64
        assert float((got - exact).abs().max()) <= 1e-5 * float(exact.abs().max())
        assert _arguments(made, WIDENS)


def test_ties_are_rounded_the_other_way_and_bound_the_result() -> None:
    made = quantized().model
    (x,) = rows(6)[0]
    other = ExactGraph(made, ties=True)(x.double())
    exact = ExactGraph(made)(x.double())
    distance = float((other - exact).abs().max())
    step = float(_arguments(made, ROUNDS)[0][1])
    assert 0.0 < distance <= 20 * step
    case = Reference(made, Call.bind(made, (x,), {})).case({}, {"x": x})
    assert case.bounds == [pytest.approx(2 * distance)]


def test_an_empty_batch_has_codes_of_none() -> None:
    made = quantized().model
    assert ExactGraph(made, ties=True)(torch.zeros(0, 16, dtype=torch.float64)).shape == (0, 5)


def test_calls_by_name_reach_the_exact_graph() -> None:
    call = pictures(3)[0]
    made = quantize(picture(), (call["x"],), {"bias": call["bias"]}, calibration=[call]).model
    wide = {name: tensor.double() for name, tensor in call.items()}
    exact = ExactGraph(made)(wide["x"], bias=wide["bias"])
    with torch.no_grad():
        got = made(**call)
    assert list(exact) == ["scores"]
    assert float((got["scores"] - exact["scores"]).abs().max()) < 1e-2
