"""Attention over ranks is attention over the whole sequence: outputs, lse and every gradient."""

from __future__ import annotations

import itertools

import pytest
import torch

from packages.collectives.tests.ranks import run_ranks

from .whole import MASKS, MODS, SHARDINGS, Case, Outcome, part, whole

FLAT = ("ring", "allgather", "ulysses")


@pytest.fixture(name="backend", params=["gloo", pytest.param("shm", marks=pytest.mark.sweep)])
def _backend(request: pytest.FixtureRequest) -> str:
    """Return a backend of the group: the same laws hold on each, and all of them on both."""
    return str(request.param)


def _check(case: Case, ranks: int, backend: str) -> None:
    expected = whole(case)
    outcomes: list[tuple[Outcome, torch.Tensor, torch.Tensor]] = run_ranks(
        ranks, part, case, backend=backend
    )
    # Rounding of sums in another order, in units of the dtype.
    bounds = {torch.float64: 1e-11, torch.float32: 3e-5, torch.bfloat16: 4e-2}
    close = {"rtol": bounds[case.dtype], "atol": bounds[case.dtype]}
    for outcome, rows, keys in outcomes:
        for name in ("out", "lse", "query", "key", "value"):
            at = keys if name in ("key", "value") else rows
            wanted = getattr(expected, name)[:, :, at]
            torch.testing.assert_close(getattr(outcome, name), wanted, **close)
        if expected.table is not None:
            assert outcome.table is not None
            torch.testing.assert_close(outcome.table, expected.table, **close)


@pytest.mark.parametrize("schedule", FLAT)
@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_gives_the_same_as_one_process(mask: str, schedule: str, backend: str) -> None:
    for mod, sharding in zip(itertools.cycle(MODS), SHARDINGS, strict=False):
        _check(Case(mask=mask, mod=mod, sharding=sharding, schedule=schedule), 2, backend)


@pytest.mark.sweep
@pytest.mark.parametrize("schedule", FLAT)
@pytest.mark.parametrize("mod", MODS)
def test_every_score_mod_gives_the_same_on_four_ranks(
    mod: str, schedule: str, backend: str
) -> None:
    for sharding, mask in zip(SHARDINGS, MASKS, strict=True):
        _check(Case(mask=mask, mod=mod, sharding=sharding, schedule=schedule), 4, backend)


@pytest.mark.parametrize("schedule", FLAT)
def test_other_lengths_of_keys_are_spread_in_their_own_way(schedule: str, backend: str) -> None:
    for ranks in (2, 3):
        _check(
            Case(mask="none", mod="bias", schedule=schedule, heads=6, kv_heads=6, kv_length=61),
            ranks,
            backend,
        )


@pytest.mark.sweep
@pytest.mark.parametrize("mesh", [(2, 2), (4, 1), (1, 4)])
@pytest.mark.parametrize("mask", ["none", "causal", "any"])
def test_a_mesh_of_two_dimensions_divides_heads_along_the_second(
    mask: str, mesh: tuple[int, int], backend: str
) -> None:
    for mod, sharding in (("bias", "asked"), ("heads", "head_tail"), ("alibi", "uneven")):
        _check(
            Case(mask=mask, mod=mod, sharding=sharding, schedule="hybrid", mesh=mesh), 4, backend
        )


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 8), (8, 2), (8, 1)])
@pytest.mark.parametrize("schedule", FLAT)
def test_any_ratio_of_heads_is_divided(
    schedule: str, heads: int, kv_heads: int, backend: str
) -> None:
    case = Case(schedule=schedule, heads=heads, kv_heads=kv_heads, mod="heads")
    for ranks in (2, 4):
        _check(case, ranks, backend)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("schedule", FLAT)
def test_low_precision_is_summed_in_float32(
    schedule: str, dtype: torch.dtype, backend: str
) -> None:
    _check(Case(dtype=dtype, schedule=schedule, sharding="head_tail", length=192), 4, backend)


@pytest.mark.parametrize("schedule", FLAT)
def test_ranks_that_share_memory_give_the_same(schedule: str) -> None:
    _check(Case(mask="documents", mod="bias", sharding="head_tail", schedule=schedule), 2, "shm")
