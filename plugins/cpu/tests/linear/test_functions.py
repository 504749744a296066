"""Functions before and after a linear layer run in every kernel, whatever the sizes and threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard import Platform, ReasonCode, registry, use
from torchyard.dispatch import decision_cache
from torchyard_cpu import _isa, _native
from torchyard_cpu.linear import supports
from torchyard_cpu.linear._product import NativeLinear
from torchyard_kernels import PackedWeight, linear
from torchyard_kernels.linear.contract import LINEAR, LinearCall, LinearRequest, Packed, WeightSpec

FEATURES = frozenset(_native.cpu_features())
ISAS = [isa for isa, needed in _isa.feature_sets().items() if needed <= FEATURES]
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def silu(value):
    return torch.nn.functional.silu(value)


@pytest.fixture(params=ISAS)
def isa(request, monkeypatch):
    """Let cpu.native be the kernels of one instruction set."""
    native = NativeLinear(request.param)
    resolve = type(registry()).resolve

    def chosen(self, contract, *args, **kwargs):
        found = resolve(self, contract, *args, **kwargs)
        return native if isinstance(found, NativeLinear) else found

    monkeypatch.setattr(type(registry()), "resolve", chosen)
    with use(linear="cpu.native"):
        # What was concluded of the kernels of another instruction set.
        decision_cache().clear()
        yield native
        decision_cache().clear()


@settings(max_examples=25)
@given(
    rows=st.integers(1, 33),
    half=st.integers(1, 3).map(lambda panels: 32 * panels),
    depth=st.one_of(st.integers(1, 70), st.integers(500, 600)),
    batches=st.integers(1, 3),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(["plain", "packed", "odd"]),
    biased=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
def test_gated_functions_of_any_sizes_are_right(
    rows, half, depth, batches, dtype, layout, biased, threads
):
    half += 5 if layout == "odd" else 0
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)

    x, weight = normal(batches, rows, depth), normal(2 * half, depth)
    bias = normal(2 * half) if biased else None
    residual, norm, scale = normal(batches, rows, half), normal(batches, rows, 1), normal(depth)
    held = PackedWeight(weight) if layout == "packed" else weight
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with use(linear="cpu.native"):
            out = linear(
                x,
                held,
                bias,
                prologue=lambda x: x * norm * scale,
                epilogue=lambda gate, up: torch.tanh(gate) * up + residual,
            )
    finally:
        torch.set_num_threads(before)
    scaled = (x.double() * norm.double() * scale.double()).to(dtype).double()
    wide = None if bias is None else bias.double()
    y = torch.nn.functional.linear(scaled, weight.double(), wide)
    gate, up = y.chunk(2, -1)
    exact = torch.tanh(gate) * up + residual.double()
    # The prologue's own result may round to the other neighbour, which moves y by an eps of the
    # products; beside that y, the function's steps and the result are rounded.
    size = torch.nn.functional.linear(scaled.abs(), weight.double().abs())
    bound = 4 * torch.finfo(dtype).eps * (1 + size.chunk(2, -1)[0]) * (1 + size.chunk(2, -1)[1])
    assert ((out.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
# The last with a weight that is not turned where it is plain.
@pytest.mark.parametrize(("rows", "depth"), [(1, 520), (7, 520), (40, 520), (32, 2080)])
@pytest.mark.parametrize("packed", [False, True])
def test_every_instruction_set_runs_functions(isa, dtype, rows, depth, packed):
    torch.manual_seed(0)
    x, weight = torch.randn(rows, depth).to(dtype), torch.randn(192, depth).to(dtype)
    held = PackedWeight(weight) if packed else weight
    gated = linear(x, held, epilogue=lambda gate, up: silu(gate) * up)
    y = torch.nn.functional.linear(x.double(), weight.double())
    gate, up = y.chunk(2, -1)
    exact = silu(gate) * up
    size = torch.nn.functional.linear(x.double().abs(), weight.double().abs()).max()
    error = (gated.double() - exact).abs()
    # Either half is off by at most its float32 sum's roundings, times the slope in it.
    sums = depth * torch.finfo(torch.float32).eps * size * (1 + gate.abs() + 1.1 * up.abs())
    assert (error <= torch.finfo(dtype).eps * exact.abs() + sums).all()
    wide = linear(x, held, epilogue=lambda y: y.float())
    assert wide.dtype == torch.float32
    plain = Packed(WeightSpec.parse(held.spec_text), tuple(held.tensors)) if packed else weight
    assert torch.equal(wide.to(dtype), isa(LinearCall(x, plain)))


@pytest.mark.parametrize(("rows", "depth"), [(1, 700), (16, 700), (40, 700), (64, 1100)])
@pytest.mark.parametrize("packed", [False, True])
def test_functions_give_the_same_bits_for_any_number_of_threads(rows, depth, packed):
    x, weight = torch.randn(rows, depth), torch.randn(2 * 544, depth)
    held, before, found = PackedWeight(weight) if packed else weight, torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(linear(x, held, prologue=torch.tanh, epilogue=lambda g, u: silu(g) * u))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_what_kernels_cannot_run_is_refused_with_its_reason():
    platform = Platform("Linux", "x86_64", FEATURES, 2, "3.12", "2.13.0", frozenset({"cpu"}))

    def verdict(**fields):
        return supports(LinearRequest("cpu", "float16", 1, 72, 64, **fields), platform)

    gated = '["mul", ["gate", "up"], {}]\n"%0"'
    assert verdict(epilogue=gated, gated=True).supported
    halves = verdict(epilogue=gated, gated=True, weight="panels")
    assert halves.code == ReasonCode.OTHER
    assert "halves of whole panels of 32 outputs, and a half has 36" in halves.text
    lacking = verdict(epilogue='["digamma", ["y"], {}]\n"%0"')
    assert lacking.code == ReasonCode.OTHER
    assert "digamma" in lacking.text
    x, weight = torch.rand(2, 8) + 1, torch.rand(8, 8) + 1
    out = linear(x, weight, epilogue=torch.digamma)
    torch.testing.assert_close(out, torch.digamma(x @ weight.T))
    decision = registry().decide(
        LINEAR, LinearRequest("cpu", "float16", 1, 72, 64, epilogue='["digamma",["y"],{}]\n"%0"')
    )
    assert decision.name == "kernels.composed"
