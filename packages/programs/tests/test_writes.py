"""A function that writes is refused by name, whatever the spelling, and has written nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from torchyard_programs import ProgramError, parse, trace

Write = Callable[[Tensor, Any], Any]


def _record(function: Callable[[Any], Any]) -> tuple[str, list[Tensor]]:
    return trace(function, "fn", (("x", torch.int64),), torch.device("cpu"))


def _augmented(name: str) -> Write:
    return lambda table, value: getattr(table, f"__i{name}__")(value)


def _item(table: Tensor, value: Any) -> None:
    table[value] = 1


def _item_of_a_part(table: Tensor, value: Any) -> None:
    table[1:][value] += value


def _constant_item(table: Tensor, value: Any) -> None:
    table[0] = 1


def _data(table: Tensor, value: Any) -> None:
    table.data = torch.ones(4)


def _by_operator(table: Tensor, value: Any) -> Tensor:
    table += value  # what is returned is right, and the table would not be written
    return table


def _by_operator_and_number(table: Tensor, value: Any) -> Tensor:
    table -= 1
    return table


_WRITES: dict[str, Write] = {
    "item": _item,
    "item of a part": _item_of_a_part,
    "constant item": _constant_item,
    "data": _data,
    "+= value": _by_operator,
    "-= number": _by_operator_and_number,
    **{f"__i{name}__": _augmented(name) for name in ("add", "sub", "mul", "truediv", "pow")},
    "copy_": lambda table, value: table.copy_(value),
    "fill_": lambda table, value: table.fill_(1),
    "index_put_": lambda table, value: table.index_put_((value,), value),
    "of an item": lambda table, value: table[0].add_(1),
    "of an item at a value": lambda table, value: table[value].add_(1),
    "of an alias": lambda table, value: table.detach().view(2, 2).mul_(3),
    "out= of a value": lambda table, value: torch.add(value, 1, out=table),
    "out= of tensors": lambda table, value: torch.neg(table, out=table),
    "inplace=True": lambda table, value: functional.relu(table, inplace=True),
    "inplace, by position": lambda table, value: functional.silu(table, True),
    "init": lambda table, value: torch.nn.init.ones_(table),
    "operator of aten": lambda table, value: torch.ops.aten.add_.Tensor(table, table),
    "foreach": lambda table, value: torch._foreach_add_([table], 1),
    "of a value": lambda table, value: value.add_(1),
    "item of a value": lambda table, value: value.__setitem__(0, 1),
}


@pytest.mark.parametrize("name", _WRITES)
def test_a_write_is_refused_by_name_and_not_done(name: str) -> None:
    before = torch.tensor([-1.0, 2.0, -3.0, 4.0])
    table = before.clone()

    def function(value: Any) -> Any:
        _WRITES[name](table, value)
        return value

    with pytest.raises(ProgramError, match=r"^fn: .*(place|assignment to a tensor|with out=)"):
        _record(function)
    assert torch.equal(table, before)


class _Holder:
    last: Any = None


def _by_name_of_an_outer_function() -> Callable[[Any], Any]:
    last = None

    def function(value: Any) -> Any:
        nonlocal last
        last = value * 2
        return value

    return function


def _by_attribute() -> Callable[[Any], Any]:
    holder = _Holder()

    def function(value: Any) -> Any:
        holder.last = value
        return value

    return function


def _by_list() -> Callable[[Any], Any]:
    kept: list[Any] = []

    def function(value: Any) -> Any:
        kept.append(value + 1)
        return value

    return function


@pytest.mark.parametrize(
    "make", [_by_name_of_an_outer_function, _by_attribute, _by_list], ids=lambda make: make.__name__
)
def test_a_value_stored_outside_is_refused(
    make: Callable[[], Callable[[Any], Any]],
) -> None:
    with pytest.raises(ProgramError, match="kept outside of the function"):
        _record(make())


def test_names_lists_and_recursion_of_the_functions_own_are_no_writes() -> None:
    def function(value: Any) -> Any:
        parts = [value]

        def grow(count: int) -> None:
            if count:
                parts.append(parts[-1] * 2)
                grow(count - 1)

        grow(3)
        total = parts[0]
        for part in parts[1:]:
            total += part
        return torch.add(total, 1, out=None)

    text, captured = _record(function)
    assert captured == []
    assert [operation.word for operation in parse(text).operations] == ["mul"] * 3 + ["add"] * 4
