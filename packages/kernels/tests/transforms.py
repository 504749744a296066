"""Each public op, and each transform of torch: what the table in docs/transforms.md is held by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.utils.checkpoint import checkpoint

import torchyard_kernels as tk
from torchyard_kernels.recurrent._cells import State, step
from torchyard_kernels.recurrent.contract import CellWeights, RecurrentKind

Function = Callable[[Tensor], Tensor]


def draw(*shape: int) -> Tensor:
    """Return float64 numbers that are the same in every run, all different."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def weights(kind: str, inputs: int, hidden: int, layers: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    like = getattr(torch.nn, kind)(inputs, hidden, layers)
    return [
        torch.randn(p.shape, generator=generator, dtype=torch.float64) / 2
        for p in like.parameters()
    ]


W, B, CAPTURED = draw(6, 4), draw(6), draw(4)
GRU, LSTM, RNN = weights("GRU", 4, 3), weights("LSTM", 4, 3), weights("RNN", 4, 3)
PACKED = tk.PackedWeight(draw(6, 4).float())
MASK = torch.tensor([[True, True, False, True]])
OFFSETS = torch.tensor([0, 3, 4, 12])
LENGTHS = torch.tensor([2, 3, 1])


@dataclass(frozen=True)
class Op:
    """An op as a function of its first tensor [3, 4], and what it means in torch's operations."""

    name: str
    ours: Function
    right: Function
    dtype: torch.dtype = torch.float64


def _recurrent(kind: str, flat: list[Tensor]) -> Function:
    """The equations step by step, since torch has no rule for vmap of its layers or cells."""
    kinds = {"gru": RecurrentKind.GRU, "lstm": RecurrentKind.LSTM, "rnn": RecurrentKind.RNN_TANH}
    cell = CellWeights(*flat)

    def right(x: Tensor) -> Tensor:
        zeros = x.new_zeros(1, 3)
        state, outputs = State(zeros, zeros if kind == "lstm" else None), []
        for t in range(x.shape[0]):
            state = step(kinds[kind], x[t : t + 1], state, cell)
            outputs.append(state.hidden)
        return torch.stack(outputs)

    return right


OPS = [
    Op(
        "linear",
        lambda x: tk.linear(x, W, B),
        lambda x: torch.nn.functional.linear(x, W, B),
    ),
    Op("linear, by the weight", lambda x: tk.linear(W, x, x.sum(1)), lambda x: W @ x.T + x.sum(1)),
    Op(
        "linear, packed",
        lambda x: tk.linear(x, PACKED),
        lambda x: x @ PACKED.unpack().T,
        torch.float32,
    ),
    Op(
        "linear, functions",
        lambda x: tk.linear(x, W, prologue=lambda v: v * CAPTURED, epilogue=torch.tanh),
        lambda x: torch.tanh((x * CAPTURED) @ W.T),
    ),
    Op("matmul", lambda x: tk.matmul(W, x.T), lambda x: W @ x.T),
    Op("bmm", lambda x: tk.bmm(x[None], x.T[None]), lambda x: (x @ x.T)[None]),
    Op("topk", lambda x: tk.topk(x, 2).values, lambda x: torch.topk(x, 2).values),
    Op(
        "kthvalue",
        lambda x: tk.kthvalue(x, 2, 0).values,
        lambda x: torch.kthvalue(x, 2, 0).values,
    ),
    Op(
        "partial_sort",
        lambda x: tk.partial_sort(x, 3).values,
        lambda x: torch.sort(x).values[..., :3],
    ),
    Op(
        "masked_topk",
        lambda x: tk.masked_topk(x, MASK, 2).values,
        lambda x: torch.topk(x[:, [0, 1, 3]], 2).values,
    ),
    Op(
        "segmented_topk",
        lambda x: tk.segmented_topk(x.flatten(), OFFSETS, 1).values,
        lambda x: torch.stack([p.max() for p in x.flatten().tensor_split((3, 4))])[:, None],
    ),
    Op(
        "foreach_map",
        lambda x: tk.foreach_map(lambda p, q: torch.tanh(p) * q, [x, x[0]], [x[1], x])[0],
        lambda x: torch.tanh(x) * x[1],
    ),
    Op("gru", lambda x: tk.gru(x[:, None], None, GRU)[0], _recurrent("gru", GRU)),
    Op("lstm", lambda x: tk.lstm(x[:, None], None, LSTM)[0], _recurrent("lstm", LSTM)),
    Op("rnn", lambda x: tk.rnn(x[:, None], None, RNN)[0], _recurrent("rnn", RNN)),
]


def _direction(x: Tensor) -> Tensor:
    return draw(4, 3).T.to(x.dtype)


def _dual(f: Function, x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, _direction(x)))).tangent
    assert tangent is not None
    return tangent


def _batched_gradients(f: Function, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    out = f(x)
    slopes = torch.eye(out.numel(), dtype=x.dtype).reshape(-1, *out.shape)
    return torch.autograd.grad(out, x, slopes, is_grads_batched=True)[0]


def _twice(f: Function, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(x).sin().sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), x)[0]


def _checkpoint(f: Function, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    out = checkpoint(f, x, use_reentrant=False)
    return torch.autograd.grad(out.sin().sum(), x)[0]


def _functional_call(f: Function, x: Tensor) -> Tensor:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.zeros_like(x))

        def forward(self, given: Tensor) -> Tensor:
            return f(given * self.scale).sin().sum()

    scale = {"scale": _direction(x)}
    return grad(lambda some: functional_call(Scaled(), some, (x,)))(scale)["scale"]


def _scalar(f: Function) -> Function:
    return lambda x: f(x).sin().sum()


TRANSFORMS: dict[str, Callable[[Function, Tensor], Any]] = {
    "grad": lambda f, x: grad(_scalar(f))(x),
    "vjp": lambda f, x: vjp(f, x)[1](torch.cos(f(x)))[0],
    "jvp": lambda f, x: jvp(f, (x,), (_direction(x),))[1],
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "jacrev": lambda f, x: jacrev(f)(x),
    "hessian": lambda f, x: hessian(_scalar(f))(x),
    "linearize": lambda f, x: linearize(f, x)[1](_direction(x)),
    "vmap": lambda f, x: vmap(f)(torch.stack([x, -x])),
    "vmap(grad)": lambda f, x: vmap(grad(_scalar(f)))(torch.stack([x, -x])),
    "grad(vmap)": lambda f, x: grad(lambda s: vmap(f)(s).sin().sum())(torch.stack([x, -x])),
    "jacrev(jacfwd)": lambda f, x: jacrev(jacfwd(_scalar(f)))(x),
    "jacfwd(jacfwd)": lambda f, x: jacfwd(jacfwd(_scalar(f)))(x),
    "dual_level": _dual,
    "is_grads_batched": _batched_gradients,
    "double backward": _twice,
    "checkpoint": _checkpoint,
    "functional_call": _functional_call,
}
