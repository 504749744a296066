"""Maps over lists give what their program gives in float64, rounded, under the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard import Platform, ReasonCode, read_platform_file
from torchyard_kernels.optim._adamw import _map as adamw_map
from torchyard_kernels.pointwise._arguments import operand_of
from torchyard_kernels.pointwise._evaluation import result_dtypes
from torchyard_kernels.pointwise.contract import PointwiseCall, PointwiseRequest
from torchyard_kernels.pointwise.reference import reference_pointwise
from torchyard_programs import trace
from torchyard_triton import Vendor, implementations
from torchyard_triton.lowering._modules import module_of
from torchyard_triton.pointwise import compute
from torchyard_triton.pointwise._kernel import kernel_of
from torchyard_triton.pointwise._map import map_launch

_ROOM = "torchyard_triton.device.pointwise.operands"
_FLOATS = (torch.float32, torch.float16)


def _call(
    function: Callable[..., Any], *lists: Sequence[Any], out: tuple[Sequence[Tensor], ...] = ()
) -> PointwiseCall:
    inputs = tuple((f"x{number}", None) for number in range(len(lists)))
    text, captured = trace(function, "fn", inputs, torch.device("cpu"))
    request = PointwiseRequest(
        "cpu",
        text,
        tuple(operand_of(items[0]) for items in lists),
        tuple(operand_of(tensor) for tensor in captured),
        tuple(str(items[0].dtype)[6:] for items in out),
        len(lists[0]),
    )
    return PointwiseCall(request, tuple(lists), tuple(captured), out)


def _excess(call: PointwiseCall, roundings: int = 8) -> float:
    """Return the greatest error over that of a float32 computation, rounded to the result's dtype.

    The reference is computed before the call, which may write to its inputs.
    """
    exact = reference_pointwise(replace(call, out=()))
    request = call.request
    dtypes = result_dtypes(request.text, request.inputs, request.captured)
    worst = 0.0
    for result, right, dtype in zip(compute(call), exact, dtypes, strict=True):
        for got, wanted in zip(result, right, strict=True):
            assert got.shape == wanted.shape
            assert got.dtype == (dtype if not call.out else got.dtype)
            assert call.out or got.is_contiguous()
            if not got.dtype.is_floating_point:
                worst = max(worst, 0.0 if torch.equal(got, wanted) else float("inf"))
                continue
            eps = torch.finfo(torch.float32).eps * roundings
            if got.dtype != torch.float32:
                eps += torch.finfo(got.dtype).eps
            error = (got.double() - wanted.double()).abs() / (eps * (1 + wanted.double().abs()))
            nan = wanted.isnan()
            assert torch.equal(got.isnan(), nan)
            worst = max(worst, float(error[~nan].max())) if (~nan).any() else worst
    return worst


def _normal(shapes: Sequence[Sequence[int]], dtype: torch.dtype, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(tuple(shape), generator=generator).to(dtype) for shape in shapes]


_SHAPES = [(3, 4), (1037,), (), (0,), (2, 3, 5), (2048,)]


@pytest.mark.parametrize("dtype", _FLOATS, ids=str)
def test_one_launch_computes_all_groups(dtype: torch.dtype) -> None:
    xs, ys = _normal(_SHAPES, dtype, 0), _normal(_SHAPES, dtype, 1)

    def function(x: Any, y: Any, a: Any) -> Any:
        return torch.tanh(x) * y - torch.exp(x * a) / (y * y + 1)

    # A tensor of no dimensions is another kind of operand, and makes a call of its own.
    large = [number for number, shape in enumerate(_SHAPES) if shape]
    call = _call(function, [xs[n] for n in large], [ys[n] for n in large], [0.5] * len(large))
    launch, _ = map_launch(call)
    # 1037 and 2048 elements take two chunks each, nothing takes none.
    assert launch.grid == (1 + 2 + 0 + 1 + 2,)
    assert _excess(call) <= 1
    assert _excess(_call(function, [xs[2]], [ys[2]], [0.5])) <= 1


def test_half_precision_loses_nothing_between_steps() -> None:
    xs = [torch.full((64,), 2048.0, dtype=torch.float16)]
    assert torch.equal(compute(_call(lambda x: (x + 1) - 2048, xs))[0][0], torch.ones(64).half())
    # A conversion in the function rounds: 2049 is no float16.
    (found,) = compute(_call(lambda x: (x + 1).half() - 2048, xs))
    assert torch.equal(found[0], torch.zeros(64).half())
    (found,) = compute(_call(lambda x: ((x + 1).half() * 1.0005, x)[0], xs))
    exact = torch.tensor(2048 * 1.0005).half()
    assert torch.equal(found[0], exact.expand(64))


@st.composite
def _operands(draw: st.DrawFn) -> list[Tensor]:
    dtypes = [*_FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool]
    shape = draw(st.lists(st.integers(0, 4), min_size=0, max_size=4))

    def operand() -> Tensor:
        cut = draw(st.integers(0, len(shape)))
        own = [1 if size and draw(st.booleans()) else size for size in shape[cut:]]
        tensor = torch.randint(0, 4, own).to(draw(st.sampled_from(dtypes)))
        if tensor.dim() > 1 and draw(st.booleans()):
            tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
        return tensor

    return [operand(), operand(), operand()]


def _agrees_with_torch(operands: list[Tensor]) -> None:
    def function(x: Any, y: Any, z: Any) -> Any:
        return torch.where(x > y, x * 2 + y, y), z == 1

    x, y, z = operands
    shape = torch.broadcast_shapes(x.shape, y.shape, z.shape)
    found = compute(_call(function, [x], [y], [z]))
    for (result,), wanted in zip(found, function(x, y, z), strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, shape)
        assert torch.equal(result, wanted.expand(shape))


@settings(max_examples=25)
@given(operands=_operands())
def test_tensors_broadcast_and_promote_as_torchs(operands: list[Tensor]) -> None:
    _agrees_with_torch(operands)


@pytest.mark.sweep
@settings(max_examples=300)
@given(operands=_operands())
def test_many_tensors_broadcast_and_promote(operands: list[Tensor]) -> None:
    _agrees_with_torch(operands)


def test_numbers_are_those_of_their_group() -> None:
    xs = _normal([(5,), (2, 3)], torch.float32, 2)
    assert _excess(_call(lambda x, a, n: x * a + n, xs, [0.1, 1e30], [3, -4])) <= 1
    # As float64: in float32 1 + 1e-9 is 1.
    (found,) = compute(_call(lambda x, a: x * ((a - 1) * 1e9), [torch.ones(3)], [1 + 1e-9]))
    torch.testing.assert_close(found[0], torch.ones(3), rtol=1e-6, atol=0)
    flags = compute(_call(lambda x, flag: torch.where(x > 0, flag, False), xs, [True, False]))
    assert torch.equal(flags[0][0], xs[0] > 0)
    assert not flags[0][1].any()


def test_captured_tensors() -> None:
    row, scale = torch.arange(3.0), torch.tensor(0.5, dtype=torch.float64)
    xs = _normal([(2, 3), (4, 1)], torch.float16, 3)
    assert _excess(_call(lambda x: x * scale + row, xs)) <= 1
    table = torch.tensor([2.0, 4.0, 8.0])
    indices = [torch.tensor([0, 2, 1]), torch.tensor([[1], [-1]])]
    assert _excess(_call(lambda i: table[i] + 1, indices)) <= 1


def test_results_are_written_in_place() -> None:
    ps, gs = _normal([(40,), (3, 5)], torch.float32, 4), _normal([(40,), (3, 5)], torch.float32, 5)
    ps[1] = ps[1].t().contiguous().t()
    call = _call(lambda p, g: (p - 0.1 * g, p * g), ps, gs, out=(ps, gs))
    assert _excess(call) <= 1
    narrow = [torch.zeros(40, dtype=torch.float16)]
    assert _excess(_call(lambda x: x / 3, ps[:1], out=(narrow,))) <= 1


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adamw(amsgrad: bool) -> None:
    shapes = [(7, 9), (300,), (16, 16)]
    count = 5 if amsgrad else 4
    lists: list[Any] = [_normal(shapes, torch.float32, seed) for seed in range(count)]
    lists[2 : count - 1] = [[tensor.abs() for tensor in items] for items in lists[2 : count - 1]]
    numbers = (1 - 1e-5, 0.1, 0.999, 0.001, 31.6, 1e-8, -0.01)
    lists += [[number] * len(shapes) for number in numbers]
    text = adamw_map(amsgrad, False)._text
    written = tuple(lists[: count - 1])
    request = PointwiseRequest(
        "cpu",
        text,
        tuple(operand_of(items[0]) for items in lists),
        (),
        ("float32",) * (count - 1),
        3,
    )
    assert _excess(PointwiseCall(request, tuple(lists), (), written)) <= 1


_XS = _normal([(5, 3), (2, 3)], torch.float32, 6)
_YS = [tensor.t().contiguous().t() for tensor in _normal([(5, 3), (2, 3)], torch.float32, 7)]
_LONG = _normal([(1100,), (5,)], torch.float32, 8)


def _written(function: Callable[..., Any], *lists: Sequence[Any]) -> PointwiseCall:
    """Return a call into zeros, which no result is."""
    return _call(function, *lists, out=([torch.zeros_like(item) for item in lists[0]],))


def _shifted(x: Any, y: Any = 1.0) -> Any:
    return 3 + x * y


# No mutant writes outside of its memory.
MUTANTS: list[tuple[str, str, Callable[[], PointwiseCall]]] = [
    ("at < count", "at < count - 1", lambda: _written(_shifted, _XS, _YS)),
    ("index * stride", "index", lambda: _written(_shifted, _XS, _YS)),
    (
        "DIMENSIONS * (1 + OPERAND) + dimension",
        "DIMENSIONS + dimension",
        lambda: _written(_shifted, _XS, _YS),
    ),
    ("index = rest % size", "index = rest * 0", lambda: _written(_shifted, _XS, _YS)),
    ("tl.load(chunk) * WIDTH", "0 * WIDTH", lambda: _written(_shifted, _LONG)),
    ("tl.load(chunk + 1) * BLOCK", "0", lambda: _written(_shifted, _LONG)),
    ("tl.float64, bitcast=True", "tl.float64", lambda: _written(_shifted, _XS, [2.0, 3.0])),
    ("bits != 0", "bits == 0", lambda: _written(_chosen, _XS, [True, False])),
]


def _chosen(x: Any, flag: Any) -> Any:
    return torch.where(torch.isfinite(x) & flag, x, 3.0)


@pytest.mark.parametrize(
    ("right", "wrong", "call"), MUTANTS, ids=[wrong for _, wrong, _ in MUTANTS]
)
def test_mutant_is_caught(
    right: str,
    wrong: str,
    call: Callable[[], PointwiseCall],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torchyard_triton.device.pointwise as room
    from torchyard_triton.device.pointwise import operands

    with open(operands.__file__, encoding="utf-8") as file:
        source = file.read()
    assert right in source
    broken = source.replace(right, wrong)
    with monkeypatch.context() as patch:
        # The kernel, which is made from text, imports the module by its name.
        kernel_of.cache_clear()
        module_of.cache_clear()
        patch.setattr(room, "operands", module_of(f"mutant{abs(hash(broken))}", broken))
        caught = False
        try:
            caught = _excess(call()) > 1
        except AssertionError:
            caught = True
    kernel_of.cache_clear()
    module_of.cache_clear()
    assert caught


def _current() -> str:
    raise AssertionError("a verdict looked at the machine")


def _judged(
    platform: Platform, function: Callable[..., Any], *operands: Any, **changes: Any
) -> Any:
    names = tuple((f"x{number}", None) for number in range(len(operands)))
    text, _ = trace(function, "fn", names, torch.device("cpu"))
    (found,) = implementations("pointwise/1", Vendor("cuda", "cuda", "cuda", _current))
    assert found.name == "cuda.triton"
    request = replace(PointwiseRequest("cuda", text, operands), **changes)
    return found.supports(request, platform)


def test_verdicts() -> None:
    machine = read_platform_file("h100").platform
    half, number = ("bfloat16", 1), ("float", -1)
    assert _judged(machine, lambda x, a: torch.tanh(x) * a, half, number).supported
    assert _judged(machine, lambda x: (x, x * 2), half, out=("bfloat16",) * 2).supported
    refused = _judged(machine, lambda x: torch.tanh(x), ("float64", 1))
    assert refused.code == ReasonCode.OTHER
    assert "tanh of float64" in refused.text
    assert _judged(machine, lambda x: x, ("complex64", 1)).code == ReasonCode.DTYPE
    assert _judged(machine, lambda x: x, half, device="cpu").code == ReasonCode.DEVICE
    (found,) = implementations("pointwise/1", Vendor("cuda", "cuda", "cuda", _current))
    call = _call(lambda x: x + 1, _XS)
    assert torch.equal(found.load()(call)[0][0], _XS[0] + 1)
