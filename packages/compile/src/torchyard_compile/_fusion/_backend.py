"""``LinearFusion``: a backend of torch.compile whose products the registry chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from torch import fx

from torchyard import arguments, decision_digest, registry, sources_digest
from torchyard_compile import torch_compat
from torchyard_compile._calls import Calls, CallSite
from torchyard_compile._choice import LeftAlone, SettledError, implementation_of
from torchyard_compile._fusion._product import Product, products_of
from torchyard_compile._graph_nodes import place_of

__all__ = ["LinearFusion"]

_PARTS: Final = ("torchyard", "torchyard_compile", "torchyard_kernels", "torchyard_programs")


class LinearFusion:
    """torch.compile by Inductor, with products as the registry chooses.

    ``torch.compile(model, backend=LinearFusion())``. A product of two matrices, with the pointwise
    operations before and after it, becomes one call of ``torchyard_kernels.linear`` where an
    implementation of a device's plugin is chosen for it: by the lists, or by what
    :func:`torchyard_kernels.max_autotune` measured beside Inductor's own templates. Everything else
    is compiled as without it. Backward passes are graphs too. Results differ by rounding.

    torch's caches keep graphs with what was chosen for them; another plugin, setting or measurement
    is another key.

    Raises:
        ModuleNotFoundError: torchyard-kernels is not installed.
    """

    def __init__(self) -> None:
        if find_spec("torchyard_kernels") is None:
            raise ModuleNotFoundError(
                "LinearFusion: expected torchyard-kernels, which computes the products, found "
                "none; pip install torchyard-kernels"
            )
        self._calls = Calls()
        self._compiled = 0
        self._cached = 0

    @property
    def cached_graphs(self) -> int:
        """How many graphs torch had in its caches, with what was chosen when they were compiled.

        :meth:`explain` does not have their products.
        """
        return self._cached

    def __call__(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
        dynamic: bool | None = None,
    ) -> Callable[..., Any]:
        """Compile a graph, as torch.compile asks of a backend.

        Args:
            graph, inputs: what is compiled, and examples of its inputs.
            mode, options: as torch.compile takes them for Inductor.
            dynamic: not read: the inputs show which sizes are.
        """
        arguments.instance("LinearFusion", "graph", graph, fx.GraphModule, "a GraphModule")
        before = self._compiled
        found = torch_compat.compile_with_pass(
            graph, inputs, self._change, _key, mode, dict(options or {})
        )
        self._cached += self._compiled == before
        return found

    def explain(self) -> tuple[CallSite, ...]:
        """Return each form of product that was compiled, what computes it, and why."""
        return self._calls.sites()

    def _change(self, graph: fx.Graph) -> None:
        """Put calls of ``linear`` into a graph in place of products."""
        self._compiled += 1
        order = _order(graph)
        for node in list(graph.nodes):
            # What a former product took in is not in the graph any more.
            if node in order and self._choose(graph, node, order):
                order = _order(graph)

    def _choose(self, graph: fx.Graph, node: fx.Node, order: dict[fx.Node, int]) -> bool:
        """Put a call in a product's place, with as much as an implementation computes with it.

        Returns:
            Whether the graph was changed.
        """
        form, place = (str(node.meta.get("val")),), place_of(node)
        reasons: list[str] = []
        try:
            for product in products_of(node, order):
                try:
                    implementation, reason = _replace(graph, product)
                except SettledError as why:
                    # A shorter function would be another choice than the one that was made.
                    self._calls.note(product.text, form, "", str(why), place)
                    return False
                except (LeftAlone, TypeError, ValueError) as why:
                    reasons.append(f"{product.text}: {why}")
                    continue
                said = "; ".join([reason, *(f"not {other}" for other in reasons[:1])])
                self._calls.note(product.text, form, implementation, said, place)
                return True
        except LeftAlone as why:
            reasons.append(str(why))
        if reasons:
            self._calls.note("linear", form, "", reasons[-1], place)
        return False


def _order(graph: fx.Graph) -> dict[fx.Node, int]:
    return {node: position for position, node in enumerate(graph.nodes)}


def _replace(graph: fx.Graph, product: Product) -> tuple[str, str]:
    """Put a product's call in its place; return the implementation and why it was chosen.

    Raises:
        LeftAlone, TypeError, ValueError: it is left as it is; says why.
    """
    from torchyard_kernels.linear.contract import LINEAR

    call, place = product.call()
    found = implementation_of(lambda: registry().decide(LINEAR, call.requests[LINEAR]))
    with graph.inserting_before(product.end):
        node = place(graph)
    product.end.replace_all_uses_with(node)
    for old in product.nodes:
        if not old.users:
            graph.erase_node(old)
    return found


def _key() -> str:
    from torchyard_kernels.linear.contract import LINEAR

    return f"torchyard {_sources()} {decision_digest(LINEAR)}"


@cache
def _sources() -> str:
    """Return a digest of what a compiled graph has of ours besides choices.

    That is which products this pass finds, and the names of ops, which follow from their package's
    sources.
    """
    return sources_digest(_PARTS)
