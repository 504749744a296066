"""The fuzz tries every public function and class, or says why it does not."""

from __future__ import annotations

import importlib
import inspect
from enum import Enum
from importlib.util import find_spec
from typing import Any

import pytest

from tests.architecture.tree import module_name, sources
from tests.fuzz.catalogue import CALLS, NO_USERS, NOT_TRIED
from tests.fuzz.harness import public


def _public_modules() -> list[str]:
    # The package that releases the others is not installed beside them.
    found = [module_name(path) for path in sources()]
    names = [name for name in found if find_spec(name.partition(".")[0]) is not None]
    assert names
    return [
        name
        for name in names
        if not any(part.startswith("_") for part in name.split("."))
        and not any(name == kept or name.startswith(f"{kept}.") for kept in NO_USERS)
    ]


def _takes_arguments(value: Any) -> bool:
    if inspect.ismodule(value) or not callable(value):
        return False
    if inspect.isclass(value):
        return not issubclass(value, BaseException | Enum)
    try:
        return bool(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return True


def _objects(names: set[str]) -> list[object]:
    """Return what dotted names stand for, and the classes that methods among them belong to."""
    found = []
    for name in names:
        owner = name.rpartition(".")[0]
        found += [public(name), *([public(owner)] if owner.count(".") else [])]
    return found


@pytest.mark.parametrize("module", _public_modules())
def test_every_public_name_that_takes_arguments_is_tried(module: str) -> None:
    tried = _objects({call.name for call in CALLS})
    exported = importlib.import_module(module)
    missing = [
        name
        for name in exported.__all__
        if _takes_arguments(value := getattr(exported, name))
        and not any(value is one for one in tried)
        and not any(value is public(other) for other in NOT_TRIED)
    ]
    assert not missing, (
        f"{module}: public names that tests/fuzz does not try: {missing}; add calls that are "
        "right to tests/fuzz/calls, or a reason to NOT_TRIED"
    )


def test_what_is_left_out_is_there_and_takes_arguments() -> None:
    assert len(set(NOT_TRIED)) < len(CALLS)
    for name in NOT_TRIED:
        assert name.rpartition(".")[2] in importlib.import_module(name.rpartition(".")[0]).__all__
    for module in set(NO_USERS) - {"torchyard_simulated"}:
        assert importlib.import_module(module).__name__ == module


def test_a_name_that_is_tried_is_not_left_out() -> None:
    tried = {call.name for call in CALLS}
    assert not tried & set(NOT_TRIED)
    assert not [name for name in tried if any(name.startswith(f"{m}.") for m in NO_USERS)]
