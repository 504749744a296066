"""A draw is a function of its key, of the element and of its parameters, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from plugins.mps.tests.emulated import emulated, fill
from torchyard_conformance import metal
from torchyard_mps import distributions as drawn
from torchyard_mps._launch import Launch
from torchyard_mps._runner import runs_by
from torchyard_mps.distributions import _draws as draws

_ONES = torch.ones(70)
_DRAWN: dict[str, Callable[[Tensor], Tensor]] = {
    "exponential": lambda key: draws.exponential(torch.Size([70]), key),
    "normal": lambda key: draws.normal(torch.Size([70]), key),
    "gamma": lambda key: torch.stack(draws.gamma(0.4 * _ONES, key)),
    "poisson": lambda key: draws.poisson(torch.linspace(0, 90, 70), key),
    "binomial": lambda key: draws.binomial(80 * _ONES, torch.linspace(0, 1, 70), key),
    "angle": lambda key: draws.angle(torch.linspace(0, 9, 70), key),
    "categories": lambda key: draws.categories(torch.linspace(-3, 3, 140).view(2, 70), 35, key),
}


def _key(first: int, second: int) -> Tensor:
    return torch.tensor([first, second]).to(torch.int32)


def _of_other_shape(groups: int, threads: int) -> Callable[[Launch], None]:
    def run(launch: Launch) -> None:
        other = replace(launch, groups=(groups, 1), threads=threads)
        fill(other, orders=1, address_sanitizer=False, simd_widths=(32,))

    return run


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "pi"],
)
def test_philox_gives_the_words_of_its_paper(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    source = draws._source() + (
        "kernel void once(constant uint4& counter [[buffer(0)]], constant uint2& key [[buffer(1)]],"
        " device uint4* out [[buffer(2)]], uint at [[thread_position_in_grid]]) {\n"
        "  if (at == 0u) out[0] = torchyard::philox(counter, key);\n}\n"
    )
    given = [torch.tensor(part).to(torch.int32) for part in (counter, key)]
    outcome = metal.run(source, "once", 1, 32, [*given, metal.Empty((4,), torch.int32)])
    assert not outcome.findings
    assert [word % 2**32 for word in outcome.outputs["out"].tolist()] == list(words)


@pytest.mark.parametrize("name", _DRAWN)
def test_a_draw_does_not_depend_on_the_shape_of_its_launch(name: str) -> None:
    key, results = _key(-5, 17), []
    for groups, threads in ((1, 32), (3, 32), (2, 96)):
        with runs_by(_of_other_shape(groups, threads)):
            results.append(_DRAWN[name](key))
    for other in results[1:]:
        assert torch.equal(results[0], other)


@pytest.mark.parametrize("name", _DRAWN)
def test_nothing_is_wrong_with_the_kernels(name: str) -> None:
    with runs_by(fill):
        _DRAWN[name](_key(3, 4))


@pytest.mark.parametrize("name", _DRAWN)
def test_other_keys_give_other_draws(name: str) -> None:
    with emulated():
        results = [_DRAWN[name](_key(*pair)) for pair in ((1, 2), (1, 3), (2, 2))]
    assert not torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_a_seed_reproduces_a_draw_and_what_was_drawn_before_does_not_change_it() -> None:
    gamma, generator = drawn.Gamma(torch.tensor(0.7), torch.tensor(1.0)), torch.Generator()
    with emulated():
        torch.manual_seed(3)
        first, second = gamma.sample((5,)), gamma.sample((5,))
        torch.manual_seed(3)
        longer = gamma.sample((9,))
        own = gamma.sample((5,), generator=generator.manual_seed(8))
        torch.manual_seed(11)
        again = gamma.sample((5,), generator=generator.manual_seed(8))
    assert not torch.equal(first, second)
    assert torch.equal(first, longer[:5])
    assert torch.equal(own, again)


def _extremes() -> dict[str, tuple[Callable[[], Any], Callable[[Tensor], Any]]]:
    tiny, half = torch.finfo(torch.float32).tiny, 0.5
    return {
        "gamma of a small shape": (
            lambda: drawn.Gamma(torch.tensor(1e-6), torch.tensor(1.0)),
            lambda x: (x >= tiny).all(),
        ),
        "gamma of a great shape": (
            lambda: drawn.Gamma(torch.tensor(1e12), torch.tensor(1.0)),
            lambda x: ((x / 1e12 - 1).abs() < 1e-4).all(),
        ),
        "beta at its ends": (
            lambda: drawn.Beta(torch.tensor(1e-5), torch.tensor(1e-5)),
            lambda x: ((x > 0) & (x < 1)).all() and abs((x > half).float().mean() - half) < 0.1,
        ),
        "dirichlet of small shapes": (
            lambda: drawn.Dirichlet(torch.full((3,), 1e-5)),
            lambda x: (x.max(-1).values > 0.99).all() and ((x.sum(-1) - 1).abs() < 1e-6).all(),
        ),
        "poisson of 0": (lambda: drawn.Poisson(torch.tensor(0.0)), lambda x: (x == 0).all()),
        "poisson of 1e9": (
            lambda: drawn.Poisson(torch.tensor(1e9)),
            lambda x: ((x / 1e9 - 1).abs() < 3e-4).all(),
        ),
        "binomial of 0": (
            lambda: drawn.Binomial(torch.tensor(0.0), torch.tensor(half)),
            lambda x: (x == 0).all(),
        ),
        "binomial that never happens": (
            lambda: drawn.Binomial(torch.tensor(9.0), torch.tensor(0.0)),
            lambda x: (x == 0).all(),
        ),
        "binomial that always happens": (
            lambda: drawn.Binomial(torch.tensor(9.0), torch.tensor(1.0)),
            lambda x: (x == 9).all(),
        ),
        "binomial that seldom happens": (
            lambda: drawn.Binomial(torch.tensor(1e6), torch.tensor(1e-30)),
            lambda x: (x == 0).all(),
        ),
        "geometric at once": (lambda: drawn.Geometric(torch.tensor(1.0)), lambda x: (x == 0).all()),
        "von Mises of 0": (
            lambda: drawn.VonMises(torch.tensor(0.0), torch.tensor(1e-30)),
            lambda x: abs(x.var() - torch.pi**2 / 3) < 0.5,
        ),
        "von Mises of 1e8": (
            lambda: drawn.VonMises(torch.tensor(1.0), torch.tensor(1e8)),
            lambda x: ((x - 1).abs() < 1e-3).all(),
        ),
        "category that never is": (
            lambda: drawn.Categorical(logits=torch.tensor([-torch.inf, 0.0, -200.0])),
            lambda x: (x == 1).all(),
        ),
        "student of a small df": (
            lambda: drawn.StudentT(torch.tensor(0.05)),
            lambda x: not x.isnan().any(),
        ),
    }


@pytest.mark.parametrize("name", _extremes())
def test_extreme_parameters(name: str) -> None:
    made, holds = _extremes()[name]
    torch.manual_seed(0)
    with emulated():
        assert holds(made().sample((500,)))


def test_shapes_are_those_of_torch() -> None:
    rate = torch.rand(3, 1).add(0.1)
    with emulated():
        assert drawn.Gamma(rate, torch.ones(4)).sample((2,)).shape == (2, 3, 4)
        assert drawn.Poisson(rate).expand((5, 3, 1)).sample().shape == (5, 3, 1)
        assert drawn.Dirichlet(torch.ones(2, 3)).rsample((4,)).shape == (4, 2, 3)
        assert drawn.Categorical(torch.ones(2, 3)).sample((4, 5)).shape == (4, 5, 2)
        assert drawn.Normal(torch.zeros(0), torch.ones(0)).sample((2,)).shape == (2, 0)
        assert drawn.multinomial(torch.ones(2, 6), 4).shape == (2, 4)
        assert drawn.multinomial(torch.ones(6), 9, replacement=True).shape == (9,)


def test_rows_of_categories_have_their_own_weights() -> None:
    weights = torch.eye(4)[[2, 0, 3]]
    with emulated():
        assert (drawn.Categorical(weights).sample((50,)) == torch.tensor([2, 0, 3])).all()
        assert (drawn.multinomial(weights, 5, True) == torch.tensor([[2], [0], [3]])).all()


def test_multinomial_without_replacement_draws_in_the_order_of_its_law() -> None:
    weights = torch.tensor([5.0, 3.0, 2.0, 0.0])
    torch.manual_seed(1)
    with emulated():
        found = drawn.multinomial(weights.expand(20_000, 4), 3)
    assert (found.sort(-1).values == torch.arange(3)).all()
    pairs = (found[:, 0] * 3 + found[:, 1]).bincount(minlength=9).double() / len(found)
    first = weights[:3].double() / 10
    expected = first[:, None] * first / (1 - first[:, None]) * (1 - torch.eye(3))
    assert (pairs - expected.flatten()).abs().max() < 0.015


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: drawn.multinomial(torch.ones(3), 4), "expected a positive weight for each draw"),
        (lambda: drawn.multinomial(torch.tensor([1.0, -1.0]), 1), "finite and not negative"),
        (lambda: drawn.multinomial(torch.ones(2, 2, 2), 1), r"\[rows, categories\]"),
        (lambda: drawn.multinomial(torch.zeros(3), 1, True), "a positive weight in a row"),
        (
            lambda: drawn.Gamma(torch.tensor(-1.0), torch.tensor(1.0), validate_args=True),
            "concentration",
        ),
        (lambda: drawn.Normal(0.0, 1.0).sample(generator=3), "expected a torch.Generator"),
    ],
)
def test_bad_arguments_are_named(call: Callable[[], Any], text: str) -> None:
    with emulated(), pytest.raises((TypeError, ValueError), match=text):
        call()


def test_without_an_apple_gpu_the_remedy_is_named() -> None:
    with pytest.raises(ValueError, match=r"draw_normal: expected tensors on mps.*move them there"):
        drawn.Normal(0.0, 1.0).sample()
