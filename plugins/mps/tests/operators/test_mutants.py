"""Planted faults of the kernels that replace torch's are found by comparing with the CPU."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from itertools import product
from types import ModuleType
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from torchyard_mps.operators import replacements

_FOLDER: Final = replacements.__name__
_aten: Final = torch.ops.aten


def _drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).double()


def _indices(*values: int) -> Tensor:
    return torch.tensor(values)


# What is computed by ours and by torch: the results, or the error's text.
_Pair = tuple[Any, Any]


def _tried(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    try:
        result = function(*arguments, **named)
    except (IndexError, RuntimeError) as error:
        return str(error)
    return list(result) if isinstance(result, tuple) else [result]


def _pair(ours: Callable[..., Any], torchs: Any, *given: Any) -> _Pair:
    def copied() -> list[Any]:
        return [one.clone() if isinstance(one, Tensor) else one for one in given]

    return _tried(ours, *copied()), _tried(torchs, *copied())


def _kthvalues(module: ModuleType) -> Iterator[_Pair]:
    for k, dim, keepdim in product((0, 1, 3, 5), (0, 1), (False, True)):
        pairs = []
        for function in (module.kthvalue_values, _aten.kthvalue.values):
            out = {"values": _drawn(1, 1), "indices": _indices(0)}
            pairs.append(_tried(function, _drawn(5, 4), k, dim, keepdim, **out))
        yield pairs[0], pairs[1]


def _modes(module: ModuleType) -> Iterator[_Pair]:
    for dim, keepdim in product((0, 1, -1), (False, True)):
        yield _pair(module.mode, _aten.mode.default, _drawn(6, 7).round(), dim, keepdim)


def _of_indices(module: ModuleType) -> Iterator[_Pair]:
    x, source = _drawn(3, 4), _drawn(2, 4)
    yield _pair(module.nonzero, _aten.nonzero.default, (_drawn(3, 3, 3) > 0.3).int())
    for index in (_indices(0, 5), _indices(-1, -12), _indices(0, 12), _indices(-13, 0)):
        yield _pair(module.take, _aten.take.default, x, index)
        yield _pair(module.put_, _aten.put_.default, x, index, source[0, :2])
    yield _pair(module.put_, _aten.put_.default, x, _indices(3, 3), source[0, :2], True)
    for index in (_indices(2, 0), _indices(0, 3)):
        yield _pair(module.index_copy, _aten.index_copy.default, x, 0, index, source)
    yield _pair(module.index_copy, _aten.index_copy.default, x, 1, _indices(2, 0), source.mT[:3])


def _unpoolings(module: ModuleType) -> Iterator[_Pair]:
    places = torch.tensor([[[5, 0], [8, 3]]])
    yield _pair(module.max_unpool2d, _aten.max_unpool2d.default, _drawn(1, 2, 2), places, [3, 3])


def _samples(module: ModuleType) -> Iterator[_Pair]:
    grid = _drawn(2, 3, 2, 2, 3) * 1.5
    grid[0, 0, 0] = torch.tensor([[0.0, -1.0, 1.0], [0.25, 0.5, -0.5]])
    for mode, padding, aligned in product((0, 1), (0, 1, 2), (False, True)):
        for x in (_drawn(2, 2, 4, 3, 2), _drawn(2, 2, 1, 1, 1)):
            given = (x, grid, mode, padding, aligned)
            yield _pair(module.grid_sampler_3d, _aten.grid_sampler_3d.default, *given)
            yield _pair(
                module.grid_sampler_3d_backward,
                _aten.grid_sampler_3d_backward.default,
                *(_drawn(2, 2, 3, 2, 2), *given, [True, True]),
            )


def _scalings(module: ModuleType) -> Iterator[_Pair]:
    for bad, before in product((1.0, torch.inf), (0.0, 1.0)):
        pairs = []
        check = _aten._amp_foreach_non_finite_check_and_unscale_.default
        for function in (module.unscale_, check):
            gradients, found = [torch.tensor([bad, 2.0]), torch.ones(3)], torch.tensor([before])
            function(gradients, found, torch.tensor([0.25]))
            pairs.append([*gradients, found])
        yield pairs[0], pairs[1]
    small = torch.tensor([6e4], dtype=torch.float16)
    module.unscale_([small], torch.zeros(1), torch.tensor(2.0**-30))
    yield [small != 0], [torch.tensor([True])]
    for found, steps, scale in product((0.0, 1.0), (0, 1), (4.0, 3e38)):
        pairs = []
        for function in (module.update_scale_, _aten._amp_update_scale_.default):
            current, tracker = torch.tensor([scale]), torch.tensor([steps], dtype=torch.int32)
            function(current, tracker, torch.tensor([found]), 2.0, 0.5, 2)
            pairs.append([current, tracker])
        yield pairs[0], pairs[1]


_PAIRS: Final[dict[str, Callable[[ModuleType], Iterator[_Pair]]]] = {
    "_kthvalue": _kthvalues,
    "_mode": _modes,
    "_indices": _of_indices,
    "_unpooling": _unpoolings,
    "_grid_sampler": _samples,
    "_scaler": _scalings,
}

# Module -> (what it says, what the mutant says).
_MUTANTS: Final = {
    "_kthvalue": [
        ("k - 1, 1", "k if k < size else k - 1, 1"),
        ("1 <= k <= size", "0 <= k <= size"),
        ("or not keepdim", "or keepdim"),
    ],
    "_mode": [
        ("length.amax(-1", "length.amin(-1"),
        (
            "torch.where(run == first, number, -1).amax",
            "torch.where(run == first, number, 99).amin",
        ),
        (
            "torch.where(longest, number, run.shape[-1]).amin",
            "torch.where(longest, number, -1).amax",
        ),
    ],
    "_indices": [
        ("size if at == axis", "size if at == self.dim() - 1 - axis"),
        ("chosen.cumsum(0) - 1", "chosen.cumsum(0)"),
        ("index < 0, index + size", "index < 0, index + size - 1"),
        ("high >= end", "high > end"),
        ("low < least or", "low < least - 1 or"),
        ("flat.scatter_add_(0, places", "flat.scatter_(0, places"),
        ("shape[dim] = index.numel()", "shape[0] = index.numel()"),
    ],
    "_unpooling": [("indices.flatten(-dimensions)", "indices.flatten(-dimensions).flip(-1)")],
    "_grid_sampler": [
        ("signs = [1 if bit else -1", "signs = [-1 if bit else 1"),
        ("y * z * signs[0]", "x * z * signs[0]"),
        ("span / 2) - (", "span / 2) + ("),
        ("(place > 0) & (place < size - 1)", "(place >= 0) & (place < size - 1)"),
        ("turns.remainder(2) == 1", "turns.remainder(2) == 0"),
        ("odd, -sign, sign", "odd, sign, sign"),
        ("place < axis.size", "place <= axis.size - 2"),
        ("axis.place.round()", "(axis.place + 0.5).floor()"),
        ("stride *= axis.size", "stride *= axes[0].size"),
        ("if not span:", "if span < 0:"),
    ],
    "_scaler": [
        ("torch.where(found, 1.0, found_inf)", "torch.where(found, 1.0, 0.0)"),
        ("gradient.to(wide) * factor", "gradient * factor.to(gradient.dtype)"),
        ("due & grown.isfinite()", "due"),
        ("bad | due", "bad"),
        ("steps == growth_interval", "steps > growth_interval"),
    ],
}


def _differs(name: str, module: ModuleType) -> bool:
    for ours, torchs in _PAIRS[name](module):
        if isinstance(ours, str) or isinstance(torchs, str):
            # Ours says what was expected; what it calls raises on the CPU, and not on the device.
            if not (isinstance(ours, str) and isinstance(torchs, str) and ": expected" in ours):
                return True
            continue
        for one, other in zip(ours, torchs, strict=True):
            if one.shape != other.shape or not torch.allclose(one, other, 1e-9, 1e-12, True):
                return True
    return False


@pytest.mark.parametrize("name", _PAIRS)
def test_what_is_not_changed_is_as_torchs(name: str) -> None:
    assert not _differs(name, importlib.import_module(f"{_FOLDER}.{name}"))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param(name, old, new, id=f"{name.strip('_')}-{number}")
        for name, changes in _MUTANTS.items()
        for number, (old, new) in enumerate(changes)
    ],
)
def test_a_mutant_is_found(name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(importlib.import_module(f"{_FOLDER}.{name}"))
    assert old in source
    mutant = ModuleType(f"{_FOLDER}.{name}_mutant")
    # Dataclasses look their module up.
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)
    exec(compile(source.replace(old, new), mutant.__name__, "exec"), mutant.__dict__)
    assert _differs(name, mutant)
