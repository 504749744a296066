"""Sorts in compiled graphs of which the first elements are read alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .rerouted_graphs import compiled, drawn

_X = torch.randint(-4, 5, (6, 5, 40), generator=torch.Generator().manual_seed(3)).float()
_X[0, 0, :3] = math.nan


def _distinct(x: Tensor) -> Tensor:
    return x.nan_to_num(9.0) + torch.linspace(0, 0.5, 40)


SELECTED: dict[str, Callable[[Tensor], Any]] = {
    "sort": lambda x: [part[..., :5] for part in torch.sort(x, dim=-1, stable=True)],
    "descending": lambda x: x.sort(-1, descending=True).values[..., :7],
    "parts of two lengths": lambda x: (
        x.sort(dim=-1, stable=True)[0][:, :, :2],
        x.sort(dim=-1, stable=True)[1][:, :, 0],
    ),
    "along columns": lambda x: torch.sort(x, 1, True).values[:, :3],
    "argsort": lambda x: torch.argsort(x, stable=True)[..., :4],
    "argsort method": lambda x: _distinct(x).argsort(-1, True)[..., 0:4],
    "narrow": lambda x: torch.sort(x, stable=True).indices.narrow(-1, 0, 3),
    "topk": lambda x: torch.topk(x, 6).values,
    "topk method": lambda x: x.topk(3, dim=1, largest=False).values,
}


@pytest.mark.parametrize("name", SELECTED)
def test_a_sort_that_is_cut_is_a_selection(name: str) -> None:
    function = SELECTED[name]
    found, sites = compiled(function, _X)
    torch.testing.assert_close(found, function(_X), rtol=0, atol=0, equal_nan=True)
    assert {site.implementation for site in sites} == {"cpu.native"}


UNSELECTED: dict[str, Callable[[Tensor], Any]] = {
    "all": lambda x: torch.sort(x).values,
    "all indices": lambda x: (x.sort().values[..., :2], x.sort().indices),
    "the last": lambda x: torch.sort(x).values[..., -3:],
    "from the second on": lambda x: torch.sort(x).values[..., 1:4],
    "every other": lambda x: torch.sort(x).values[..., :6:2],
    "another dimension": lambda x: torch.sort(x).values[:, :2],
    "a product of it": lambda x: torch.sort(x).values * 2,
}


@pytest.mark.parametrize("name", UNSELECTED)
def test_a_sort_of_which_more_is_read_is_torchs(name: str) -> None:
    function = UNSELECTED[name]
    found, sites = compiled(function, drawn(3, 5, 12))
    torch.testing.assert_close(found, function(drawn(3, 5, 12)))
    left = [site for site in sites if not site.implementation]
    assert left
    assert all("read at" in site.reason for site in left)
