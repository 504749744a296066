"""Random numbers of a device."""

from __future__ import annotations

from torchyard_conformance import Subject, law
from torchyard_conformance._laws.device._tried import devices, try_check


@law("device.random", profiles=("device",), cases=devices)
def test_random_numbers_come_again(subject: Subject, case: str) -> None:
    """The same seed, and the same saved state, give the same random numbers.

    Seeds of torch and of a generator, states of the device's module, `torch.random.fork_rng`, and
    dropout that activation checkpointing computes again.

    Why: a run that cannot be repeated cannot be debugged, and dropout with other zeros in the
    backward pass gives wrong gradients without an error.

    Fix: `getDefaultGenerator` and `getNewGenerator` in the hooks, and in the device's module
    `manual_seed_all`, `get_rng_state`, `set_rng_state` and `_initialized`.
    """
    try_check(subject, "random", case)
