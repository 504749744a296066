"""No planted fault slips by the law that is meant for it, and a sound kernel keeps every law."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torchyard_attention.contract import BACKWARD, FORWARD
from torchyard_conformance._attention._laws import LAWS

from .kernel_mutants import MUTANTS, Mutant
from .kernel_table import INSTALLED, held, twin_of
from .toy_attention import Toy


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("three_tries")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.toy.__name__}-{m.law}")
def test_a_planted_fault_is_caught_by_the_law_that_is_meant_for_it(mutant: Mutant) -> None:
    _, broken = held(mutant.law, mutant.toy(), mutant.contract)

    assert broken is not None, f"{mutant.toy.__doc__} slips by {mutant.law}"
    assert str(broken)
    # What has cases is shown on the smallest one.
    assert bool(broken.smallest) is bool(LAWS[mutant.law].cases)


@pytest.mark.parametrize("contract", [FORWARD, BACKWARD])
@pytest.mark.parametrize("law", sorted(set(LAWS) - INSTALLED))
def test_the_sound_twin_keeps_every_law(law: str, contract: str) -> None:
    if contract not in LAWS[law].contracts:
        return
    passed, broken = held(law, twin_of(law), contract, quick=True)

    assert broken is None
    # Captured gradients are what the twin refuses, and refuses rightly.
    assert passed or law == "truth.attention-captured-on-demand"


def test_every_law_has_a_fault_that_it_is_meant_for() -> None:
    assert {mutant.law for mutant in MUTANTS} == set(LAWS) - INSTALLED


@pytest.mark.sweep
def test_the_smallest_failing_call_is_small() -> None:
    _, broken = held("truth.attention-matches-reference", _of("WrongHeadMap"), FORWARD)

    assert broken is not None
    words = dict(part.rsplit(" ", 1) for part in broken.smallest.split(";")[0].split(", "))
    # Two query heads for each of two key heads show it; fewer do not.
    assert (words["q_heads"], words["kv_heads"]) == ("4", "2")
    assert {words[name] for name in ("batch", "q_length", "head_dim")} == {"1"}


def _of(name: str) -> Toy:
    return next(mutant.toy for mutant in MUTANTS if mutant.toy.__name__ == name)()
