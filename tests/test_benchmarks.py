"""A benchmark times nothing whose result is wrong, and names the implementation and the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import torchyard
import torchyard_kernels
from benchmarks.__main__ import _chosen
from benchmarks.attention.paged import paged
from benchmarks.attention.suites import SUITES
from benchmarks.kernels import linear_functions
from benchmarks.kernels.linear import check, measure_linear
from benchmarks.kernels.linear_functions import measure_functions
from benchmarks.kernels.recurrent import RecurrentCase, _cases, _measured, judged
from benchmarks.measuring import measure as measuring
from benchmarks.measuring.cases import Bar, Case, Part, Rival
from benchmarks.measuring.contestants import OURS, Contestant, contestants, ruler
from benchmarks.measuring.findings import at_least, at_most
from benchmarks.measuring.limits import Limits, Probe
from benchmarks.measuring.measure import Effort, Row, WrongResultError, measure, met
from benchmarks.overhead.calls import _alone, measure_calls
from benchmarks.overhead.recurrent_calls import _native, overhead
from torchyard_attention import explain

_LIMITS = Limits(float32_flops=1e12, read_bytes=1e10)
_EFFORT = Effort(rounds=2)
_SHORT = {case.name: case.shortened(16) for cases in SUITES.values() for case in cases}


def _exact(case: Case, demand: str | None) -> list[Contestant]:
    return [
        Contestant(OURS, lambda *given: ruler(case)(*given).to(case.dtype), "ruler"),
        Contestant("torch sdpa", lambda *given: ruler(case)(*given).to(case.dtype), "torch"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "grouped causal",
        "decode 4096 batch 1 bfloat16",
        "distance",
        "training",
        "backward causal learnable bias float32",
        "short causal 16 batch 4 bfloat16",
    ],
)
def test_a_right_result_is_timed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "contestants", _exact)
    monkeypatch.setattr(measuring, "_BEYOND_CACHES", 1 << 22)
    row, other = measure(_SHORT[name], _LIMITS, None, _EFFORT, drop=_fail)
    assert row.milliseconds > 0
    assert row.computed_by == "ruler"
    assert row.times_ours == 1
    assert other.times_ours > 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda out: out * 1.5,
        lambda out: out * torch.nan,
        lambda out: torch.zeros_like(out),
        lambda out: out.roll(1, dims=2),
    ],
    ids=["scaled", "nan", "zero", "rolled"],
)
@pytest.mark.parametrize("name", ["full d64 bfloat16", "full d64 float32"])
def test_a_wrong_result_is_refused(
    name: str, wrong: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = _SHORT[name]

    def attend(*given: Tensor) -> Tensor:
        return wrong(ruler(case)(*given)).to(case.dtype)

    monkeypatch.setattr(
        measuring, "contestants", lambda case, demand: [Contestant(OURS, attend, "wrong")]
    )
    with pytest.raises(WrongResultError, match=r"computed by wrong.* within .* of float64"):
        measure(case, _LIMITS, None, _EFFORT, drop=_fail)


def test_a_wrong_rival_is_named_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = _SHORT["full d64 float32"]
    right = Contestant(OURS, lambda *given: ruler(case)(*given), "right")
    wrong = Contestant("rival", lambda *given: ruler(case)(*given) * 1.5, "wrong")
    monkeypatch.setattr(measuring, "contestants", lambda case, demand: [right, wrong])
    dropped: list[WrongResultError] = []

    rows = measure(case, _LIMITS, None, _EFFORT, drop=dropped.append)

    assert [row.contestant for row in rows] == [OURS]
    assert [str(error).split(", ")[1] for error in dropped] == ["rival"]


def test_a_wrong_gradient_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case = _SHORT["training learnable alibi"]

    def attend(query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
        return ruler(case)(query, key, value, slopes.detach() + 0 * slopes).float()

    monkeypatch.setattr(
        measuring, "contestants", lambda case, demand: [Contestant(OURS, attend, "wrong")]
    )
    with pytest.raises(WrongResultError, match="result 4"):
        measure(case, _LIMITS, None, _EFFORT, drop=_fail)


def test_the_implementation_behind_ours_is_named_and_can_be_demanded() -> None:
    case = _SHORT["full d64 float32"]
    query = torch.zeros(1, 8, 128, 64)

    assert contestants(case, None)[0].computed_by == explain(query, query, query).name
    assert contestants(case, "attention.tiled")[0].computed_by == "attention.tiled"
    with pytest.raises(torchyard.UnsupportedError):
        measuring.judge(_SHORT["distance"], contestants(_SHORT["distance"], "attention.sdpa")[:1])


def test_every_way_of_torch_gives_the_right_result() -> None:
    for name in ("grouped causal", "decoding batch 4", "training learnable alibi"):
        case = replace(_SHORT[name], compiled_flex=False)
        others = contestants(case, None)[1:]
        assert others
        measuring.judge(case, others)


def _fail(error: WrongResultError) -> None:
    raise error


def _row(times_ours: float, *, contestant: str = OURS, share: float | None = None) -> Row:
    return Row("case", contestant, "", 1, 0, times_ours, share, share, None, None, 0)


def test_a_bar_is_held_against_the_best_rival_and_the_median() -> None:
    rows = [
        _row(1.0, share=0.8),
        _row(3.0, contestant="torch sdpa, enable_gqa"),
        _row(2.0, contestant="torch sdpa, folded rows"),
        _row(1.5, contestant="torch flex, compiled"),
    ]
    assert met(Bar(Rival.SDPA, 2.2), rows) == (2.0, False)
    assert met(Bar(Rival.FLEX, 1.4), rows) == (1.5, True)
    assert met(Bar(Rival.LIMIT, 0.75), rows) == (0.8, True)
    assert met(Bar(Rival.LIMIT, 0.75), [_row(1.0)]) == (None, None)


def test_a_share_above_the_limit_is_no_proof() -> None:
    too_fast = replace(_row(1.0), share=1.4, best_share=1.5)
    assert met(Bar(Rival.LIMIT, 0.75), [too_fast]) == (1.4, None)
    # Memory's limit is a median: a run may read faster than another run of the probe.
    reading = replace(too_fast, share=1.05, best_share=1.2, bytes_per_second=1e9)
    assert met(Bar(Rival.LIMIT, 0.75), [reading]) == (1.05, True)


def test_arithmetic_that_was_measured_again_counts_where_it_was_faster() -> None:
    first = Limits(float32_flops=5e11, bfloat16_flops=4e11, read_bytes=3e10)
    again = Limits(float32_flops=4e11, bfloat16_flops=9e11)

    assert first.raised(again) == Limits(5e11, 9e11, 3e10)
    assert Limits(problem="no C compiler").raised(again).read_bytes is None


def test_a_finding_keeps_its_bound_or_not() -> None:
    assert at_most("", "", "", 2.0, 2.0).enough
    assert at_most("", "", "", 2.1, 2.0).enough is False
    assert at_least("", "", "", 1.8, 1.85).enough is False


def test_words_name_suites_cases_and_their_beginnings() -> None:
    assert _chosen(["memory", "decode"]) == {"memory": (), "decode": SUITES["decode"]}
    (case,) = _chosen(["training bfloat16"])["others"]
    assert case.part is Part.BOTH
    assert {case.name.split()[0] for cases in _chosen(["causal"]).values() for case in cases} == {
        "causal"
    }
    with pytest.raises(ValueError, match=r"'caus'.*forward"):
        _chosen(["caus"])


def test_names_of_cases_are_unique() -> None:
    names = [case.name for cases in SUITES.values() for case in cases]
    assert len(names) == len(set(names))


def test_decoding_is_measured_over_scattered_pages_too() -> None:
    case = _SHORT["decode 4096 batch 8 bfloat16"]
    first, second = case.inputs(case.dtype, grad=False), case.inputs(case.dtype, grad=False)
    second[1].neg_()
    ways = paged(None)
    assert len(ways) == 2
    for inputs in (first, second, first):
        right = ruler(case)(*inputs)
        for attend in ways.values():
            torch.testing.assert_close(attend(*inputs).double(), right, rtol=2e-2, atol=2e-2)


@pytest.mark.sweep
def test_the_limit_of_decoding_is_a_plain_read_of_its_own_keys_and_values() -> None:
    case = _SHORT["decode 4096 batch 8 bfloat16"]
    with Probe() as probe:
        ours = measure(case, _LIMITS, probe, _EFFORT, drop=_fail)[0]
        with pytest.raises(ValueError, match="contiguous ones of whole lines of 64 bytes"):
            probe.seconds_to_read([torch.zeros(64, 64).T], 1)
    assert ours.limit not in (None, _LIMITS.read_bytes)


class _Steady(Probe):
    def read_bytes(self, threads: int) -> float:
        return 1e10


def test_linear_layers_are_judged_and_timed() -> None:
    found = measure_linear(_LIMITS, _Steady(), Effort(1), quick=True, progress=lambda text: None)
    assert {finding.who for finding in found} == {
        "torchyard, plain",
        "torchyard, packed",
        "torch linear",
        "the memory's limit",
    }
    asked = [finding.quantity for finding in found if finding.asked is not None]
    assert asked.count("times torch's speed") == 6 + 10 + 10
    assert asked.count("share of the read bandwidth") == 2
    assert asked.count("share of the peak") == 4


def test_a_wrong_linear_layer_is_refused() -> None:
    x, weight = torch.randn(2, 64), torch.randn(256, 64)
    right = x @ weight.T
    assert check("", "", right, x, weight) < 1e-5
    for wrong in (right * 1.01, right.roll(1, 1), right * torch.nan):
        with pytest.raises(WrongResultError, match="linear, case, who: expected within"):
            check("case", "who", wrong, x, weight)


def test_a_recurrent_layer_that_is_wrong_is_not_timed() -> None:
    case = RecurrentCase("gru", torch.bfloat16, 16, 2, steps=3)
    module = case.module
    ways: dict[str, Callable[..., object]] = {"torch": module}
    ways["torchyard"] = lambda x: (module(x)[0] * 1.1,)
    with torch.no_grad(), pytest.raises(WrongResultError, match="gru bfloat16 16 batch 2 3 steps"):
        judged(case, ways)


def test_a_recurrent_case_tells_times_errors_and_what_was_asked() -> None:
    case = RecurrentCase("lstm", torch.float16, 16, 2, 1e9, steps=3)
    found = list(_measured(case, _LIMITS, 3, 0.1))
    assert {finding.who for finding in found} == {
        "torch",
        "torch in float32",
        "torchyard",
        "torchyard, packed",
        "the processor's peak",
    }
    assert [finding.enough for finding in found if finding.asked] == [False]
    asked = {(case.kind, case.dtype, case.hidden, case.batch, case.asked) for case in _cases(False)}
    for kind, dtype in (("gru", torch.bfloat16), ("gru", torch.float16), ("lstm", torch.float16)):
        for hidden in (256, 1024):
            assert {(kind, dtype, hidden, batch, 2.0) for batch in (1, 8)} <= asked


def test_functions_around_linear_layers_are_judged_and_timed() -> None:
    found = measure_functions(Effort(1), quick=True, progress=lambda text: None)
    assert {finding.who for finding in found} == {"torchyard, packed", "torch, eager"}
    assert [finding.quantity for finding in found].count("its time over ours") == 2 * 5 * 3
    layers = {finding.case.rsplit(", ", 2)[0] for finding in found}
    assert {"dequantise int8", "dequantise int4"} < layers


def test_a_function_around_a_linear_layer_that_is_wrong_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def linear(*args: Any, **kwargs: Any) -> Tensor:
        return torchyard_kernels.linear(*args, **kwargs) * 1.02

    monkeypatch.setattr(linear_functions, "linear", linear)
    case = "bias and gelu, float16, 1 row, torchyard, packed"
    with pytest.raises(WrongResultError, match=f"{case}: expected within .* of float64"):
        measure_functions(Effort(1), quick=True, progress=lambda text: None)


def test_what_a_call_costs_is_told_of_every_op_and_dtype() -> None:
    found = measure_calls(quick=True, progress=lambda text: None)
    bounds = [finding for finding in found if finding.asked is not None]
    stock = [finding for finding in bounds if finding.quantity == "times the stock op"]
    assert {finding.case for finding in stock} == {"attention", "linear", "topk", "GRU"}
    assert {finding.asked for finding in stock} == {1.5}
    asked = [finding for finding in bounds if finding not in stock]
    assert {finding.asked for finding in asked} == {3.0}
    assert len(asked) == 39
    assert all(finding.value is not None and finding.value > 0 for finding in found)
    ops = "linear matmul bmm topk kthvalue masked_topk segmented_topk foreach_map"
    assert {finding.case.split()[0] for finding in asked} == set(ops.split())


def test_a_call_that_reaches_no_kernel_is_not_timed() -> None:
    with pytest.raises(WrongResultError, match="torch's: expected a call of one kernel, got 0"):
        _alone("torch's", lambda: torch.ones(2) + 1)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_kernel_of_a_recurrent_layer_computes_what_its_call_does(kind: str) -> None:
    case = RecurrentCase(kind, torch.float16, 16, 2, steps=3)
    module, x, state = case.module, case.inputs(), case.state()
    weights = [parameter.detach() for parameter in module.parameters()]
    given = state if isinstance(state, tuple) else (state,)
    _, output, ends = _native(x, given, weights)()
    right = getattr(torchyard_kernels, kind)(x, state, weights)
    assert torch.equal(output, right.output)
    after = right.state if isinstance(right.state, tuple) else (right.state,)
    assert all(torch.equal(one, other) for one, other in zip(ends, after, strict=True))
    around, _ = overhead(case.name, module, x, state, quick=True)
    assert around.quantity == "us around the kernel"


def test_copies_of_a_weight_take_turns_where_functions_are_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Any] = []

    def linear(x: torch.Tensor, weight: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        read.append(weight)
        return torchyard_kernels.linear(x, weight, *args, **kwargs)

    monkeypatch.setattr(linear_functions, "linear", linear)
    rows = len(linear_functions._ROWS)
    measure_functions(Effort(6), quick=True, progress=lambda text: None)
    calls = len(read) // (2 * 5)
    for at in range(0, len(read), calls):
        # A first call of each number of rows, and six that are timed.
        assert calls == 7 * rows
        assert len({id(weight) for weight in read[at : at + calls]}) == 3
        timed = read[at + 1 : at + 7]
        assert all(one is not other for one, other in pairwise(timed))
