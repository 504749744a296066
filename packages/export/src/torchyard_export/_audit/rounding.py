"""Quantized programs as torch writes them: which operators round, and which are layers."""

from __future__ import annotations

from typing import Any, Final

from torch import nn
from torch.fx import GraphModule, Node

__all__ = [
    "CHOOSES",
    "LAYERS",
    "PRODUCTS",
    "ROUNDS",
    "WIDENS",
    "call_name",
    "is_int8",
    "is_quantized",
]

# By what str() of an operator gives. These turn numbers into codes,
ROUNDS: Final = frozenset(
    {
        "quantized_decomposed.quantize_per_tensor.default",
        "quantized_decomposed.quantize_per_tensor.tensor",
    }
)
# these turn codes into numbers,
WIDENS: Final = frozenset(
    {
        "quantized_decomposed.dequantize_per_tensor.default",
        "quantized_decomposed.dequantize_per_tensor.tensor",
        "quantized_decomposed.dequantize_per_channel.default",
    }
)
# and this one finds the scale and the zero point of a call's activations.
CHOOSES: Final = "quantized_decomposed.choose_qparams.tensor"
# Layers with a weight, and how reports call them.
LAYERS: Final = {
    "aten.linear.default": "linear",
    "aten.conv1d.default": "conv1d",
    "aten.conv2d.default": "conv2d",
    "aten.conv2d.padding": "conv2d",
    "aten.conv1d.padding": "conv1d",
    "aten.conv3d.default": "conv3d",
    "aten.conv_transpose1d.default": "conv_transpose1d",
    "aten.conv_transpose2d.input": "conv_transpose2d",
}
# Products of two activations: they have no weight to quantize.
PRODUCTS: Final = frozenset(
    {
        *("aten.matmul.default", "aten.bmm.default", "aten.mm.default"),
        *("aten.baddbmm.default", "aten.einsum.default"),
        "aten.scaled_dot_product_attention.default",
    }
)


def call_name(node: Node) -> str:
    """Return what a node calls, such as ``aten.linear.default``; empty for other nodes."""
    return str(node.target) if node.op == "call_function" else ""


def is_quantized(model: nn.Module) -> bool:
    """Return whether a module is a graph that rounds activations to codes."""
    if not isinstance(model, GraphModule):
        return False
    return any(call_name(node) in ROUNDS for node in model.graph.nodes)


def is_int8(layer: Node) -> bool:
    """Return whether a layer multiplies codes: its input and its weight are such, widened."""
    return all(_widened(argument) for argument in layer.args[:2])


def _widened(argument: Any) -> bool:
    return isinstance(argument, Node) and call_name(argument) in WIDENS
