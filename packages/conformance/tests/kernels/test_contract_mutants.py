"""No fault planted in a kernel slips by the law meant for it, and no other law is troubled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torchyard_conformance._kernels._kernel import Kernel
from torchyard_conformance._kernels._laws import LAWS, judge
from torchyard_conformance._outcome import NotSupported, Violated

from . import linear_mutants, pointwise_mutants, recurrent_mutants, topk_mutants
from .sound_kernels import (
    SoundBackward,
    SoundKernel,
    SoundLinear,
    SoundPointwise,
    SoundRecurrent,
    SoundTopK,
)

_SOUND = (SoundBackward, SoundLinear, SoundPointwise, SoundRecurrent, SoundTopK)
_MUTANTS = (
    *linear_mutants.MUTANTS,
    *pointwise_mutants.MUTANTS,
    *recurrent_mutants.MUTANTS,
    *topk_mutants.MUTANTS,
)
# They ask the registry, which offers what is installed: `torchyard certify` holds the first, and
# test_tangent_laws the second.
_INSTALLED = {"truth.kernels-refuse-when-demanded", "truth.kernels-drop-no-tangent"}


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _held(law: str, kernel: SoundKernel) -> tuple[int, Violated | None]:
    """Hold a kernel to a law: on how many cases it holds, and the first that it breaks."""
    judged = Kernel(kernel.implementation())
    passed = 0
    for case in LAWS[law].case_names(judged.contract):
        try:
            judge(LAWS[law], judged, case)
        except NotSupported:
            continue
        except Violated as broken:
            return passed, broken
        passed += 1
    return passed, None


@pytest.mark.usefixtures("three_tries")
@pytest.mark.parametrize(
    ("mutant", "law"), _MUTANTS, ids=lambda item: getattr(item, "__name__", item)
)
def test_a_planted_fault_is_caught_by_its_law(mutant: type[SoundKernel], law: str) -> None:
    _, broken = _held(law, mutant())

    assert broken is not None, f"{mutant.__doc__} slips by {law}"
    assert str(broken)


# Every fault with every other law.
@pytest.mark.sweep
@pytest.mark.usefixtures("three_tries")
@pytest.mark.parametrize(
    ("mutant", "law"), _MUTANTS, ids=lambda item: getattr(item, "__name__", item)
)
def test_a_planted_fault_troubles_no_other_law(mutant: type[SoundKernel], law: str) -> None:
    others = {name: _held(name, mutant())[1] for name in set(LAWS) - _INSTALLED - {law}}

    assert not {name: str(other) for name, other in others.items() if other is not None}


@pytest.mark.usefixtures("three_tries")
@pytest.mark.parametrize("contract", sorted({mutant.contract for mutant, _ in _MUTANTS}))
def test_a_fault_of_each_contract_troubles_no_other_law(contract: str) -> None:
    mutant, law = next(row for row in _MUTANTS if row[0].contract == contract)
    others = {name: _held(name, mutant())[1] for name in set(LAWS) - _INSTALLED - {law}}

    assert not {name: str(other) for name, other in others.items() if other is not None}


@pytest.mark.parametrize("law", sorted(set(LAWS) - _INSTALLED))
@pytest.mark.parametrize("sound", _SOUND, ids=lambda kernel: kernel.contract)
def test_a_sound_kernel_keeps_every_law(sound: type[SoundKernel], law: str) -> None:
    passed, broken = _held(law, sound())

    assert broken is None
    assert passed or not list(LAWS[law].case_names(sound.contract))


def test_every_law_has_a_fault_that_it_is_meant_for() -> None:
    assert {law for _, law in _MUTANTS} == set(LAWS) - _INSTALLED


def test_every_contract_has_cases_of_its_own() -> None:
    contracts = {sound.contract for sound in _SOUND}

    assert {mutant.contract for mutant, _ in _MUTANTS} == contracts
    assert set(LAWS["truth.kernels-match-reference"].cases) == contracts


def test_a_quick_look_takes_a_few_cases_of_each_contract() -> None:
    for law in LAWS.values():
        for contract in law.cases:
            quick = list(law.case_names(contract, quick=True))
            assert quick
            assert set(quick) <= set(law.case_names(contract))
            assert len(quick) <= 3
