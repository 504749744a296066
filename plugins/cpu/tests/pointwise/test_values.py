"""The interpreter of programs: every instruction set, any rectangle, any number of threads."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from torchyard import UnsupportedError, probe_platform
from torchyard.dispatch import decision_cache
from torchyard_cpu import _isa, _native
from torchyard_cpu._programs.program import ProgramOperand, native_program
from torchyard_cpu.pointwise import supports
from torchyard_cpu.pointwise._map import NativePointwise
from torchyard_kernels import foreach_map, foreach_map_
from torchyard_kernels.pointwise._ops import FAST_PATH
from torchyard_kernels.pointwise.contract import POINTWISE, PointwiseCall, PointwiseRequest
from torchyard_programs import trace

FEATURES = frozenset(_native.cpu_features())
# Those with an interpreter of their own.
ISAS = tuple(isa for _, isa in _native.program_kernels() if _isa.feature_sets()[isa] <= FEATURES)
isas = pytest.mark.parametrize("isa", ISAS)

# Functions with the errors, in float32 units, that a chain of steps may have where x is of order 1.
WORDS: dict[str, tuple[Callable[..., Any], float]] = {
    "gelu": (lambda x, y: functional.gelu(x), 8),
    "gelu tanh": (lambda x, y: functional.gelu(x, approximate="tanh"), 8),
    "silu": (lambda x, y: functional.silu(x) * y, 8),
    "softplus": (lambda x, y: functional.softplus(x), 8),
    "activations": (lambda x, y: functional.leaky_relu(x, 0.2) + functional.hardtanh(y), 4),
    "exponential": (lambda x, y: functional.celu(x, 0.5) - functional.selu(y), 8),
    "exp": (lambda x, y: torch.exp(x) - torch.exp2(y), 16),
    "log": (lambda x, y: torch.log(x.abs() + 1) + torch.log1p(y * y), 8),
    "root": (lambda x, y: torch.rsqrt(x * x + 1) * torch.sqrt(y.abs()), 8),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3) + torch.lerp(x, y, y), 16),
    "mixed": (lambda x, y: torch.addcmul(x, x, y, value=0.5) + torch.addcdiv(x, y, y * y + 1), 16),
    "choice": (lambda x, y: torch.where((x > y) & ~(y > 0), x, y * 2), 4),
    "pairs": (lambda x, y: (x - y) / (y * y + 2) - (3 - (x + y)) * (1 / (x * x + 1)), 16),
    "round": (lambda x, y: torch.round(x * 4) + torch.floor(y) - torch.trunc(x), 4),
    "sign": (lambda x, y: torch.sign(x) * y + torch.sgn(y), 4),
    "clamp": (lambda x, y: torch.clamp(x, -0.5, 0.5) + y.clamp(min=0), 4),
}


# Functions that compute with plain numbers alone, a and b, of which some may be whole.
OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "difference": lambda x, a, b: x * (1 - b) + a,
    "several": lambda x, a, b: (x * (a + b) * 0.5, x / (a * a + 1) - (b - a)),
    "chain": lambda x, a, b: x + ((a * 2 - b) * 3 + 1),
    "negative": lambda x, a, b: torch.lerp(x, x * x, -a) * -b,
    "captured": lambda x, a, b: x * _SCALE + (a - b),
}
_SCALE = torch.tensor([0.5])


def call_of(function: Callable[..., Any], *lists: list[Any], captured: int = 0) -> PointwiseCall:
    names = tuple((f"x{index}", None) for index in range(len(lists)))
    text, tensors = trace(function, "fn", names, torch.device("cpu"))
    inputs = tuple(
        (str(item[0].dtype)[6:], min(item[0].dim(), 1))
        if isinstance(item[0], torch.Tensor)
        else (type(item[0]).__name__, -1)
        for item in lists
    )
    traits = tuple((str(tensor.dtype)[6:], min(tensor.dim(), 1)) for tensor in tensors)
    request = PointwiseRequest("cpu", text, inputs, traits, (), len(lists[0]))
    return PointwiseCall(request, tuple(lists), tuple(tensors))


@isas
@pytest.mark.parametrize("word", WORDS)
def test_words_are_as_exact_as_float32_allows(word: str, isa: str) -> None:
    torch.manual_seed(1)
    function, steps = WORDS[word]
    xs, ys = [torch.randn(1000), torch.randn(7)], [torch.randn(1000), torch.randn(7)]

    (found,) = NativePointwise(isa)(call_of(function, xs, ys))

    for result, x, y in zip(found, xs, ys, strict=True):
        exact = function(x.double(), y.double())
        bound = steps * torch.finfo(torch.float32).eps
        torch.testing.assert_close(result.double(), exact, rtol=bound, atol=bound)


@isas
@settings(max_examples=40)
@given(
    rows=st.integers(1, 7),
    columns=st.one_of(st.integers(1, 40), st.integers(500, 1100)),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    forms=st.lists(
        st.sampled_from(["tile", "row", "column", "scalar", "transposed", "gaps"]),
        min_size=2,
        max_size=2,
    ),
)
def test_any_rectangle_is_read_and_written_exactly_where_it_is(
    isa: str, rows: int, columns: int, dtype: torch.dtype, forms: list[str]
) -> None:
    def operand(form: str) -> torch.Tensor:
        if form == "transposed":
            return torch.randn(columns, rows).to(dtype).t()
        if form == "gaps":
            return torch.randn(rows, 2 * columns + 3).to(dtype)[:, 1 : 2 * columns + 1 : 2]
        shape = {"row": (rows, 1), "column": (columns,), "scalar": (1, 1)}
        return torch.randn(shape.get(form, (rows, columns))).to(dtype)

    x, y = operand("tile"), operand(forms[0])
    # The result lies in the middle of memory that must stay as it is.
    around = torch.full((rows + 2, columns + 5), 77.0, dtype=dtype)
    out = around[1 : rows + 1, 2 : columns + 2]
    foreach_map_(lambda x, y: x - y, [x], [y], out=[[out]], implementation="cpu.native")

    assert torch.equal(out, (x.float() - y.float()).to(dtype))
    around[1 : rows + 1, 2 : columns + 2] = 77.0
    assert torch.equal(around, torch.full_like(around, 77.0))


@isas
def test_results_have_the_same_bits_for_any_number_of_threads(isa: str) -> None:
    torch.manual_seed(0)
    sizes = (1, 100_001, 64, 5000, 33)
    xs = [torch.randn(size) for size in sizes]
    xs.append(torch.randn(70, 900)[:, 3:])
    kernel, before = NativePointwise(isa), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(kernel(call_of(lambda x: torch.tanh(x) / (x * x + 0.1), xs))[0])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@isas
def test_the_fast_path_computes_the_same_bits(isa: str) -> None:
    xs = [torch.randn(3, 4), torch.randn(1037), torch.randn(5, 700).t()]
    ys = [torch.randn(4), torch.randn(1037), torch.randn(700, 5)]
    call = call_of(lambda x, y: (torch.tanh(x) * y, x > y), xs, ys)
    kernel = NativePointwise(isa)
    path = kernel.fast_path(call.request)
    assert path is not None

    fast, computed = path.try_call((xs, ys), (), None), kernel(call)

    for one, other in zip(fast, computed, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.is_contiguous()
            assert a.dtype == b.dtype
            assert torch.equal(a, b)


@isas
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 1), (1, 5)], ids=str)
def test_the_fast_path_computes_the_same_bits_however_tensors_broadcast(
    isa: str, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    xs = [torch.randn(3, 5), torch.randn(1, 5).expand(3, 5), torch.randn(3, 1).expand(3, 5)]
    for tensors in (xs, *([x] for x in xs)):
        call = call_of(
            lambda x, y: (x * y + x, x.lerp(y, 0.3)), tensors, [torch.randn(shape)] * len(tensors)
        )
        kernel = NativePointwise(isa)
        path = kernel.fast_path(call.request)
        assert path is not None

        fast, computed = path.try_call(call.inputs, (), None), kernel(call)

        for one, other in zip(fast, computed, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


_NUMBER = st.one_of(st.floats(-8, 8, width=32), st.integers(-100, 100), st.booleans())


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(OF_NUMBERS)),
    groups=st.integers(1, 3),
    data=st.data(),
    listed=st.tuples(st.booleans(), st.booleans()),
)
def test_the_fast_path_computes_with_plain_numbers_as_its_kernel_does(
    name: str, groups: int, data: st.DataObject, listed: tuple[bool, bool]
) -> None:
    xs = [torch.randn(5 + group) for group in range(groups)]
    numbers = []
    for each in listed:
        one = data.draw(_NUMBER)
        more = st.from_type(type(one)).filter(lambda v: abs(v) < 1e6)
        numbers.append([one, *(data.draw(more) if each else one for _ in range(groups - 1))])
    call = call_of(OF_NUMBERS[name], xs, *numbers)
    kernel = NativePointwise("")
    path = kernel.fast_path(call.request)
    assert path is not None
    given = [values if each else values[0] for each, values in zip(listed, numbers, strict=True)]

    fast, computed = path.try_call((xs, *given), call.captured, None), kernel(call)

    assert fast is not None
    for one, other in zip(fast, computed, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)


def test_the_fast_path_refuses_other_numbers_than_it_was_made_for() -> None:
    xs = [torch.randn(8), torch.randn(3)]
    call = call_of(OF_NUMBERS["difference"], xs, [0.5, 0.5], [2, 2])
    path = NativePointwise("").fast_path(call.request)
    assert path is not None
    for right in ((0.5, 2), ([0.5, 0.25], 2), (0.5, (2, 3)), ([0.5, 1.5], [2, 3])):
        assert path.try_call((xs, *right), (), None) is not None
    others: tuple[tuple[Any, ...], ...] = (
        (1, 2),
        (0.5, 2.0),
        (0.5, True),
        (0.5,),
        (0.5, 2, 3),
        ([0.5], 2),
        ([0.5, 1], 2),
        ([0.5, 0.5, 0.5], 2),
        ([0.5, 0.5], [2]),
        ([], 2),
        (torch.tensor(0.5), 2),
        (0.5, 1 << 60),
    )
    for other in others:
        assert path.try_call((xs, *other), (), None) is None, other


def test_the_fast_path_refuses_another_call_and_writes_nothing() -> None:
    xs = [torch.randn(8), torch.randn(3)]
    call = call_of(lambda x, y: x + y, xs, xs)
    path = NativePointwise("").fast_path(call.request)
    assert path is not None
    assert path.try_call((xs, xs), (), None) is not None

    class Sub(torch.Tensor):
        pass

    others: dict[str, Any] = {
        "dtype": [torch.randn(8).bfloat16(), torch.randn(3)],
        "scalar": [torch.randn(()), torch.randn(3)],
        "number": 2.0,
        "length": [torch.randn(8)],
        "shape": [torch.randn(7), torch.randn(3)],
        "subclass": [torch.randn(8).as_subclass(Sub), torch.randn(3)],
        "gradient": [torch.randn(8, requires_grad=True), torch.randn(3)],
        "negated": [torch._neg_view(torch.randn(8)), torch.randn(3)],
        "meta": [torch.randn(8, device="meta"), torch.randn(3)],
        "nested": [torch.nested.nested_tensor([torch.randn(8)]), torch.randn(3)],
        "object": ["a", "b"],
    }
    for name, other in others.items():
        assert path.try_call((xs, other), (), None) is None, name
    assert path.try_call((xs,), (), None) is None
    assert path.try_call((xs, xs), (xs[0],), None) is None
    out = [torch.zeros(8), torch.zeros(3)]
    assert path.try_call((xs, xs), (), (out,)) is None
    assert not out[0].any()


def test_tensors_live_while_a_kernel_reads_them_although_their_list_changes() -> None:
    xs = [torch.ones(1 << 22) for _ in range(4)]
    call = call_of(lambda x: torch.tanh(torch.exp(torch.tanh(x))), xs)
    path = NativePointwise("").fast_path(call.request)
    assert path is not None
    alive: list[int] = []
    noted = [weakref.ref(x) for x in xs]
    call = None  # type: ignore[assignment]
    done = threading.Event()

    def empty() -> None:
        # Until the kernel has given up Python's lock: then this thread runs.
        time.sleep(0.005)
        xs.clear()
        alive.append(sum(x() is not None for x in noted) if not done.is_set() else 4)

    # The interpreter is not taken away from here, only given up in the kernel.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        thread = threading.Thread(target=empty)
        thread.start()
        found = path.try_call((xs,), (), None)
        done.set()
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert alive == [4]
    assert found is None or len(found[0]) == 4


def test_public_calls_take_the_fast_path_after_the_first() -> None:
    xs = [torch.randn(5)]
    for _ in range(2):
        foreach_map(lambda x: x * 11.25, xs)
    known = decision_cache()[FAST_PATH._paths_key].calls
    assert any("11.25" in text for text, _ in known)


def test_a_function_of_plain_numbers_takes_the_fast_path_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    xs = [torch.randn(5), torch.randn(7)]

    def run(beta: Any) -> list[torch.Tensor]:
        found: list[torch.Tensor] = foreach_map(lambda x, beta: x * (1 - beta), xs, beta)
        return found

    run(0.25)
    monkeypatch.setattr(NativePointwise, "__call__", _must_not_be_called)
    for beta in (0.25, 0.75, [0.5, 0.25]):
        each = beta if isinstance(beta, list) else [beta] * 2
        for x, found, b in zip(xs, run(beta), each, strict=True):
            torch.testing.assert_close(found, x * (1 - b))


def _must_not_be_called(self: NativePointwise, call: PointwiseCall) -> None:
    raise AssertionError("the long way was taken")


@pytest.mark.parametrize(
    ("function", "dtype", "reason"),
    [
        (lambda x: torch.lgamma(x), "float32", "has no lgamma"),
        (lambda x: x * 2, "float64", "reads a tensor of float64"),
        (lambda x: x + x, "int16", "add computes in int16"),
        (lambda x: x.double(), "float32", "computes in float64"),
    ],
    ids=["word", "float64", "int16", "conversion"],
)
def test_what_it_lacks_is_said(function: Callable[..., Any], dtype: str, reason: str) -> None:
    text, _ = trace(function, "fn", (("x0", None),), torch.device("cpu"))
    verdict = supports(PointwiseRequest("cpu", text, ((dtype, 1),)), probe_platform())
    assert not verdict.supported
    assert reason in verdict.text


def test_more_arguments_than_it_takes_are_left_to_torch() -> None:
    lists = [[torch.full((3,), float(number))] for number in range(70)]

    def total(*values: Any) -> Any:
        return sum(values[1:], values[0])

    assert foreach_map(total, *lists)[0].tolist() == [float(sum(range(70)))] * 3
    with pytest.raises(UnsupportedError, match="has 70 arguments and 1 results, more than 64"):
        foreach_map(total, *lists, implementation="cpu.native")
    assert foreach_map(total, *lists[:63], implementation="cpu.native")[0][0] == sum(range(63))


def test_an_instruction_set_is_kept_to_or_refused() -> None:
    request = PointwiseRequest("cpu", '"x0"', (("float32", 1),))
    for isa in _isa.feature_sets():
        needed = _isa.feature_sets()[isa] <= probe_platform().cpu_features
        assert supports(request, probe_platform(), isa=isa).supported is needed
        name = _native.select_program(_isa.feature_sets()[isa])
        assert (
            _isa.feature_sets()[dict(_native.program_kernels())[name]] <= _isa.feature_sets()[isa]
        )
    assert "expected one of" in supports(request, probe_platform(), isa="avx9").text
    assert [isa for _, isa in _native.program_kernels()][-1] == "scalar"
    assert POINTWISE == "pointwise/1"


def test_programs_that_do_not_fit_are_refused_before_they_run() -> None:
    operands = (ProgramOperand("x0", torch.float32, "float32"),)
    steps, counts, slots, elements, results = native_program('"x0"', operands).encoded
    kernel = _native.select_program(FEATURES)
    good = (steps, counts, slots, elements, results)
    for bad in (
        (steps[:-8], counts, slots, elements, results),
        (steps, (0, 0, 0, 9), slots, elements, results),
        (steps, counts, (0, 0, 0, 0), elements, results),
        (steps, counts, slots, b"", results),
        (steps, counts, slots, elements, b""),
    ):
        with pytest.raises(ValueError, match="program: expected steps within"):
            _native.pointwise(kernel, bad, b"", b"", 1)
    with pytest.raises(ValueError, match="places: expected those of all operands"):
        _native.pointwise(kernel, good, b"\0" * 16, b"", 1)
