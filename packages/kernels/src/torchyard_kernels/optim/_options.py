"""Checks of what an optimiser is made with, and of the tensors that it moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from torchyard import arguments

__all__ = [
    "check_tensors",
    "check_without_effect",
    "checked_flags",
    "checked_numbers",
    "checked_pair",
    "checked_params",
    "checked_rate",
]


def checked_params(of: str, params: object) -> list[Any]:
    """Return parameters, named parameters or groups of them, as torch's optimisers take them."""
    expected = "parameters or dicts of them"
    if isinstance(params, (Tensor, str, bytes, Mapping)) or not isinstance(params, Iterable):
        raise arguments.wrong_kind(of, "params", expected, params, "write [params]")
    found = list(params)
    if not found:
        raise arguments.wrong_value(of, "params", f"{expected}, at least one", "none")
    for place, one in enumerate(found):
        if isinstance(one, Mapping):
            name = f"params[{place}]['params']"
            if "params" not in one:
                raise arguments.wrong_value(of, name, "the group's parameters", sorted(one))
            # An iterator would be used up here; torch refuses a set by itself.
            if isinstance(one["params"], (list, tuple)):
                for at, each in enumerate(one["params"]):
                    _check_parameter(of, f"{name}[{at}]", each)
            elif not isinstance(one["params"], Iterable):
                raise arguments.wrong_kind(of, name, "parameters", one["params"])
            continue
        _check_parameter(of, f"params[{place}]", one)
    return found


def _check_parameter(of: str, name: str, one: object) -> None:
    # (name, parameter), as named_parameters() gives them.
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str):
        one = one[1]
    arguments.instance(of, name, one, Tensor, "a parameter")


def checked_rate(of: str, lr: object) -> float | Tensor:
    """Return a learning rate: a number of at least 0, or a tensor of one element."""
    if not isinstance(lr, Tensor):
        return arguments.number(of, "lr", lr, least=0)
    arguments.tensor(of, "lr", lr)
    if lr.numel() != 1 or lr.is_complex():
        raise arguments.wrong_value(
            of, "lr", "a real tensor of one element", f"{lr.dtype} of shape {list(lr.shape)}"
        )
    return lr


def checked_pair(of: str, betas: object) -> tuple[float, float]:
    """Return two decays, each of at least 0 and less than 1."""
    first, second = arguments.sequence(of, "betas", betas, _decay, expected="numbers", length=2)
    return first, second


def _decay(of: str, name: str, value: object) -> float:
    found = arguments.number(of, name, value, least=0, most=1)
    if found == 1:
        raise arguments.wrong_value(of, name, "a number of at least 0 and less than 1", found)
    return found


def checked_numbers(of: str, **given: object) -> list[float]:
    """Return numbers of at least 0, in their order."""
    return [arguments.number(of, name, value, least=0) for name, value in given.items()]


def checked_flags(of: str, **given: object) -> list[bool]:
    """Return bools, in their order."""
    return [arguments.boolean(of, name, value) for name, value in given.items()]


def check_tensors(of: str, params: Iterable[Tensor], states: Mapping[Any, Any]) -> None:
    """Raise where the storage of a parameter, its gradient or its state was freed.

    Raises:
        ValueError: names what has no memory.
    """
    for index, param in enumerate(params):
        arguments.tensor(of, f"params[{index}]", param)
        if param.grad is not None and not param.grad.is_sparse:
            arguments.tensor(of, f"params[{index}].grad", param.grad)
        for name, value in states.get(param, {}).items():
            if isinstance(value, Tensor):
                arguments.tensor(of, f"state[{index}][{name!r}]", value)


def check_without_effect(of: str, **options: object) -> None:
    """Check options of torch's that choose between ways to compute the same.

    Raises:
        TypeError: one is neither a bool nor None.
        ValueError: two are True.
    """
    chosen = [
        name
        for name, value in options.items()
        if value is not None and arguments.boolean(of, name, value)
    ]
    if len(chosen) > 1:
        raise ValueError(
            f"{of}: expected at most one of {' and '.join(options)} to be True, got both"
        )
