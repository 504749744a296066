"""A plain function is known at one look, and is taken for another in none."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from packages.programs.tests.recordings import Mod, held
from torchyard_programs import Recordings, trace
from torchyard_programs._cache import recordings as _recordings

_CPU = torch.device("cpu")
_INPUTS = (("x", torch.float32),)
_MADE = """
def make(table, other, number):
    def plain(x):
        return functional.silu(x * table) * number + other
    return plain
"""


def _trace(function: Mod, device: torch.device = _CPU) -> tuple[str, list[Tensor]]:
    return trace(function, "fn", _INPUTS, device)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Each function whose key was made."""
    seen: list[object] = []

    def key(function: Any, *rest: Any) -> Any:
        seen.append(function)
        return make(function, *rest)

    make = _recordings._key
    monkeypatch.setattr(_recordings, "_key", key)
    return seen


def _made() -> Callable[..., Mod]:
    """Return what makes functions of one code with globals of their own."""
    names: dict[str, Any] = {"functional": functional}
    exec(_MADE, names)
    made: Callable[..., Mod] = names["make"]
    return made


def _plain(*values: Any) -> Mod:
    make = _made()
    given = values or (torch.rand(3), torch.rand(3), 2.0)
    return make(*given)


def _kept_of(recordings: Recordings, function: Mod) -> None:
    for _ in range(3):
        recordings.recorded(function, _CPU)
    assert recordings.cached_recording(function) is not None


def test_no_key_is_made_of_a_plain_function(looked: list[object]) -> None:
    recordings = Recordings(_trace)
    make = _made()
    values = torch.rand(3), torch.nn.Parameter(torch.rand(3)), 2.0
    _kept_of(recordings, make(*values))
    looked.clear()
    # Others of the same code, with other tensors and an equal number.
    for tensors in (values[:2], (torch.rand(4), torch.rand(()))):
        function = make(*tensors, float("2"))
        found = recordings.cached_recording(function)
        assert found is not None
        text, captured = _trace(function)
        assert found[0] == text
        assert [id(tensor) for tensor in found[1]] == [id(tensor) for tensor in captured]
    assert not looked


@pytest.mark.parametrize("function", [torch.tanh, functional.silu, lambda x: functional.silu(x)])
def test_no_key_is_made_of_a_function_of_torchs(function: Mod, looked: list[object]) -> None:
    recordings = Recordings(_trace)
    _kept_of(recordings, function)
    looked.clear()
    assert recordings.cached_recording(function) == (_trace(function)[0], ())
    assert not looked


def _rebound(function: Any) -> None:
    function.__globals__["functional"] = types.SimpleNamespace(silu=torch.tanh)


def _renamed(function: Any) -> None:
    function.__globals__["functional"] = torch


def _cell(position: int, value: Any) -> Callable[[Any], None]:
    def change(function: Any) -> None:
        function.__closure__[position].cell_contents = value

    return change


def _default(function: Any) -> None:
    function.__defaults__ = (2.0,)


def _coded(function: Any) -> None:
    def other() -> Mod:
        table, number, other = torch.rand(3), 2.0, torch.rand(3)
        return lambda x: functional.silu(x + table) * number + other

    function.__code__ = other().__code__  # type: ignore[attr-defined]


# The closure's names are in alphabetical order: number, other, table.
_CHANGES: dict[str, Callable[[Any], None]] = {
    "another module": _renamed,
    "no module": _rebound,
    "another number": _cell(0, 3.0),
    "another type of number": _cell(0, 2),
    "a truth": _cell(0, True),
    "a tensor for a number": _cell(0, torch.rand(3)),
    "a number for a tensor": _cell(1, 2.0),
    "another dtype": _cell(1, torch.rand(3).double()),
    "a subclass": _cell(1, torch.rand(3).as_subclass(type("Other", (Tensor,), {}))),
    "a function": _cell(0, torch.tanh),
    "a default": _default,
    "another code": _coded,
}


@pytest.mark.parametrize("name", _CHANGES)
def test_a_change_is_noticed(name: str) -> None:
    recordings = Recordings(_trace)
    function = _plain()
    _kept_of(recordings, function)
    _CHANGES[name](function)
    try:
        _trace(function)
    except Exception:
        assert recordings.cached_recording(function) is None
        return
    held(
        function,
        recordings.cached_recording,
        lambda mod: recordings.recorded(mod, _CPU),
        lambda mod: _trace(mod),
    )


def test_zeros_of_two_signs_are_two() -> None:
    recordings = Recordings(_trace)
    make, tensors = _made(), (torch.rand(3), torch.rand(3))
    _kept_of(recordings, make(*tensors, 0.0))
    assert recordings.cached_recording(make(*tensors, -0.0)) is None
    assert recordings.cached_recording(make(*tensors, float("0"))) is not None


def test_two_names_of_one_tensor_are_noticed() -> None:
    recordings = Recordings(_trace)
    make, tensor = _made(), torch.rand(3)
    _kept_of(recordings, make(tensor, torch.rand(3), 2.0))
    assert recordings.cached_recording(make(tensor, tensor, 2.0)) is None
    _kept_of(recordings, make(tensor, tensor, 2.0))
    found = recordings.cached_recording(make(tensor, tensor, 2.0))
    assert found is not None
    assert len(found[1]) == 1


def test_another_device_is_noticed() -> None:
    recordings = Recordings(_trace)
    make = _made()
    _kept_of(recordings, make(torch.rand(3), torch.rand(3), 2.0))
    there = torch.rand(3, device="meta")
    assert recordings.cached_recording(make(there, torch.rand(3), 2.0)) is None


def test_a_name_that_is_not_bound_yet_is_noticed() -> None:
    recordings = Recordings(_trace)
    function: Any = _plain()
    _kept_of(recordings, function)
    for cell in function.__closure__:
        value = cell.cell_contents
        del cell.cell_contents
        assert recordings.cached_recording(function) is None
        cell.cell_contents = value
        assert recordings.cached_recording(function) is not None


def test_a_function_with_the_code_of_torchs_is_another() -> None:
    recordings = Recordings(_trace)
    _kept_of(recordings, functional.silu)
    silu: Any = functional.silu
    other = types.FunctionType(silu.__code__, {"torch": None}, "silu", (False,))
    assert recordings.cached_recording(other) is None


def test_what_asks_a_tensor_is_not_plain(looked: list[object]) -> None:
    recordings, table = Recordings(_trace), torch.rand(3)
    for function in (
        lambda x: x * table.to(x.dtype),
        lambda x: x * table.shape[0] + table,
        lambda x: x.clamp(min=0.5),
    ):
        _kept_of(recordings, function)
        looked.clear()
        assert recordings.cached_recording(function) is not None
        assert looked == [function]
