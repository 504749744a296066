"""The selection gives the reference's values and indices to the bit, under the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.kernels.tests.topk.cases import rows
from packages.triton.tests.mutants.mutation import mutated
from torchyard import Platform, ReasonCode, read_platform_file
from torchyard_kernels.topk.contract import DTYPES, Order, TopKCall, TopKRequest
from torchyard_kernels.topk.reference import reference_topk
from torchyard_triton import Vendor, implementations
from torchyard_triton._launch import Launch, runs_by
from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.topk import select
from torchyard_triton.topk._selection import selection_of
from torchyard_triton.topk._ways import Ways, ways_of

_ROOM = "torchyard_triton.device.topk"
# Histograms alone; short rows by a network; parts by counts, the last of them by either.
WAYS = {
    "histograms": Ways(),
    "network": Ways(network_few=256, network_k=256),
    "counts": Ways(counted=256),
    "parts": Ways(network_few=64, network_k=8, part=16, counted=32),
}
_EACH_WAY = pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS)


def _differences(call: TopKCall, part: int | None = None, ways: Ways | None = None) -> list[str]:
    """Return what of a selection is not the reference's; zeros' signs count, NaNs' bits do not."""
    before = call.x.clone()
    got, wanted = select(call, part=part, ways=ways), reference_topk(call)
    found = [] if torch.equal(got.indices, wanted.indices) else ["indices"]
    same = torch.equal(torch.nan_to_num(got.values), torch.nan_to_num(wanted.values))
    if call.x.dtype.is_floating_point:
        number = ~wanted.values.isnan()
        same = same and torch.equal(got.values.isnan(), ~number)
        same = same and torch.equal(got.values.signbit() & number, wanted.values.signbit() & number)
    if not same:
        found.append("values")
    if not (got.values.is_contiguous() and got.indices.is_contiguous()):
        found.append("layout")
    if not torch.equal(call.x.nan_to_num(), before.nan_to_num()):
        found.append("x was changed")
    return found


@st.composite
def _calls(draw: st.DrawFn, most: int) -> TopKCall:
    length = draw(st.integers(1, most))
    x = draw(rows((draw(st.integers(0, 2)), length)))
    k = draw(st.integers(1, length))
    mask = None
    if draw(st.booleans()):
        generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
        share = draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))
        mask = torch.rand(x.shape, generator=generator) < share
    return TopKCall(x, k, draw(st.booleans()), draw(st.sampled_from(Order)), mask)


@_EACH_WAY
@settings(max_examples=6)
@given(call=_calls(60), part=st.sampled_from([None, 16]))
def test_rows(ways: Ways, call: TopKCall, part: int | None) -> None:
    assert _differences(call, part, ways) == []


@pytest.mark.sweep
@_EACH_WAY
@settings(max_examples=200)
@given(call=_calls(200), part=st.sampled_from([None, 16, 50]))
def test_many_rows(ways: Ways, call: TopKCall, part: int | None) -> None:
    assert _differences(call, part, ways) == []


@_EACH_WAY
@pytest.mark.parametrize("name", DTYPES)
def test_each_dtype(name: str, ways: Ways) -> None:
    dtype = getattr(torch, name)
    x = torch.randn((1, 100), generator=torch.Generator().manual_seed(3)).mul(60).to(dtype)
    if dtype.is_floating_point:
        special = [
            float("nan"),
            float("inf"),
            float("-inf"),
            0.0,
            -0.0,
            torch.finfo(dtype).tiny / 2,
        ]
        x[0, 10:70:10] = torch.tensor(special, dtype=dtype)
        x[0, 5] = -x[0, 10]
    else:
        x[0, 10], x[0, 20] = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    for largest in (True, False):
        assert _differences(TopKCall(x, 8, largest, Order.SORTED), ways=ways) == []


@_EACH_WAY
@settings(max_examples=4)
@given(data=st.data())
def test_segments(ways: Ways, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 60))
    x = data.draw(rows((length,)))
    bounds = sorted(data.draw(st.lists(st.integers(0, length), min_size=1, max_size=4)))
    order = data.draw(st.sampled_from(Order))
    call = TopKCall(
        *(x, data.draw(st.integers(1, 20)), data.draw(st.booleans()), order),
        offsets=torch.tensor(bounds),
    )
    assert _differences(call, ways=ways) == []


def test_more_than_a_program_sorts() -> None:
    x = torch.randint(0, 40, (2, 1500), generator=torch.Generator().manual_seed(4)).float()
    for largest in (True, False):
        assert _differences(TopKCall(x, 1400, largest, Order.SORTED)) == []


@_EACH_WAY
@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded"])
def test_strides(layout: str, ways: Ways) -> None:
    x = torch.randn((2, 4, 2), generator=torch.Generator().manual_seed(5)).mul(9).round()
    laid_out = {
        "transposed": x.transpose(1, 2),
        "strided": x[:, ::2].movedim(1, 2),
        "expanded": x[:1].expand(2, 4, 2),
    }[layout]
    mask = (laid_out[:1] > -5).expand(laid_out.shape)
    assert _differences(TopKCall(laid_out, 2, True, Order.SORTED, mask), ways=ways) == []


def test_a_long_row_is_selected_from_in_parts() -> None:
    x = torch.zeros((1, 40_000), dtype=torch.float16)
    parts = selection_of(TopKCall(x, 8, True, Order.INDEX)).launches
    assert [launch.grid for launch in parts] == [(1, 4), (1, 1)]
    assert len(selection_of(TopKCall(x, 20_000, True, Order.INDEX)).launches) == 1


@pytest.mark.parametrize(
    ("shape", "k", "dtype", "kernels"),
    [
        # Experts of a router; a vocabulary; keys that an indexer picks; numbers of 8 bytes.
        ((8192, 256), 8, "bfloat16", "bitonic"),
        ((8192, 1024), 8, "bfloat16", "count sort"),
        ((64, 1024), 8, "bfloat16", "bitonic"),
        ((64, 131072), 64, "float32", "count bitonic"),
        ((64, 131072), 100, "float32", "count count sort"),
        ((1, 50257), 50, "float32", "count bitonic"),
        ((64, 131072), 2048, "float32", "count count count"),
        ((64, 131072), 512, "float32", "count count count sort"),
        ((64, 8192), 1024, "float32", "count sort"),
        ((64, 256), 8, "int64", "count"),
        ((64, 4096), 4096, "float32", "count"),
        ((64, 65536), 4096, "float32", "select select"),
    ],
)
def test_kernels_of_shapes_on_amd(shape: tuple[int, int], k: int, dtype: str, kernels: str) -> None:
    x = torch.zeros((1, 1), dtype=getattr(torch, dtype)).expand(shape)
    launches = selection_of(TopKCall(x, k, True, Order.SORTED), ways=ways_of("gfx942")).launches
    assert [launch.kernel.__name__ for launch in launches] == [
        f"topk_{name}" for name in kernels.split()
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_ways_are_within_what_kernels_hold(architecture: str) -> None:
    ways = ways_of(architecture)
    assert (ways == Ways()) == (not architecture.startswith("gfx"))
    assert ways.network_k <= ways.network <= ways.network_few <= 16384
    assert ways.part <= ways.counted <= 32768
    # Threads of one program.
    threads = ARCHITECTURES[architecture].lanes * max(
        ways.network_few // ways.network_warp, ways.counted // ways.counted_warp
    )
    assert threads <= 1024


# The text that is replaced, by what, and the call that shows it. No mutant writes outside of its
# memory. float16 has two digits alone.
_X = torch.tensor([[3.0, -1.0, 7.0, 7.0, float("nan"), 2.0, -0.0, 0.0, 7.0, -5.0]]).half()
_TWO = torch.cat([_X, _X.flip(1)])
_CALL = TopKCall(_X, 3, True, Order.SORTED)
_LEAST = replace(_CALL, largest=False, k=4)
_MASKED = replace(_CALL, mask=_X != 7.0)
_ROWS = replace(_CALL, x=_TWO, mask=_TWO != 7.0)
# The second part alone has elements that are seen, two of them the least that there are.
_LATE = replace(
    _CALL,
    x=torch.tensor([[1.0, 2.0, 3.0, float("-inf"), float("-inf"), 0.0]]).half(),
    mask=torch.tensor([[False, False, False, True, True, True]]),
)
MUTANTS: list[tuple[str, str, TopKCall, int | None]] = [
    ("inside = at < stop", "inside = at <= stop", replace(_CALL, x=_X[:, :8], k=4), None),
    ("x + row * x_row", "x + row * x_column", _ROWS, None),
    ("to(tl.int64) * x_column", "to(tl.int64) * mask_column", _CALL, None),
    ("mask + row * mask_row", "mask + row * mask_column", _ROWS, None),
    ("if MASKED:", "if MASKED and False:", _MASKED, None),
    ("inside & (tl.load(mapped", "inside | (tl.load(mapped", _LATE, 3),
    ("(number <= wanted)", "(number < wanted)", _CALL, None),
    ("(number <= wanted)", "(number >= wanted)", _CALL, None),
    ("magnitude == 0, 0", "magnitude == 0, number", replace(_CALL, k=8), None),
    ("nan, MAGNITUDE, number", "nan, number, number", replace(_CALL, x=-_X), None),
    ("rank = rank ^ ALL", "rank = rank", _LEAST, None),
    ("number ^ MAGNITUDE, number", "number, number", _LEAST, None),
    ("ranks, written, 1 if", "ranks, k, 1 if", replace(_MASKED, k=9), None),
    ("(found >= k)", "(found >= 0)", replace(_MASKED, k=9, order=Order.LAST), None),
]


# All that the tile has room for, so that no mutant reads beyond the row's memory.
_FULL = replace(_CALL, x=_X[:, :8])
_HIDDEN = replace(_FULL, mask=_X[:, :8] != 7.0, k=8)
_TO_INDEX = replace(_HIDDEN, order=Order.INDEX)
_KTH = replace(_FULL, order=Order.LAST)
_EQUAL = replace(_CALL, x=torch.tensor([[2, 3, 2, 3]], dtype=torch.int8), k=2)
MUTANTS_OF_COUNTS: list[tuple[str, str, TopKCall, int | None]] = [
    ("tl.minimum(first + part, length)", "length", replace(_CALL, k=4), 3),
    ("first + tl.arange", "tl.arange", _CALL, 3),
    ("tl.where(seen, rank, 0)", "rank", _HIDDEN, None),
    ("(number <= wanted)", "(number < wanted)", _CALL, None),
    ("(number <= wanted)", "(number >= wanted)", _CALL, None),
    ("rank > limit", "rank > limit + 1", replace(_EQUAL, k=3), None),
    ("written = tl.minimum(k, found)", "written = k", _HIDDEN, None),
    ("(found >= k)", "(found >= 0)", replace(_HIDDEN, order=Order.LAST), None),
    ("number == wanted", "number == 1", replace(_KTH, k=3), None),
]
MUTANTS_OF_NETWORKS: list[tuple[str, str, TopKCall, int | None]] = [
    ("(TILE - at).to(WIDE)", "(at + 1).to(WIDE)", _FULL, None),
    ("(rank.to(WIDE) << PLACE)", "(rank.to(WIDE) >> 1 << PLACE)", _EQUAL, None),
    ("tl.where(seen, (rank", "tl.where(rank >= 0, (rank", _HIDDEN, None),
    ("if BY_INDEX:", "if BY_INDEX and False:", _TO_INDEX, None),
    ("there = order < TILE", "there = order <= TILE", _TO_INDEX, None),
    ("(best > 0) &", "(best >= 0) &", _HIDDEN, None),
    ("place == k - 1", "place == 0", _KTH, None),
    ("index = tl.load(mapped + order,", "index += 0 * tl.load(mapped + order,", _CALL, 5),
    ("bits.dtype) + absent", "bits.dtype)", _HIDDEN, None),
]
# Kernel -> its mutants, and by which way they are shown.
_MUTATED = {
    "select": (MUTANTS, Ways()),
    "count": (MUTANTS_OF_COUNTS, Ways(counted=16)),
    "bitonic": (MUTANTS_OF_NETWORKS, Ways(network_few=16, network_k=16)),
}


@pytest.mark.parametrize(
    ("kernel", "right", "wrong", "call", "part"),
    [
        pytest.param(kernel, *mutant, id=f"{kernel}-{mutant[1]}")
        for kernel, (mutants, _) in _MUTATED.items()
        for mutant in mutants
    ],
)
def test_mutant_is_caught(
    kernel: str,
    right: str,
    wrong: str,
    call: TopKCall,
    part: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = mutated([f"{_ROOM}.ranks", f"{_ROOM}.elements", f"{_ROOM}.{kernel}"], right, wrong)
    name = f"topk_{kernel}"
    monkeypatch.setattr(f"{_ROOM}.{kernel}.{name}", getattr(broken, name))
    # What is not written is no result that was there before.
    monkeypatch.setattr("torchyard_triton.topk._launches.torch.empty", _poisoned)
    assert _differences(call, part, _MUTATED[kernel][1])


def _poisoned(shape: Any, **options: Any) -> torch.Tensor:
    return torch.full(shape, 77, **options)


@pytest.mark.parametrize("kernel", _MUTATED)
def test_calls_of_mutants_are_right_without_them(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchyard_triton.topk._launches.torch.empty", _poisoned)
    mutants, ways = _MUTATED[kernel]
    for call, part in {(id(call), part): (call, part) for _, _, call, part in mutants}.values():
        assert _differences(call, part, ways) == []
        launches = selection_of(call, part=part, ways=ways).launches
        assert f"topk_{kernel}" in {launch.kernel.__name__ for launch in launches}


@pytest.mark.parametrize(
    ("right", "wrong"), [("order < k", "order < k - 1"), ("(~rank)", "rank"), ("* k", "* PADDED")]
)
def test_mutant_of_the_sort_is_caught(
    right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = mutated([f"{_ROOM}.sort"], right, wrong)
    monkeypatch.setattr(f"{_ROOM}.sort.topk_sort", broken.topk_sort)
    assert _differences(_ROWS)


def _current() -> str:
    raise AssertionError("a verdict looked at the machine")


def _judged(platform: Platform, **changes: Any) -> Any:
    request = TopKRequest("cuda", "float32", 64, 4096, 64)
    (found,) = implementations("topk/1", Vendor("cuda", "cuda", "cuda", _current))
    assert found.name == "cuda.triton"
    return found.supports(replace(request, **changes), platform)


def test_verdicts() -> None:
    machine = read_platform_file("h100").platform
    assert _judged(machine).supported
    assert _judged(machine, masked=True, segmented=True, dtype="int64").supported
    assert _judged(machine, dtype="bool").code == ReasonCode.DTYPE
    assert _judged(machine, length=2**31).code == ReasonCode.SHAPE
    assert _judged(replace(machine, libraries=())).code == ReasonCode.DEPENDENCY


@pytest.mark.parametrize("architecture", ["sm_90", "gfx942"])
def test_the_implementation_selects_as_its_device_is_best(architecture: str) -> None:
    (found,) = implementations("topk/1", Vendor("cuda", "cuda", "cuda", lambda: architecture))
    kernel: Callable[..., Any] = found.load()
    taken: list[str] = []

    def run(launch: Launch) -> None:
        taken.append(launch.kernel.__name__)
        launch.kernel[launch.grid](*launch.arguments, **launch.constants)

    with runs_by(run):
        assert torch.equal(kernel(_CALL).indices, reference_topk(_CALL).indices)
    by_network = architecture == "gfx942"
    assert taken == (["topk_bitonic"] if by_network else ["topk_select", "topk_sort"])
