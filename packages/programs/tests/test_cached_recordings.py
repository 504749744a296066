"""Recordings are kept for each context, in a bounded number, and by what is worth a proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_programs import ProgramError, Recordings, trace
from torchyard_programs._cache import recordings as _recordings

Mod = Callable[..., Tensor]

_CPU = torch.device("cpu")
_INPUTS = (("s", torch.float32), ("h", torch.int64), ("q", torch.int64), ("k", torch.int64))
_TABLE = torch.randn(4)


def _trace(function: Mod, device: torch.device = _CPU) -> tuple[str, list[Tensor]]:
    return trace(function, "fn", _INPUTS, device)


def _keep(recordings: Recordings, function: Mod) -> bool:
    for _ in range(3):
        assert recordings.recorded(function, _CPU)[0] == _trace(function)[0]
    return recordings.cached_recording(function) is not None


def _scaled(factor: Any) -> Mod:
    return lambda s, h, q, k: s * factor


def test_many_functions_leave_a_bounded_number_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recordings, "_MOST", 8)
    monkeypatch.setattr(_recordings, "_codes", {})
    recordings = Recordings(_trace)
    for number in range(50):
        assert _keep(recordings, _scaled(float(number)))
        source = f"lambda s, h, q, k: s * {number}.5"
        assert _keep(recordings, eval(source))
    for table in ("_known", "_texts", "_occurred"):
        assert 0 < len(getattr(recordings, table)) <= 8
    assert 0 < len(_recordings._codes) <= 8


def test_the_text_of_what_was_kept_is_one_object() -> None:
    recordings = Recordings(_trace)
    first, second = _scaled(11.0), eval("lambda s, h, q, k: s * 11.0")
    assert _keep(recordings, first)
    assert _keep(recordings, second)
    one, other = recordings.cached_recording(first), recordings.cached_recording(second)
    assert one is not None
    assert other is not None
    assert one[0] is other[0]
    assert recordings.is_interned(one[0])
    assert not recordings.is_interned("".join(list(one[0])))


def test_what_was_kept_holds_for_the_device_of_what_is_captured() -> None:
    recordings, table = Recordings(_trace), torch.ones(3)
    function = _scaled(table)
    assert _keep(recordings, function)
    with pytest.raises(ProgramError, match=r"captured tensors on meta, .* one \[3\] on cpu"):
        recordings.recorded(function, torch.device("meta"))
    number = _scaled(torch.tensor(2.0))
    assert _keep(recordings, number)
    assert recordings.recorded(number, torch.device("meta"))[0]


def test_a_text_that_was_written_down_is_the_object_of_the_recording() -> None:
    recordings = Recordings(_trace)
    function = _scaled(12.0)
    text = _trace(function)[0]
    written = recordings.interned(text)
    assert recordings.is_interned(written)
    assert _keep(recordings, function)
    found = recordings.cached_recording(function)
    assert found is not None
    assert found[0] is written
    assert recordings.interned("".join(list(text))) is written


def test_many_texts_leave_a_bounded_number_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recordings, "_MOST", 8)
    recordings = Recordings(_trace)
    for number in range(50):
        text = f"{number}"
        assert recordings.interned(text) is text
        assert recordings.is_interned(text)
        assert 0 < len(recordings._texts) <= 8


def test_a_function_of_torch_is_cached_as_it_is() -> None:
    unary = Recordings(lambda function, device: trace(function, "fn", _INPUTS[:1], device))
    for function in (torch.tanh, torch.nn.functional.silu, torch.nn.functional.gelu):
        text, _ = unary.recorded(function, _CPU)
        assert unary.cached_recording(function) == (text, ())
    assert unary.cached_recording(torch.sigmoid) is None
    unary.recorded(torch.trace, _CPU)
    assert unary.cached_recording(torch.trace) is None


@pytest.mark.parametrize("function", [torch.tanh, lambda x: x * 2], ids=["torch's", "own"])
def test_each_context_has_programs_of_its_own(function: Mod) -> None:
    def record(function: Mod, device: torch.device, name: str) -> tuple[str, list[Tensor]]:
        return trace(function, "fn", ((name, None),), device)

    named = Recordings(record)
    texts = {name: named.recorded(function, _CPU, name)[0] for name in "xy"}
    assert texts["x"] != texts["y"]
    for name, text in texts.items():
        assert named.cached_recording(function, name) == (text, ())
    assert named.cached_recording(function, "z") is None


def test_only_what_was_met_twice_costs_a_proof_where_numbers_change() -> None:
    recorded = []

    def record(function: Mod, device: torch.device) -> tuple[str, list[Tensor]]:
        recorded.append(device.type)
        return _trace(function, device)

    counted = Recordings(record)
    for number in range(20):
        counted.recorded(lambda s, h, q, k, n=number + 0.5: s * n + _TABLE[h], _CPU)
    assert recorded == ["cpu"] * 20
    counted.recorded(lambda s, h, q, k: s + _TABLE[h], _CPU)
    assert recorded[20:] == ["cpu", "meta"]


def test_nothing_is_cached_inside_of_a_mode() -> None:
    recordings = Recordings(_trace)

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return 99 if func is Tensor.numel else func(*args, **(kwargs or {}))

    def mod(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return s * _TABLE.numel()

    with Mode():
        for _ in range(3):
            assert "99" in recordings.recorded(mod, _CPU)[0]
    assert recordings.cached_recording(mod) is None
    assert _keep(recordings, mod)


@pytest.mark.parametrize("other", ["text", "tensor", "order"])
def test_nothing_is_cached_where_the_second_recording_differs(other: str) -> None:
    pair = torch.rand(4), torch.rand(4)

    def record(function: Mod, device: torch.device) -> tuple[str, list[Tensor]]:
        text, captured = _trace(function, device)
        if other == "tensor":
            return text, [torch.rand(4)]
        if device.type != "meta":
            return text, captured
        return (text + "other", captured) if other == "text" else (text, captured[::-1])

    recordings = Recordings(record)
    for mod in (
        lambda s, h, q, k: s + pair[0][h] * pair[1][h],
        *([lambda s, h, q, k: s + h] if other == "tensor" else []),
    ):
        for _ in range(3):
            recordings.recorded(mod, _CPU)
        assert recordings.cached_recording(mod) is None


def test_what_belongs_to_a_helper_is_told_from_what_belongs_to_its_user() -> None:
    def made(own: Any, numbers: Any, given: Any) -> Mod:
        def helper(s: Tensor, by: Any) -> Tensor:
            return s * by

        def middle(s: Tensor, by: Any) -> Tensor:
            return helper(s, by) * numbers[0]

        helper.__defaults__, middle.__defaults__ = own, given
        return lambda s, h, q, k: middle(s, 5.0)

    recordings = Recordings(_trace)
    for mod in (made(None, (2.0,), (3.0,)), made((2.0,), (3.0,), None)):
        assert _keep(recordings, mod)


def test_which_names_are_one_tensor_is_part_of_a_function() -> None:
    def mod(*tensors: Tensor) -> Mod:
        first, second, third = tensors
        return lambda s, h, q, k: s + first[h] * second[h] - third[h]

    recordings = Recordings(_trace)
    one, other = torch.rand(4), torch.rand(4)
    for tensors in ((one, other, one), (one, other, other), (one, one, other)):
        assert _keep(recordings, mod(*tensors))


def test_a_tensor_on_another_device_is_noticed() -> None:
    def mod(like: Tensor) -> Mod:
        return lambda s, h, q, k: s + _TABLE.to(like)[h]

    recordings = Recordings(_trace)
    assert _keep(recordings, mod(torch.rand(2)))
    assert recordings.cached_recording(mod(torch.rand(3))) is not None
    assert recordings.cached_recording(mod(torch.rand(2, device="meta"))) is None


def test_another_number_of_a_tensors_parts_is_noticed() -> None:
    def counted(table: Tensor) -> Mod:
        def mod(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            count = 0
            for _ in table:
                count += 1
            return s * count

        return mod

    def paired(table: Tensor) -> Mod:
        def mod(s: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            _first, _second = table
            return s * 2

        return mod

    recordings = Recordings(_trace)
    for function in (counted, paired):
        assert _keep(recordings, function(torch.rand(2)))
        assert recordings.cached_recording(function(torch.rand(3))) is None
