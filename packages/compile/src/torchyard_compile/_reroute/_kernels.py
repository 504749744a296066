"""Linear and recurrent layers and topk by ``torchyard_kernels``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchyard import registry
from torchyard_compile._choice import LeftAlone
from torchyard_compile._reroute._call import Rerouting, check_plain

__all__ = ["addmm", "linear", "recurrent", "topk"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Rerouting:
    """Return how ``torch.nn.functional.linear`` is computed; arguments as its.

    Raises:
        LeftAlone: the op of ours computes something else.
    """
    check_plain(input, weight, bias)
    if weight.ndim != 2 or not input.ndim:
        raise LeftAlone(f"expected a weight [N, K] and x [..., K], got {weight.ndim} dimensions")
    if not input.is_floating_point() or input.dtype != weight.dtype:
        raise LeftAlone(f"x is {input.dtype}, the weight {weight.dtype}")
    from torchyard_kernels import linear as ours
    from torchyard_kernels.linear.contract import LINEAR, LinearCall

    form = ("linear", input.device.type, input.dtype, input.shape, weight.shape, bias is not None)
    return Rerouting(
        form,
        lambda: registry().decide(LINEAR, LinearCall(input, weight, bias).request()),
        lambda: ours(input, weight, bias),
    )


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Rerouting:
    """Return how ``torch.addmm`` is computed where it is a linear layer; arguments as its.

    Raises:
        LeftAlone: the op of ours computes something else.
    """
    check_plain(input, mat1, mat2)
    if beta != 1 or alpha != 1:
        raise LeftAlone(f"beta {beta} and alpha {alpha} scale what is added")
    if mat1.ndim != 2 or mat2.ndim != 2 or input.shape != mat2.shape[1:]:
        raise LeftAlone(f"adds {list(input.shape)}, no bias of the product's columns")
    return linear(mat1, mat2.mT, input)


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Rerouting:
    """Return how ``torch.topk`` is computed; arguments as its.

    Raises:
        LeftAlone: the op of ours computes something else.
    """
    check_plain(input)
    if not input.ndim or not -input.ndim <= dim < input.ndim:
        raise LeftAlone("there is no such dimension")
    if not 1 <= k <= input.shape[dim]:
        raise LeftAlone(f"k: expected 1 to {input.shape[dim]}, got {k}")
    from torchyard_kernels import topk as ours
    from torchyard_kernels.topk.contract import DTYPES, TOPK, Order, TopKCall

    if str(input.dtype)[6:] not in DTYPES:
        raise LeftAlone(f"orders no {input.dtype}")
    form = ("topk", input.device.type, input.dtype, input.shape, input.stride(), k, dim, largest)

    def run() -> Any:
        values, indices = ours(input, k, dim, largest, sorted)
        return torch.return_types.topk((values, indices))

    return Rerouting(
        form,
        lambda: registry().decide(
            TOPK, TopKCall(input.movedim(dim, -1), k, largest, Order.SORTED).request()
        ),
        run,
    )


def recurrent(kind: str) -> Callable[..., Rerouting]:
    """Return how ``torch.lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu`` is computed.

    Args:
        kind: its name.
    """

    def route(input: Tensor, hx: Any, params: Any, has_biases: Any = None, *rest: Any) -> Rerouting:
        if not isinstance(has_biases, bool) or len(rest) != 5:
            raise LeftAlone("packed sequences, whose steps lie one behind the other")
        return _layers(kind, input, hx, params, *rest)

    return route


def _layers(
    kind: str,
    input: Tensor,
    state: Any,
    weights: Sequence[Tensor],
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Rerouting:
    hidden = tuple(state) if kind == "lstm" else (state,)
    check_plain(input, *hidden, *weights)
    if dropout and train:
        raise LeftAlone("dropout: torch draws other outputs to drop")
    if input.ndim != 3:
        raise LeftAlone("one sequence without a batch")
    from torchyard_kernels import gru, lstm, rnn
    from torchyard_kernels.recurrent.contract import FORWARD, RecurrentKind, RecurrentRequest

    words: dict[str, Any] = {
        "num_layers": num_layers,
        "bidirectional": bidirectional,
        "batch_first": batch_first,
    }
    steps, batch = input.shape[1::-1] if batch_first else input.shape[:2]
    grad = torch.is_grad_enabled() and any(t.requires_grad for t in (input, *hidden, *weights))
    request = RecurrentRequest(
        input.device.type,
        str(input.dtype)[6:],
        RecurrentKind(kind),
        steps=steps,
        batch=batch,
        input_size=input.shape[2],
        hidden_size=hidden[-1].shape[-1],
        proj_size=hidden[0].shape[-1] if hidden[0].shape[-1] != hidden[-1].shape[-1] else 0,
        num_layers=num_layers,
        bidirectional=bidirectional,
        bias=weights[2].ndim == 1 if len(weights) > 2 else False,
        grad=grad,
        reserve=grad,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )

    def run() -> Any:
        if kind == "lstm":
            output, (last, memory) = lstm(input, hidden, weights, **words)
            return output, last, memory
        if kind == "gru":
            return tuple(gru(input, hidden[0], weights, **words))
        shape: Any = kind.removeprefix("rnn_")
        return tuple(rnn(input, hidden[0], weights, nonlinearity=shape, **words))

    return Rerouting(("recurrent", request), lambda: registry().decide(FORWARD, request), run)
