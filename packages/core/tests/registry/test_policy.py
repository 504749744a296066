"""Demands: who may ask for an implementation, and who is heard first."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from packages.core.tests.conftest import Make
from packages.core.tests.toys import GOOD, TOY
from torchyard import ContractId, PolicyError, Source, use
from torchyard._registry.policy import Use, demanded, demanding, parse_enlisted, parse_uses

_TOY = ContractId("toy", 1)


def test_an_argument_is_stronger_than_the_context_and_that_than_the_environment() -> None:
    environment = "toy=env.x"
    assert demanded(_TOY, None, "") is None
    assert demanded(_TOY, None, environment) == Use("env.x", Source.ENVIRONMENT)
    with demanding({"toy": "context.x"}):
        assert demanded(_TOY, None, environment) == Use("context.x", Source.CONTEXT)
        assert demanded(_TOY, "argument.x", environment) == Use("argument.x", Source.ARGUMENT)
    assert demanded(_TOY, None, environment) == Use("env.x", Source.ENVIRONMENT)


def test_every_source_is_stronger_than_the_next(make_registry: Make, tmp_path: Path) -> None:
    lock = tmp_path / "lock.json"
    lock.write_text(
        '{"schema": 1, "made_with": {}, '
        '"decisions": {"toy/1": {"cpu float32 small": "toy.reference"}}}'
    )
    environ: dict[str, str] = {}
    registry = make_registry(TOY, GOOD, environ=environ)
    from torchyard_toy.contract import ToyRequest  # type: ignore[import-not-found]

    def decided(argument: str | None = None) -> tuple[str, str]:
        decision = registry.decide("toy/1", ToyRequest(), use=argument)
        return decision.name, str(decision.source)

    # The environment mapping is read for every decision, so that a change counts at once.
    assert decided() == ("good.fast", "order")
    environ["TORCHYARD_LOCK"] = str(lock)
    assert decided() == ("toy.reference", "lock")
    environ["TORCHYARD_USE"] = "toy=good.fast"
    assert decided() == ("good.fast", "environment")
    with use(toy="toy.reference"):
        assert decided() == ("toy.reference", "context")
        assert decided("good.fast") == ("good.fast", "argument")
    del environ["TORCHYARD_USE"], environ["TORCHYARD_LOCK"]
    assert decided() == ("good.fast", "order")


def test_blocks_nest_and_the_innermost_wins() -> None:
    def found() -> str | None:
        demand = demanded(_TOY, None, "")
        return demand and demand.implementation

    with demanding({"toy": "a.x", "other": "o.o"}):
        with demanding({"toy": "b.y"}):
            assert found() == "b.y"
        assert found() == "a.x"
        with demanding({"toy_v1": "c.z"}):
            assert found() == "c.z"
            with demanding({"toy": "d.w"}):
                assert found() == "d.w"
    assert found() is None


def test_a_block_ends_where_an_exception_leaves_it() -> None:
    with pytest.raises(ZeroDivisionError), demanding({"toy": "a.x"}):
        raise ZeroDivisionError
    assert demanded(_TOY, None, "") is None


def test_a_version_can_be_asked_for_alone() -> None:
    with demanding({"toy_v2": "a.x"}):
        assert demanded(_TOY, None, "") is None
        assert demanded(ContractId("toy", 2), None, "") == Use("a.x", Source.CONTEXT)


def test_a_block_holds_in_its_own_thread_only() -> None:
    inside: list[Use | None] = []
    with demanding({"toy": "a.x"}):
        thread = threading.Thread(target=lambda: inside.append(demanded(_TOY, None, "")))
        thread.start()
        thread.join()
    assert inside == [None]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"toy": "fast"}, "use(toy=...): expected '<plugin>.<implementation>', got 'fast'"),
        ({"Toy": "a.x"}, "use(Toy=...): contract: expected 'op/version'"),
    ],
)
def test_a_demand_that_nobody_can_read_is_refused_at_once(
    keywords: dict[str, str], words: str
) -> None:
    with pytest.raises(PolicyError) as caught, demanding(keywords):
        pass
    assert words in str(caught.value)


def test_a_demand_for_what_nobody_defines_is_refused_with_the_ops(make_registry: Make) -> None:
    made = make_registry(TOY, GOOD)
    with use(toy="good.fast", toy_v1="good.fast"):
        pass
    for keyword in ("toys", "toy_v7"):
        words = rf"use\({keyword}=...\): .*; the ops are: .*toy"
        with pytest.raises(PolicyError, match=words), use(**{keyword: "good.fast"}):
            pass
    assert [str(contract) for contract in made.contracts()] == ["toy/1"]


def test_the_environments_forms_are_read() -> None:
    assert parse_uses(" toy=a.x , attention/1 = b.y,") == {"toy": "a.x", "attention/1": "b.y"}
    assert parse_enlisted("a.x, b.y,") == {"a.x", "b.y"}
    assert parse_uses("") == {}
    assert parse_enlisted("") == frozenset()


@pytest.mark.parametrize("text", ["toy", "toy=", "=a.x", "toy=fast", "toy:a.x", "to y=a.x"])
def test_a_use_that_nobody_can_read_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="TORCHYARD_USE: "):
        parse_uses(text)


def test_an_enlisted_name_without_a_plugin_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"TORCHYARD_ENLIST: expected .*, got 'fast'"):
        parse_enlisted("fast")
