"""Calls of the operators that we have kernels for, to be held to torch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["CASES", "Case", "leaves"]


@dataclass(frozen=True, slots=True)
class Case:
    """A function of tensors.

    Attributes:
        program: the operator's name in the probe's table.
        function: returns a tensor or several, from tensors of one device.
        inputs: on the CPU; gradients are of those that are floating.
        gradients: whether it has any.
    """

    program: str
    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    gradients: bool = True


def leaves(result: Any) -> list[Tensor]:
    """Return the tensors of a result."""
    return [result] if isinstance(result, Tensor) else list(result)


def _drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def _places(size: int, *shape: int) -> Tensor:
    """Return different indices below a size."""
    count = torch.Size(shape).numel()
    return torch.randperm(size, generator=torch.Generator().manual_seed(size))[:count].view(shape)


def _kthvalues() -> dict[str, Case]:
    with_nan = _drawn(4, 9)
    with_nan[1, 3:] = torch.nan
    found: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
        "last dimension": (lambda x: x.kthvalue(3), _drawn(4, 9)),
        "first dimension, kept": (lambda x: x.kthvalue(4, 0, True), _drawn(4, 9)),
        "of a view": (lambda x: x.mT[::2].kthvalue(2, -1), _drawn(4, 9)),
        "of rows with NaN": (lambda x: x.kthvalue(3), with_nan),
        "one number": (lambda x: x.kthvalue(1), torch.tensor(3.0)),
        "one number, kept": (lambda x: x.kthvalue(1, 0, True), torch.tensor(3.0)),
        "integers": (lambda x: x.kthvalue(2, 1), _places(40, 5, 8)),
        "float16": (lambda x: x.kthvalue(2, 1), _drawn(3, 7, dtype=torch.float16)),
        "no rows": (lambda x: x.kthvalue(2, 1), torch.zeros(0, 3)),
        "infinite": (lambda x: x.kthvalue(1), torch.tensor([[torch.inf, -torch.inf]])),
    }
    return {
        # Which of equal elements it is, torch leaves open.
        "kthvalue, NaN": Case("kthvalue", lambda x: x.kthvalue(5).values, (with_nan,), False),
        **{
            f"kthvalue, {name}": Case("kthvalue", function, (x,), x.is_floating_point())
            for name, (function, x) in found.items()
        },
    }


def _modes() -> dict[str, Case]:
    x = _drawn(4, 9).round()
    functions: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
        "last dimension": (torch.mode, x),
        "first dimension, kept": (lambda x: x.mode(0, True), x),
        "a view": (lambda x: x.mT[1:].mode(-1), x),
        "integers": (torch.mode, torch.tensor([[1, 2, 2, 5], [3, 3, 4, 4]])),
        "one number": (lambda x: x.mode(0, True), torch.tensor(3.0)),
        "no rows": (torch.mode, torch.zeros(0, 3)),
    }
    return {
        f"mode, {name}": Case("mode", function, (x,), x.is_floating_point())
        for name, (function, x) in functions.items()
    }


def _unpoolings() -> dict[str, Case]:
    found = {}
    for name, (size, stride) in {
        "2": ((8, 6), 2),
        "3": ((9, 7), 3),
        "overlapping": ((7, 7), 1),
    }.items():
        values, indices = functional.max_pool2d(
            _drawn(2, 3, *size), 2 if stride < 3 else 3, stride, return_indices=True
        )
        # Elements that two windows share are one number.
        found[f"max_unpool2d, {name}"] = Case(
            "max_unpool2d",
            lambda x, i, size=size: torch.ops.aten.max_unpool2d(x, i, size),
            (values, indices),
        )
    values, indices = functional.max_pool2d(_drawn(3, 8, 6), 2, return_indices=True)
    found["max_unpool2d, no batch"] = Case(
        "max_unpool2d", lambda x, i: functional.max_unpool2d(x, i, 2), (values, indices)
    )
    found["max_unpool2d, channels last"] = Case(
        "max_unpool2d",
        lambda x, i: functional.max_unpool2d(x.movedim(-1, 1), i, 2),
        (values.movedim(0, -1)[None].contiguous(), indices[None]),
    )
    values, indices = functional.max_pool1d(_drawn(2, 3, 10), 2, return_indices=True)
    found["max_unpool1d"] = Case(
        "max_unpool2d", lambda x, i: functional.max_unpool1d(x, i, 2), (values, indices)
    )
    values, indices = functional.max_pool3d(_drawn(2, 3, 4, 6, 8), 2, return_indices=True)
    found["max_unpool3d"] = Case(
        "max_unpool3d", lambda x, i: functional.max_unpool3d(x, i, 2), (values, indices)
    )
    return found


def _grids() -> dict[str, Case]:
    found = {}
    # Beyond the volume as well, by up to its size.
    grid = _drawn(2, 3, 4, 2, 3) * 1.5
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            for aligned in (False, True):

                def sampled(
                    x: Tensor,
                    g: Tensor,
                    mode: str = mode,
                    padding: str = padding,
                    aligned: bool = aligned,
                ) -> Tensor:
                    return functional.grid_sample(x, g, mode, padding, aligned)

                name = f"grid_sample, {mode}, {padding}, {'corners' if aligned else 'edges'}"
                program = "grid_sampler_3d, gradient"
                found[name] = Case(program, sampled, (_drawn(2, 3, 4, 5, 6), grid))
                found[f"{name}, one element"] = Case(
                    program, sampled, (_drawn(2, 2, 1, 1, 1), grid)
                )
    nowhere = grid.clone()
    nowhere[0, 0] = torch.nan
    found["grid_sample, NaN"] = Case(
        "grid_sampler_3d, gradient",
        lambda x, g: functional.grid_sample(x, g, align_corners=False),
        (_drawn(2, 3, 4, 5, 6), nowhere),
    )
    return found


def _indices() -> dict[str, Case]:
    x = _drawn(4, 6)

    def copied(into: Tensor, source: Tensor, index: Tensor) -> Tensor:
        whole = into.clone()
        whole[:, ::2].index_copy_(1, index, source)
        return whole

    def put(into: Tensor, source: Tensor, index: Tensor, accumulate: bool = False) -> Tensor:
        whole = into.clone()
        whole.mT.put_(index, source, accumulate)
        return whole

    return {
        **{
            f"nonzero, {name}": Case("nonzero", torch.nonzero, (given,), False)
            for name, given in {
                "two dimensions": x > 0,
                "a view": (x > 0).mT[1:],
                "three dimensions": _drawn(2, 3, 4).round().int(),
                "NaN": torch.tensor([0.0, torch.nan, -0.0, 2.0]),
                "none": torch.zeros(3, 2),
                "no elements": torch.zeros(0, 2),
                "one number": torch.tensor(7),
                "one zero": torch.tensor(0),
            }.items()
        },
        "nonzero, out": Case(
            "nonzero",
            lambda x: torch.nonzero(x, out=x.new_empty(0, dtype=torch.int64)),
            (x > 0,),
            False,
        ),
        "index_copy": Case(
            "index_copy_ into a view",
            lambda into, source, index: into.index_copy(0, index, source),
            (x, _drawn(2, 6), _places(4, 2)),
        ),
        "index_copy_ into a view": Case(
            "index_copy_ into a view", copied, (x, _drawn(4, 2), _places(3, 2))
        ),
        "index_copy, one number": Case(
            "index_copy_ into a view",
            lambda into, source, index: into.index_copy(0, index, source),
            (torch.tensor(1.0), torch.tensor(2.0), torch.tensor([0])),
        ),
        "take": Case("take", torch.take, (x, torch.tensor([[0, -1, 5], [23, -24, 5]]))),
        "take, a view": Case("take", lambda x, i: x.mT.take(i), (x, _places(24, 7))),
        "take, one number": Case("take", torch.take, (torch.tensor(2.0), torch.tensor([0, -1]))),
        "put_": Case("put_", put, (x, _drawn(2, 3), torch.tensor([[0, -1, 5], [22, 7, 1]]))),
        "put_, accumulated": Case(
            "put_",
            lambda into, source, index: put(into, source, index, True),
            (x, _drawn(5), torch.tensor([3, 3, -1, 0, 3])),
        ),
    }


def _linalg() -> dict[str, Case]:
    square = _drawn(2, 5, 5)
    symmetric = square @ square.mT + torch.eye(5)
    functions: dict[str, tuple[str, Callable[[Tensor], Any], Tensor]] = {
        "eigvalsh": ("linalg.eigh", torch.linalg.eigvalsh, symmetric),
        # Of vectors only what their signs and phases leave.
        "eigh": ("linalg.eigh", lambda x: _absolute(torch.linalg.eigh(x)), symmetric),
        "svdvals": ("linalg.svd", torch.linalg.svdvals, _drawn(2, 4, 6)),
        "svd": (
            "linalg.svd",
            lambda x: _absolute(torch.linalg.svd(x, full_matrices=False)),
            _drawn(4, 6),
        ),
        # A gradient needs the vectors.
        "eigvals, gradient": ("linalg.eig", lambda x: torch.linalg.eigvals(x).abs(), square),
        "eig": ("linalg.eig", lambda x: _absolute(torch.linalg.eig(x)), square),
        "qr": ("linalg.qr", lambda x: _absolute(torch.linalg.qr(x)), square),
        "lstsq": ("linalg.lstsq", lambda x: torch.linalg.lstsq(x, x[:, :2]).solution, _drawn(7, 3)),
    }
    eigvals = Case("linalg.eigvals", torch.linalg.eigvals, (square,), False)
    return {"eigvals": eigvals} | {
        name: Case(program, function, (x,)) for name, (program, function, x) in functions.items()
    }


def _absolute(parts: Any) -> list[Tensor]:
    return [part.abs() for part in parts]


def _losses() -> dict[str, Case]:
    logits, targets = _drawn(12, 3, 5), torch.tensor([[1, 2, 3], [4, 4, 1], [2, 0, 0]])
    long, short = torch.tensor([12, 9, 3]), torch.tensor([3, 3, 1])

    def loss(reduction: str, **options: Any) -> Callable[..., Tensor]:
        return lambda x, t: functional.ctc_loss(
            x.log_softmax(-1), t, long, short, reduction=reduction, **options
        )

    flat = torch.cat([row[:size] for row, size in zip(targets, short.tolist(), strict=True)])
    return {
        "ctc_loss": Case("ctc_loss, gradient", loss("mean"), (logits, targets)),
        "ctc_loss, each": Case("ctc_loss, gradient", loss("none"), (logits, targets)),
        "ctc_loss, targets in one row": Case("ctc_loss, gradient", loss("sum"), (logits, flat)),
        "ctc_loss, impossible": Case(
            "ctc_loss, gradient",
            lambda x, t: functional.ctc_loss(
                x.log_softmax(-1), t, torch.tensor([2, 2, 2]), short, zero_infinity=True
            ),
            (logits, targets),
        ),
        "ctc_loss, lengths on the device": Case(
            "ctc_loss, gradient",
            lambda x, t, n, m: functional.ctc_loss(x.log_softmax(-1), t, n, m),
            (logits, targets, long, short),
        ),
    }


# Name -> call.
CASES: Final[Mapping[str, Case]] = {
    **_kthvalues(),
    **_modes(),
    **_unpoolings(),
    **_grids(),
    **_indices(),
    **_linalg(),
    **_losses(),
}
