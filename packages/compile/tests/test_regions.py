"""Blocks that repeat are compiled once; nothing runs uncompiled in silence."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from torchyard_compile import (
    FallbackError,
    RecompileBudgetError,
    RegionWarning,
    compile_regions,
)


class _Block(nn.Module):
    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


class _Printing(_Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x).relu()
        print("in the middle")
        return x + self.down(y)


class _Counting(_Block):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.number


class _Model(nn.Module):
    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _compiled(model: Any, **words: Any) -> Any:
    return compile_regions(model, backend="aot_eager", **words)


def test_blocks_of_a_kind_are_compiled_once_and_give_their_results() -> None:
    torch.manual_seed(0)
    model, x = _Model([_Block() for _ in range(6)]), torch.randn(3, 8)
    expected = model(x)
    names = list(model.state_dict())
    model = _compiled(model)
    torch.testing.assert_close(model(x), expected)
    (region,) = model.report.regions
    assert region.kind == "_Block"
    assert region.names == tuple(f"blocks.{number}" for number in range(6))
    assert len(region.compilations) == 1
    assert region.seconds > 0
    assert __file__ in region.location
    assert list(model.state_dict()) == names
    assert json.loads(model.report.to_json())["regions"][0]["kind"] == "_Block"
    assert "_Block x 6: 1 compilation(s)" in str(model.report)


def test_gradients_are_those_without_it() -> None:
    torch.manual_seed(0)
    model, x = _Model([_Block() for _ in range(3)]), torch.randn(3, 8)
    model(x).sum().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    _compiled(model)(x).sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_kinds_differ_by_shapes_and_the_outermost_blocks_count() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ModuleList([_Block(), _Block()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.inner:
                x = block(x)
            return x

    model = _Model([Outer(), Outer(), nn.Sequential(_Block(16), _Block(16), _Block(4))])
    report = _compiled(model).report
    assert [(r.kind, r.names) for r in report.regions] == [
        ("Outer", ("blocks.0", "blocks.1")),
        ("_Block", ("blocks.2.0", "blocks.2.1")),
    ]


def test_what_does_not_repeat_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"compile_regions: model: .* the whole model"):
        compile_regions(nn.Linear(2, 2))


def test_hooks_of_blocks_run() -> None:
    model, x = _compiled(_Model([_Block(), _Block()])), torch.randn(3, 8)
    seen = []
    model.blocks[1].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    model(x)
    assert seen == [(3, 8)]


def test_a_graph_break_is_refused_by_block_and_line() -> None:
    model, x = _compiled(_Model([_Printing(), _Printing()])), torch.randn(3, 8)
    with pytest.raises(FallbackError, match=r"(?s)blocks.0 would run uncompiled: .*print"):
        model(x)


def test_a_graph_break_is_a_warning_where_that_is_asked_for() -> None:
    torch.manual_seed(0)
    model, x = _Model([_Printing(), _Printing()]), torch.randn(3, 8)
    expected = model(x)
    model = _compiled(model, on_fallback="warn")
    with pytest.warns(RegionWarning, match="a graph was broken"):
        torch.testing.assert_close(model(x), expected)
    assert model.report.graph_breaks
    assert "graph break x" in str(model.report)


def test_a_kind_that_is_compiled_too_often_is_named_with_its_guards() -> None:
    model = _compiled(_Model([_Counting(n) for n in range(4)]), budget=1)
    with pytest.raises(RecompileBudgetError, match=r"_Counting .* budget of 1: .*number"):
        model(torch.randn(3, 8))
    torch.compiler.reset()
    again = _compiled(_Model([_Counting(n) for n in range(4)]), budget=1, on_fallback="warn")
    with pytest.warns(RegionWarning, match="dynamic=True"):
        again(torch.randn(3, 8))


def test_two_hundred_shapes_end_at_the_budget_and_not_in_eager() -> None:
    model, calls = _compiled(_Model([_Block(), _Block()]), dynamic=False), 0
    with contextlib.suppress(RecompileBudgetError):
        for length in range(2, 202):
            model(torch.randn(length, 8))
            calls += 1
    assert calls == 5
    with pytest.raises(RecompileBudgetError, match="compiled again 5 times"):
        model(torch.randn(2, 8))
    torch.compiler.reset()
    dynamic = _compiled(_Model([_Block(), _Block()]), dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RegionWarning)
        for length in range(2, 202):
            dynamic(torch.randn(length, 8))
    assert len(dynamic.report.regions[0].compilations) == 1


def test_a_region_inside_of_a_compiled_model_is_compiled_through() -> None:
    torch.manual_seed(0)
    model, x = _Model([_Block(), _Block()]), torch.randn(3, 8)
    expected = model(x)
    whole = torch.compile(_compiled(model), backend="aot_eager")
    torch.testing.assert_close(whole(x), expected)


def test_a_transformers_model_is_compiled_by_layer() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
    )
    model = transformers.BertModel(config).eval()
    tokens = torch.arange(9)[None]
    with torch.no_grad():
        expected = model(tokens).last_hidden_state
        model = _compiled(model)
        found = model(tokens).last_hidden_state
    torch.testing.assert_close(found, expected)
    (region,) = model.report.regions
    assert (region.kind, len(region.names)) == ("BertLayer", 4)
    assert len(region.compilations) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"least": 0}, "compile_regions: least"),
        ({"budget": -1}, "compile_regions: budget"),
        ({"on_fallback": "ignore"}, "compile_regions: on_fallback"),
        ({"dynamic": "x"}, "compile_regions: dynamic"),
        ({"mode": 3}, "compile_regions: mode"),
    ],
)
def test_bad_arguments_are_named(words: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        compile_regions(_Model([_Block(), _Block()]), **words)
