"""Random numbers: seeded by torch.manual_seed, one sequence per device, apart from the CPU's."""

from __future__ import annotations

import pytest
import torch

from torchyard_simulated import runtime


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randn(8, device="simulated"),
        lambda: torch.randint(1000, (8,), device="simulated"),
        lambda: torch.randperm(50, device="simulated"),
        lambda: torch.nn.functional.dropout(torch.ones(64, device="simulated"), 0.5),
        lambda: torch.ones(64, device="simulated").bernoulli_(0.5),
        lambda: torch.multinomial(torch.ones(50, device="simulated"), 20),
    ],
    ids=["randn", "randint", "randperm", "dropout", "bernoulli", "multinomial"],
)
def test_a_seed_repeats_the_numbers_and_drawing_moves_on(draw: object) -> None:
    assert callable(draw)
    torch.manual_seed(3)
    first, second = draw().tolist(), draw().tolist()
    torch.manual_seed(3)
    assert draw().tolist() == first
    assert second != first


def test_drawing_on_the_device_leaves_the_cpus_sequence_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4).tolist()
    torch.manual_seed(3)
    torch.rand(4, device="simulated")
    torch.nn.functional.dropout(torch.ones(8, device="simulated"), 0.5)
    assert torch.rand(4).tolist() == expected


def test_devices_have_sequences_of_their_own() -> None:
    runtime.manual_seed(1, 0)
    runtime.manual_seed(2, 1)
    assert runtime.initial_seed(0) == 1
    assert runtime.initial_seed("simulated:1") == 2
    expected = torch.rand(4, device="simulated:0").tolist()
    runtime.manual_seed(1, 1)
    assert torch.rand(4, device="simulated:1").tolist() == expected


def test_a_state_is_saved_and_restored() -> None:
    state = runtime.get_rng_state()
    assert state.device.type == "cpu"
    first = torch.rand(4, device="simulated").tolist()
    runtime.set_rng_state(state)
    assert torch.rand(4, device="simulated").tolist() == first
    with torch.random.fork_rng(devices=[0], device_type="simulated"):
        inside = torch.rand(4, device="simulated").tolist()
    assert torch.rand(4, device="simulated").tolist() == inside


def test_seeds_use_all_64_bits() -> None:
    runtime.manual_seed(2**64 - 1)
    assert runtime.initial_seed() == 2**64 - 1
    assert runtime.seed() == runtime.initial_seed()


def test_a_generator_of_the_device() -> None:
    generator = torch.Generator("simulated:1").manual_seed(5)
    assert generator.device == torch.device("simulated:1")
    first = torch.rand(4, device="simulated:1", generator=generator).tolist()
    generator.manual_seed(5)
    copy = generator.clone_state()
    assert torch.rand(4, device="simulated:1", generator=generator).tolist() == first
    assert torch.rand(4, device="simulated:1", generator=copy).tolist() == first


def test_a_generator_of_the_cpu_is_refused() -> None:
    with pytest.raises(RuntimeError, match="expected a generator of the simulated device"):
        torch.rand(4, device="simulated", generator=torch.Generator())
