"""What is done to a graph that torchao converted, and what it then consists of."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from torchyard_export._audit.rounding import CHOOSES, LAYERS, PRODUCTS, call_name, is_int8
from torchyard_export._report.quantization import FloatLayer

__all__ = ["float_layers", "float_products", "int8_layers", "tidy", "weight_bytes"]

_ATEN: Final = torch.ops.aten


def tidy(graph: GraphModule) -> GraphModule:
    """Make a converted graph what can be exported: evaluation mode, int8 weights alone.

    torchao leaves each float weight beside its codes, and modules in training mode.
    """
    _write_out_scales(graph)
    used = {str(node.target) for node in graph.graph.nodes if node.op == "get_attr"}
    for name in [*dict(graph.named_parameters()), *dict(graph.named_buffers())]:
        if name not in used:
            owner, _, attribute = name.rpartition(".")
            delattr(graph.get_submodule(owner), attribute)
    graph.delete_all_unused_submodules()
    for parameter in graph.parameters():
        parameter.requires_grad_(False)
    for name in ("train", "eval"):
        # torchao puts errors in their places. Evaluation mode was recorded; export refuses another.
        vars(graph).pop(name, None)
    graph.eval()
    graph.recompile()
    return graph


def _write_out_scales(graph: GraphModule) -> None:
    """Write ``choose_qparams`` out in operators of aten.

    Inductor's own decomposition of torch 2.13 leaves zero out of the range: activations that are
    all positive, or all negative, then saturate.
    """
    nodes = graph.graph
    for node in [item for item in nodes.nodes if call_name(item) == CHOOSES]:
        x, low, high, least, _ = node.args
        with nodes.inserting_before(node):

            def call(op: Any, *args: Any) -> Node:
                return nodes.call_function(op, args)  # used in this turn alone

            first = call(_ATEN.clamp_max.default, call(_ATEN.min.default, x), 0.0)
            last = call(_ATEN.clamp_min.default, call(_ATEN.max.default, x), 0.0)
            spread = call(_ATEN.sub.Tensor, last, first)
            exact = call(_ATEN.div.Tensor, spread, float(high) - float(low))
            scale = call(_ATEN.clamp_min.default, exact, least)
            steps = call(_ATEN.round.default, call(_ATEN.div.Tensor, first, scale))
            shifted = call(_ATEN.add.Tensor, call(_ATEN.neg.default, steps), low)
            zero = call(_ATEN.clamp.default, shifted, low, high)
            codes = nodes.call_function(_ATEN._to_copy.default, (zero,), {"dtype": torch.int64})
            shaped = [call(_ATEN.reshape.default, item, [1]) for item in (scale, codes)]
        for user in list(node.users):
            assert user.target is operator.getitem
            user.replace_all_uses_with(shaped[user.args[1]])
            nodes.erase_node(user)
        nodes.erase_node(node)


def int8_layers(graph: GraphModule) -> Counter[str]:
    """Return how many layers of each kind multiply int8 codes."""
    return Counter(kind for _, kind, node in _layers(graph) if is_int8(node))


def float_layers(graph: GraphModule, keep: Collection[str], takes: str) -> list[FloatLayer]:
    """Return the layers that stay in float, each with the reason.

    Args:
        graph: the quantized one.
        keep: names of modules that were to stay so.
        takes: what the quantizer takes, for the reason of a layer that it leaves alone.
    """
    found = []
    for name, kind, node in _layers(graph):
        if is_int8(node):
            continue
        if any(name == item or name.startswith(f"{item}.") for item in keep):
            reason = "named in keep="
        elif not _is_stored(node.args[1]):
            reason = "its weight is computed in forward, not stored"
        else:
            reason = f"the quantizer leaves it; it takes {takes}"
        found.append(FloatLayer(name, kind, reason))
    return found


def float_products(graph: GraphModule) -> Counter[str]:
    """Return how often each operator multiplies two activations, which stay in float."""
    names = (call_name(node) for node in graph.graph.nodes)
    return Counter(name.split(".")[1] for name in names if name in PRODUCTS)


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of a model's parameters and buffers; shared ones count once."""
    tensors: list[Tensor] = [*model.parameters(), *model.buffers()]
    storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors}
    return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


def _layers(graph: GraphModule) -> Iterator[tuple[str, str, Node]]:
    for node in graph.graph.nodes:
        if kind := LAYERS.get(call_name(node)):
            modules = node.meta.get("nn_module_stack") or {}
            path = next((str(path) for path, _ in reversed(modules.values())), "")
            yield path.removeprefix("L['self'].") or node.name, kind, node


def _is_stored(weight: Any) -> bool:
    return isinstance(weight, Node) and weight.op == "get_attr"
