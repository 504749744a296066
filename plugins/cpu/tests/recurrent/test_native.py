"""Native recurrent kernels against float64, on every instruction set that this processor has."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.kernels.tests.recurrent.cases import Case, cases, misses
from torchyard import ReasonCode, probe_platform, registry
from torchyard_cpu import _isa, _native
from torchyard_cpu.recurrent import supports, supports_torch
from torchyard_cpu.recurrent._forward import NativeRecurrent, run_kernel
from torchyard_kernels.recurrent.contract import FORWARD, RecurrentKind, RecurrentRequest

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
FEATURES = frozenset(_native.cpu_features())
ISAS = [isa for isa, needed in _isa.feature_sets().items() if needed <= FEATURES]
FORWARDS = {isa: NativeRecurrent(isa) for isa in ISAS}


def run(call, isa, *, threads=1):
    """Run into outputs full of NaN, with working memory full of NaN."""
    forward = FORWARDS[isa]
    packed = forward.pack(call.kind, call.weights, call.num_layers, call.bidirectional)
    with torch.no_grad():
        torch.use_deterministic_algorithms(True)  # fills what new_empty returns with NaN
        try:
            return run_kernel(call, packed, threads=threads, poison=True)
        finally:
            torch.use_deterministic_algorithms(False)


def same_bits(one, other):
    pairs = ((getattr(one, n), getattr(other, n)) for n in ("output", "hidden", "cell", "reserve"))
    return all((a is None and b is None) or torch.equal(a, b) for a, b in pairs)


@given(case=cases(FLOATS, most=70), isa=st.sampled_from(ISAS), reserve=st.booleans())
@settings(max_examples=150)
def test_kernels_are_as_near_to_float64_as_their_dtype_allows(case, isa, reserve):
    call = replace(case.call(), reserve=reserve)
    result = run(call, isa)
    assert not misses(result, call)
    if result.reserve is not None:
        assert not result.reserve.isnan().any(), "a column of the reserve was not written"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("batch", [5, 37], ids=["units are divided", "sequences are divided"])
def test_results_have_the_same_bits_for_any_number_of_threads_and_every_time(isa, dtype, batch):
    for kind in RecurrentKind:
        proj = 40 if kind is RecurrentKind.LSTM else 0
        case = Case(kind, dtype, 9, batch, 33, 100, proj, 2, bidirectional=True, ragged=True)
        call = replace(case.call(), reserve=True)
        first = run(call, isa)
        assert not misses(first, call)
        for threads in (1, 2, 3, 7):
            assert same_bits(run(call, isa, threads=threads), first), threads


def test_more_threads_than_cores_end_too():
    case = Case(RecurrentKind.GRU, steps=3, batch=64, hidden=64)
    call = case.call()
    isa = ISAS[0]
    assert same_bits(run(call, isa, threads=64), run(call, isa))


def test_the_reserve_is_what_the_portable_forward_records():
    for kind, dtype in itertools.product(RecurrentKind, FLOATS):
        proj = 5 if kind is RecurrentKind.LSTM else 0
        case = Case(kind, dtype, 4, 3, 6, 9, proj, 2, bidirectional=True, ragged=True)
        call = replace(case.call(), reserve=True)
        request = RecurrentRequest("cpu", str(dtype)[6:], kind, 4, 3, 6, 9, proj, 2, reserve=True)
        portable = registry().resolve(FORWARD, request, use="kernels.steps")(call)
        # A hidden state that is rounded the other way moves later gates by its spacing.
        atol = 1e-5 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
        for isa in ISAS:
            torch.testing.assert_close(
                run(call, isa).reserve, portable.reserve, rtol=0, atol=atol, msg=isa
            )


@pytest.mark.parametrize("isa", ISAS)
def test_inputs_lie_anywhere(isa):
    for dtype in FLOATS:
        case = Case(RecurrentKind.LSTM, dtype, steps=5, batch=4, inputs=7, hidden=9)
        call = case.call()
        expected = run(call, isa)
        wide = torch.full((5, 9, 15), float("nan"), dtype=dtype)
        wide[:, 1::2, 3:10] = call.input
        strided = wide[:, 1::2, 3:10]
        transposed = call.input.permute(2, 0, 1).contiguous().permute(1, 2, 0)
        backwards = call.input.flip(0).contiguous()
        odd = torch.empty(call.input.nbytes + 1, dtype=torch.uint8)[1:]
        odd.copy_(call.input.contiguous().view(torch.uint8).flatten())
        for layout in (
            strided,
            transposed,
            call.input.transpose(0, 1).contiguous().transpose(0, 1),
        ):
            assert torch.equal(layout, call.input)
            assert same_bits(run(replace(call, input=layout), isa), expected)
        hidden = call.hidden.transpose(1, 2).contiguous().transpose(1, 2)
        assert not hidden.is_contiguous()
        assert same_bits(run(replace(call, hidden=hidden), isa), expected)
        assert not same_bits(run(replace(call, input=backwards), isa), expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_in_its_sequence_and_counts_there(isa, value):
    for kind, dtype in itertools.product(RecurrentKind, FLOATS):
        case = Case(kind, dtype, steps=4, batch=8, hidden=20)
        call = case.call()
        clean = run(call, isa)
        given = call.input.clone()
        given[1, 3, 2] = value
        dirty = run(replace(call, input=given), isa)
        others = [b for b in range(8) if b != 3]
        assert torch.equal(dirty.output[:, others], clean.output[:, others])
        assert torch.equal(dirty.output[0], clean.output[0])
        if value != value:
            assert dirty.output[1:, 3].isnan().all(), (kind, dtype)
        elif kind is not RecurrentKind.RNN_RELU:
            assert dirty.output[1, 3].isfinite().all(), (kind, dtype)


@pytest.mark.parametrize("isa", ISAS)
def test_sums_of_great_magnitude_saturate(isa):
    for kind, dtype in itertools.product(RecurrentKind, FLOATS):
        if kind is RecurrentKind.RNN_RELU:
            continue
        case = Case(kind, dtype, steps=3, batch=2, hidden=5)
        call = case.call()
        call = replace(call, input=call.input * 1e3)
        assert not misses(run(call, isa), call)


def test_an_empty_batch_has_empty_results():
    case = Case(RecurrentKind.GRU, batch=0)
    call = case.call()
    result = run(call, ISAS[0])
    assert result.output.shape == (5, 0, 6)
    assert result.hidden.shape == (1, 0, 6)


def test_the_table_has_a_kernel_of_every_dtype_for_any_processor():
    rows = _native.recurrent_kernels()
    for dtype in ("float32", "bfloat16", "float16"):
        assert [isa for _, has, isa, needs in rows if has == dtype and not needs] == ["scalar"]
    for name, _, isa, needs in rows:
        assert name.endswith(isa)
        assert set(needs) <= _isa.feature_sets()[isa]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("none", (1, 1, 1, 1, 1, 1, 0)), ValueError, r"name from recurrent_kernels\(\)"),
        (("recurrent_f32_scalar", (4, 1, 1, 1, 1, 1, 0)), ValueError, "sizes: expected a kind"),
        (("recurrent_f32_scalar", (1, 1, 2, 1, 1, 1, 0)), ValueError, "without one P = H"),
        (("recurrent_f32_scalar", (1, 1, 2, 1, 1, 1, 1)), ValueError, "sizes"),
        (("recurrent_f32_scalar", (1, 1, 1, 1, 200, 2, 0)), ValueError, "sizes"),
        (("recurrent_f32_scalar", (1, 1)), TypeError, "sizes: expected a tuple of 7 integers"),
        (("recurrent_f32_scalar",), TypeError, "expected 2 arguments, got 1"),
    ],
)
def test_the_native_module_refuses_what_does_not_fit(arguments, error, text):
    with pytest.raises(error, match=text):
        _native.recurrent_packed_bytes(*arguments)


def request(kind=RecurrentKind.LSTM, dtype="float32", **more):
    return RecurrentRequest("cpu", dtype, kind, 128, 1, 256, 256, **more)


def test_torchs_own_layers_compute_where_they_are_best_and_native_kernels_elsewhere():
    def chosen(request):
        return registry().decide(FORWARD, request).name

    def brief(kind, dtype, steps, batch=1, **more):
        return chosen(RecurrentRequest("cpu", dtype, kind, steps, batch, 256, 256, **more))

    def layer(batch, hidden, dtype="float32"):
        lstm = RecurrentKind.LSTM
        return chosen(RecurrentRequest("cpu", dtype, lstm, 128, batch, hidden, hidden))

    assert chosen(request()) == "cpu.native"
    assert chosen(request(grad=True)) == "cpu.torch"
    assert layer(64, 128) == "cpu.native"
    assert layer(64, 129) == "cpu.torch"
    assert layer(64, 129, "float16") == "cpu.native"
    assert layer(32, 32) == "cpu.native"
    assert layer(33, 32) == "cpu.torch"  # decided as 64, like all up to there
    assert layer(64, 48) == "cpu.native"
    assert layer(64, 47) == "cpu.torch"
    assert layer(64, 47, "float16") == "cpu.native"
    assert chosen(request(dtype="float16")) == "cpu.native"
    assert chosen(request(ragged=True)) == "cpu.native"
    assert chosen(request(proj_size=8)) == "cpu.native"
    assert chosen(request(grad=True, reserve=True)) == "cpu.native"
    for kind in set(RecurrentKind) - {RecurrentKind.LSTM}:
        assert chosen(request(kind)) == "cpu.native"
        assert chosen(request(kind, grad=True)) == "cpu.native"
    gru = RecurrentKind.GRU
    assert brief(gru, "float32", 128, 32, grad=True) == "cpu.native"
    assert brief(gru, "bfloat16", 128, 32, grad=True) == "cpu.torch"
    assert brief(gru, "bfloat16", 128, 8, grad=True) == "cpu.native"
    assert brief(gru, "float32", 3, 8) == "cpu.torch"
    assert brief(gru, "float32", 4, 8) == "cpu.native"
    assert brief(gru, "float16", 1) == "cpu.torch"
    assert brief(gru, "float16", 1, 8) == "cpu.native"
    assert brief(gru, "float32", 1, packed=True) == "cpu.native"
    assert brief(RecurrentKind.LSTM, "float32", 1, packed=True) == "cpu.native"
    assert brief(RecurrentKind.LSTM, "float32", 1) == "cpu.native"
    assert brief(RecurrentKind.LSTM, "float32", 1, 64) == "cpu.torch"
    assert brief(RecurrentKind.LSTM, "float32", 128, 64, packed=True) == "cpu.torch"
    assert chosen(request(dtype="float64")) == "kernels.aten"
    trace = registry().decide(FORWARD, request(gru)).render()
    assert "E_PURPOSE: computes calls for which torch's own layers are best; this is gru" in trace


def test_much_bfloat16_is_onednns_where_torch_gives_it_to_it():
    many = {"batch": 64, "hidden_size": 256}
    platform = probe_platform()
    new = replace(platform, cpu_features=frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"}))
    old = replace(platform, cpu_features=frozenset({"avx2", "fma", "f16c"}))
    asked = replace(request(dtype="bfloat16"), **many)
    assert supports_torch(asked, new).supported
    assert supports_torch(request(dtype="bfloat16"), new).code is ReasonCode.PURPOSE
    assert supports_torch(asked, old).code is ReasonCode.PURPOSE
    assert supports_torch(replace(asked, dtype="float16"), new).code is ReasonCode.PURPOSE
    # A step whose weights torch takes as they are, and oneDNN would not.
    assert not supports_torch(replace(request(dtype="bfloat16"), steps=1), new).supported
    assert supports_torch(replace(request(dtype="bfloat16"), steps=1), old).supported


def test_bfloat16_is_onednns_where_only_it_has_matrix_tiles():
    platform = probe_platform()
    tiles = replace(platform, cpu_features=platform.cpu_features | _isa.feature_sets()["amx"])
    none = replace(tiles, cpu_features=tiles.cpu_features - {"amx_bf16"})

    def layer(kind, batch, dtype="bfloat16", *, hidden=1024, on=tiles, isa="", grad=False):
        asked = replace(request(kind, dtype, grad=grad), batch=batch, hidden_size=hidden)
        return supports_torch(asked, on, isa=isa).supported

    gru, lstm = RecurrentKind.GRU, RecurrentKind.LSTM
    for batch in (1, 8, 64):
        assert not layer(gru, batch)
        assert not layer(gru, batch, on=none)
        assert not layer(gru, batch, "float16", grad=True)
        assert not layer(lstm, batch)
        assert layer(lstm, batch, on=none) == (batch == 64)
        assert layer(lstm, batch, isa="avx512bf16") == (batch >= 8)
        assert layer(lstm, batch, grad=True)
        assert layer(lstm, batch, "float32") == (batch == 64)
    assert layer(gru, 8, grad=True)
    assert layer(gru, 8, isa="avx512bf16")
    assert not layer(gru, 7, grad=True)
    assert not layer(gru, 8, grad=True, on=none)
    assert not layer(lstm, 32, hidden=128)
    assert not layer(lstm, 64, hidden=256)
    assert layer(lstm, 64, hidden=128)
    step = replace(request(lstm, "bfloat16", packed=True), steps=1, batch=64, hidden_size=128)
    assert not supports_torch(step, tiles).supported


def test_an_instruction_set_that_is_asked_for_and_missing_is_a_refusal():
    bare = replace(probe_platform(), cpu_features=frozenset())
    assert supports(request(), bare, isa="scalar").supported
    assert supports(request(), bare, isa="avx512").code is ReasonCode.ISA
    assert "expected one of" in supports(request(), bare, isa="mmx").text
