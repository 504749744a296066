"""``uncompiled`` does what torch.compiler.disable does, with the marks that torch sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from torchyard import uncompiled

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = pytest.importorskip("torch")

_REASON = "its loop ends by what it computes"


def _graphs(disable: Callable[..., Any]) -> tuple[list[list[str]], Tensor]:
    """Return what is in the graphs of a function that calls one, and what it returns."""
    graphs: list[list[str]] = []

    def inner(x: Tensor) -> Tensor:
        return x.cos()

    @disable
    def apart(x: Tensor) -> Tensor:
        return inner(x).exp()

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append([str(node.target) for node in graph.graph.nodes if "call" in node.op])
        return graph.forward

    @torch.compile(backend=backend)
    def around(x: Tensor) -> Tensor:
        return apart(x.sin()).tanh()

    return graphs, around(torch.ones(2))


@pytest.mark.parametrize("known", [True, False], ids=["torch's marks", "no such marks"])
def test_the_graph_is_broken_there_and_what_it_calls_is_not_compiled(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        with monkeypatch.context() as patch:
            if not known:
                import torch._dynamo  # which reads them as it is imported

                patch.setattr(torch._C, "_dynamo", None)
            return uncompiled(_REASON)(function)

    graphs, result = _graphs(mark)
    assert graphs == [["sin"], ["tanh"]]
    torch.testing.assert_close(result, torch.ones(2).sin().cos().exp().tanh())


def test_the_marks_are_those_that_torch_sets() -> None:
    def ours() -> None: ...

    def torchs() -> None: ...

    disable: Any = torch.compiler.disable
    wanted = vars(disable(torchs, reason=_REASON))
    # The rest is of the wrapper that torch puts around it.
    of_wrapper = {"__wrapped__", "_torchdynamo_orig_callable", "_torchdynamo_wrapper_id"}
    assert uncompiled(_REASON)(ours) is ours
    assert vars(ours) == {name: wanted[name] for name in wanted.keys() - of_wrapper} != {}
