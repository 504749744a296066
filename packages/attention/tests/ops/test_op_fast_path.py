"""The op's kernel tries the fast path, for repeated calls and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchyard import registry
from torchyard_attention import create_block_mask, flex_attention, masks
from torchyard_attention._api import checked_call
from torchyard_attention._ops._arguments import flattened
from torchyard_attention.contract import AttentionRequest

from .settings import context, deterministic, environment
from .spies import Spy, nothing_enabled, spying

_OP = torch.ops.torchyard_attention.forward.default
_REST = (False, False, False, "")  # lse, max_scores, grad, use


@pytest.fixture
def spy() -> Iterator[Spy]:
    """Stand in for what the chosen forwards offer."""
    with spying() as spy:
        yield spy


def _query(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(1, 2, 3, 4, dtype=dtype)


def _doubled(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score * 2


def _given(query: Tensor, *rest: Any) -> list[Any]:
    return flattened(checked_call(query, query, query, *rest))


def test_the_fast_path_returns_what_the_fake_promises(spy: Spy) -> None:
    query = _query()
    given = _given(query)
    spy.answer = torch.zeros(1, 2, 3, 4)
    out, lse, max_scores = _OP(*given, *_REST)
    assert out.data_ptr() == spy.answer.data_ptr()
    assert lse.shape == max_scores.shape == (0,)
    assert lse.dtype == max_scores.dtype == torch.float32
    assert lse is not max_scores
    spy.answer = (out, torch.ones(1, 2, 3))
    found = _OP(*given, True, *_REST[1:])
    assert torch.equal(found[1], spy.answer[1])
    assert found[2].shape == (0,)
    expected = (None, 0.5, True, False, None), (None, 0.5, True, True, None)
    assert tuple(asked[3:] for asked in spy.asked) == expected


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("options", "cpu.rows_per_item=64"),
        ("max_scores", True),
        ("grad", True),
        ("use", "attention.tiled"),
    ],
)
def test_a_call_with_more_to_it_is_not_handed_over(spy: Spy, place: str, value: Any) -> None:
    names = [argument.name for argument in _OP._schema.arguments]
    given = [*_given(_query()), *_REST]
    _OP(*given)
    assert len(spy.asked) == 1
    given[names.index(place)] = value
    _OP(*given)
    assert len(spy.asked) == 1


def test_a_mask_is_handed_over_with_the_calls_lengths(spy: Spy) -> None:
    mask = create_block_mask(masks.causal, None, None, 3, 3, device="cpu")
    _OP(*_given(_query(), None, mask), *_REST)
    found = spy.asked[0][3]
    assert found.lengths == (3, 3)
    assert found.causal is True
    assert found.blocks.block_size == mask.BLOCK_SIZE
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "bits"):
        assert getattr(found.blocks, name) is getattr(mask, name)


def test_a_mask_whose_bits_are_old_is_not_handed_over(spy: Spy) -> None:
    query, limit = _query(), torch.tensor(2)
    mask = create_block_mask(lambda b, h, q, k: k < limit, None, None, 3, 3, device="cpu")
    given = _given(query, None, mask)
    _OP(*given, *_REST)
    assert len(spy.asked) == 1
    limit.fill_(1)
    out = _OP(*given, *_REST)[0]
    assert len(spy.asked) == 1
    torch.testing.assert_close(out, query[:, :, :1].expand_as(query))


def test_a_score_is_handed_over_as_one_object_for_its_text(spy: Spy) -> None:
    slopes = torch.rand(2)
    given = _given(_query(), lambda s, b, h, q, k: s + slopes[h])
    for _ in range(2):
        _OP(*given, *_REST)
    (one, captured), (other, _) = (asked[7] for asked in spy.asked)
    assert one is other
    assert one == given[4]
    assert len(captured) == 1
    assert captured[0] is slopes


def test_a_score_of_doubles_is_not_handed_over(spy: Spy) -> None:
    _OP(*_given(_query(torch.float64), _doubled), *_REST)
    assert not spy.asked


def test_an_enabled_score_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Spy()
    # The forward that is chosen offers the spy.
    chosen = type(
        registry().resolve("attention/1", AttentionRequest("cpu", "float32", 1, 2, 2, 3, 3, 4, 4))
    )
    monkeypatch.setattr(chosen, "fast_path", lambda self, request: told, raising=False)
    given = _given(_query(), lambda s, b, h, q, k: s * 2.625)
    with nothing_enabled():
        for _ in range(2):
            _OP(*given, *_REST)
    scores = [call.score_mod for _, call in told.enabled if call.score_mod is not None]
    assert len(scores) == 2
    assert scores[0].text is scores[1].text


@pytest.mark.parametrize(
    "mode",
    [torch.profiler.profile, deterministic, environment, context],
    ids=lambda mode: mode.__name__,
)
def test_another_setting_keeps_it_from_being_handed_over(
    spy: Spy, mode: Callable[[], AbstractContextManager[object]]
) -> None:
    given = _given(_query())
    with mode():
        _OP(*given, *_REST)
    assert not spy.asked
    _OP(*given, *_REST)
    assert len(spy.asked) == 1


class _Ops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_the_op_before_it_is_handed_over(spy: Spy) -> None:
    spy.answer = torch.zeros(1, 2, 3, 4)
    given = _given(_query())
    with _Ops() as ops:
        _OP(*given, *_REST)
    assert ops.seen[0] == "torchyard_attention.forward.default"
    assert len(spy.asked) == 1


def test_vmap_hands_over_one_call_for_all(spy: Spy) -> None:
    query = torch.randn(3, 1, 2, 3, 4)
    expected = torch.stack([flex_attention(one, one, one) for one in query])
    spy.asked.clear()
    found = torch.func.vmap(lambda one: flex_attention(one, one, one))(query)
    assert [asked[0].shape for asked in spy.asked] == [(3, 2, 3, 4)]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_code_hands_over(spy: Spy, backend: str) -> None:
    torch.compiler.reset()
    query = _query()
    compiled = torch.compile(flex_attention, backend=backend, fullgraph=True)
    with torch.no_grad():
        compiled(query, query, query)
        spy.asked.clear()
        spy.answer = torch.full((1, 2, 3, 4), 7.0)
        assert torch.equal(compiled(query, query, query), spy.answer)
    assert len(spy.asked) == 1


def test_an_exported_program_hands_over(spy: Spy) -> None:
    class Attend(torch.nn.Module):
        def forward(self, query: Tensor) -> Tensor:
            found: Tensor = flex_attention(query, query, query, _doubled)
            return found

    query = _query()
    program = torch.export.export(Attend(), (query,)).module()
    spy.asked.clear()
    spy.answer = torch.full((1, 2, 3, 4), 7.0)
    assert torch.equal(program(query), spy.answer)
    assert len(spy.asked) == 1


def _changed(place: int, change: Callable[[Any], Any]) -> Callable[[list[Any]], None]:
    def apply(given: list[Any]) -> None:
        given[place] = change(given[place])

    return apply


_WRONG = {
    "query of three dimensions": _changed(0, lambda query: query[0]),
    "key of three dimensions": _changed(1, lambda key: key[0]),
    "no program": _changed(4, lambda text: "nonsense"),
    "a tensor that is missing": _changed(3, lambda captured: None),
    "five tensors of a mask": _changed(5, lambda mask: mask[:5]),
    "one size of a block": _changed(6, lambda sizes: sizes[:1]),
    "no implementation": _changed(-1, lambda use: "attention.nobody"),
}


@pytest.mark.parametrize("kind", _WRONG)
def test_wrong_arguments_raise_what_they_raised(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slopes = torch.rand(2)
    mask = create_block_mask(masks.causal, None, None, 3, 3, device="cpu")
    given = [*_given(_query(), lambda s, b, h, q, k: s + slopes[h], mask), *_REST]
    for _ in range(2):
        _OP(*given)
    _WRONG[kind](given)
    with pytest.raises(Exception) as known:  # noqa: PT011 - whatever the other way raises
        _OP(*given)
    monkeypatch.setattr("torchyard_attention._ops._attention.try_op", lambda given: None)
    with pytest.raises(known.type) as other:
        _OP(*given)
    assert str(known.value) == str(other.value)
