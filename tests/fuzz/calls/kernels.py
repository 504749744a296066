"""Calls of torchyard_kernels' public functions that are right."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

import torchyard_kernels as kernels
from tests.fuzz.harness import Call
from tests.fuzz.kinds import (
    BOOL,
    FUNCTION,
    OTHER,
    REFUSED,
    Kind,
    choice,
    integer,
    number,
    tensor,
)
from torchyard_kernels import PackedWeight, nn, optim

__all__ = ["CALLS"]

_NONE: Final = Kind(lambda v: None if v is None else REFUSED)
_IMPLEMENTATION: Final = _NONE


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _recurrent(kind: str) -> dict[str, Any]:
    gates = {"gru": 3, "lstm": 4, "rnn": 1}[kind] * 8
    weights = [_x(gates, 4), _x(gates, 8), _x(gates), _x(gates)]
    state: Any = _x(1, 2, 8)
    return {
        "input": _x(5, 2, 4),
        "state": (state, state.clone()) if kind == "lstm" else state,
        "weights": weights,
        "num_layers": 1,
        "bidirectional": False,
        "batch_first": False,
        "lengths": None,
        "dropout": 0.0,
        "training": False,
        "implementation": None,
    }


_RECURRENT: Final = {
    "input": tensor(),
    "state": Kind(lambda v: None if v is None else REFUSED, is_tensor=True),
    "weights": OTHER,
    "num_layers": integer(1, 1),
    "bidirectional": choice(False),
    "batch_first": choice(False),
    "lengths": _NONE,
    "dropout": number(0, 1),
    "training": BOOL,
    "implementation": _IMPLEMENTATION,
}


def _layer(cls: Any) -> Any:
    def run(**given: Any) -> Any:
        torch.manual_seed(0)
        return cls(**given)(_x(5, 2, int(given["input_size"])))

    return run


def _modules() -> dict[str, Any]:
    return {
        "input_size": 4,
        "hidden_size": 8,
        "num_layers": 1,
        "bias": True,
        "batch_first": False,
        "dropout": 0.0,
        "bidirectional": False,
        "device": None,
        "dtype": None,
    }


_MODULES: Final = {
    "input_size": integer(1, 1 << 20),
    "hidden_size": integer(1, 1 << 20),
    "num_layers": integer(1, 64),
    "bias": BOOL,
    "dropout": number(0, 1),
    "bidirectional": BOOL,
    "device": _NONE,
    "dtype": Kind(lambda v: v if v is None or v is torch.float32 else REFUSED),
}


def _stepped(cls: Any) -> Any:
    def run(**given: Any) -> Tensor:
        parameter = torch.nn.Parameter(_x(4, 4))
        parameter.grad = _x(4, 4)
        optimizer = cls([parameter], **given)
        optimizer.step()
        return parameter.detach()

    return run


def _foreach(**given: Any) -> Any:
    return kernels.foreach_map(given.pop("fn"), given.pop("lists"), **given)


def _foreach_(**given: Any) -> Any:
    lists = given.pop("lists")
    kernels.foreach_map_(given.pop("fn"), lists, **given)
    return lists


def _capture(**given: Any) -> Any:
    x = _x(4, 8)
    return kernels.capture(given.pop("fn"), x, **given)(x)


_LIKE: Final = ("long", "uint8", "double", "half", "another dimension", "a dimension less")
_TOP: Final = {"x": tensor(*_LIKE), "k": integer(0, 8)}
_PAIR: Final = {"largest": BOOL, "sorted": BOOL}
# Of no tensors there is nothing to compute.
_LISTS: Final = Kind(lambda v: v if isinstance(v, list | tuple) and not v else REFUSED)
_LR: Final = Kind(
    lambda v: v if isinstance(v, Tensor) and v.numel() == 1 else number(0).stands_for(v)
)

CALLS: Final = (
    Call(
        "torchyard_kernels.linear",
        kernels.linear,
        lambda: {
            "x": _x(3, 8),
            "weight": _x(4, 8),
            "bias": _x(4),
            "prologue": None,
            "epilogue": None,
        },
        {
            "x": tensor("another dimension", "a dimension less"),
            "weight": tensor(),
            "bias": Kind(lambda v: None if v is None else REFUSED, is_tensor=True),
            "prologue": _NONE,
            "epilogue": _NONE,
        },
    ),
    Call(
        "torchyard_kernels.matmul",
        kernels.matmul,
        lambda: {"a": _x(3, 8), "b": _x(8, 4)},
        {
            "a": tensor("another dimension", "a dimension less"),
            "b": tensor("another dimension", "a dimension less"),
        },
    ),
    Call(
        "torchyard_kernels.bmm",
        kernels.bmm,
        lambda: {"a": _x(2, 3, 8), "b": _x(2, 8, 4)},
        {"a": tensor(), "b": tensor()},
    ),
    Call(
        "torchyard_kernels.quantize",
        lambda **given: kernels.linear(_x(2, 64), kernels.quantize(**given)),
        lambda: {
            "weight": _x(64, 64),
            "bits": 4,
            "group_size": None,
            "symmetric": True,
            "activation": None,
        },
        {
            "weight": tensor(),
            "bits": choice(4, 8),
            "group_size": Kind(
                lambda v: v if v is None or integer(0, 0).stands_for(v) == 0 else REFUSED
            ),
            "symmetric": BOOL,
            "activation": choice(None, "int8"),
        },
    ),
    Call(
        "torchyard_kernels.PackedWeight",
        lambda **given: kernels.linear(_x(2, 64), PackedWeight(**given)),
        lambda: {"weight": _x(64, 64), "format": "panels"},
        {"weight": tensor(), "format": choice("panels", "int8", "int4")},
    ),
    Call(
        "torchyard_kernels.topk",
        kernels.topk,
        lambda: {"x": _x(3, 8), "k": 2, "dim": -1, "largest": True, "sorted": True},
        {**_TOP, **_PAIR, "dim": integer(-1, 1)},
    ),
    Call(
        "torchyard_kernels.kthvalue",
        kernels.kthvalue,
        lambda: {"x": _x(3, 8), "k": 2, "dim": -1, "keepdim": False},
        {**_TOP, "dim": integer(-2, 1), "k": integer(1, 8), "keepdim": BOOL},
    ),
    Call(
        "torchyard_kernels.partial_sort",
        kernels.partial_sort,
        lambda: {"x": _x(3, 8), "k": 2, "dim": -1, "descending": False},
        {**_TOP, "dim": integer(-1, 1), "descending": BOOL},
    ),
    Call(
        "torchyard_kernels.masked_topk",
        kernels.masked_topk,
        lambda: {
            "x": _x(3, 8),
            "mask": _x(3, 8) > 0,
            "k": 2,
            "dim": -1,
            "largest": True,
            "sorted": True,
        },
        {**_TOP, **_PAIR, "mask": tensor("bool", "one element"), "dim": integer(-1, 1)},
    ),
    Call(
        "torchyard_kernels.segmented_topk",
        kernels.segmented_topk,
        lambda: {
            "x": _x(8),
            "offsets": torch.tensor([0, 3, 8]),
            "k": 2,
            "largest": True,
            "sorted": True,
        },
        {**_TOP, "k": integer(0, 1 << 20), **_PAIR, "offsets": tensor("long")},
    ),
    Call(
        "torchyard_kernels.foreach_map",
        _foreach,
        lambda: {"fn": lambda x: x + 1, "lists": [_x(3)], "implementation": None},
        {"fn": FUNCTION, "lists": _LISTS, "implementation": _IMPLEMENTATION},
        {"lists": "argument 0"},
    ),
    Call(
        "torchyard_kernels.foreach_map_",
        _foreach_,
        lambda: {"fn": lambda x: x + 1, "lists": [_x(3)], "out": None, "implementation": None},
        {"fn": FUNCTION, "lists": _LISTS, "out": _NONE, "implementation": _IMPLEMENTATION},
        {"lists": "argument 0"},
    ),
    Call(
        "torchyard_kernels.capture",
        _capture,
        lambda: {
            "fn": lambda x: x.relu() + 1,
            "buckets": (),
            "padding": None,
            "state": (),
            "warmup": 1,
        },
        {
            "fn": FUNCTION,
            "buckets": Kind(lambda v: v if isinstance(v, tuple | list) and not v else REFUSED),
            "padding": _NONE,
            "state": Kind(lambda v: v if isinstance(v, tuple | list) and not v else REFUSED),
            "warmup": integer(0, 3),
        },
        calls=frozenset(("fn",)),
    ),
    Call("torchyard_kernels.gru", kernels.gru, lambda: _recurrent("gru"), _RECURRENT),
    Call(
        "torchyard_kernels.lstm",
        kernels.lstm,
        lambda: _recurrent("lstm"),
        {**_RECURRENT, "state": _NONE},
    ),
    Call(
        "torchyard_kernels.rnn",
        kernels.rnn,
        lambda: {**_recurrent("rnn"), "nonlinearity": "tanh"},
        {**_RECURRENT, "nonlinearity": choice("tanh", "relu")},
    ),
    Call("torchyard_kernels.nn.GRU", _layer(nn.GRU), _modules, _MODULES),
    Call(
        "torchyard_kernels.nn.LSTM",
        _layer(nn.LSTM),
        lambda: {**_modules(), "proj_size": 0},
        {**_MODULES, "proj_size": integer(0, 7)},
    ),
    Call(
        "torchyard_kernels.nn.RNN",
        _layer(nn.RNN),
        lambda: {**_modules(), "nonlinearity": "tanh"},
        {**_MODULES, "nonlinearity": choice("tanh", "relu")},
    ),
    Call(
        "torchyard_kernels.nn.from_torch",
        nn.from_torch,
        lambda: {"module": torch.nn.GRU(4, 8)},
        {"module": OTHER},
    ),
    Call(
        "torchyard_kernels.optim.AdamW",
        _stepped(optim.AdamW),
        lambda: {
            "lr": 0.1,
            "betas": (0.9, 0.99),
            "eps": 1e-8,
            "weight_decay": 0.1,
            "amsgrad": False,
            "maximize": False,
        },
        {
            "lr": _LR,
            "betas": OTHER,
            "eps": number(0),
            "weight_decay": number(0),
            "amsgrad": BOOL,
            "maximize": BOOL,
        },
    ),
    Call(
        "torchyard_kernels.optim.Lion",
        _stepped(optim.Lion),
        lambda: {"lr": 0.1, "betas": (0.9, 0.99), "weight_decay": 0.1, "maximize": False},
        {"lr": _LR, "betas": OTHER, "weight_decay": number(0), "maximize": BOOL},
    ),
    Call(
        "torchyard_kernels.optim.Muon",
        _stepped(optim.Muon),
        lambda: {
            "lr": 0.1,
            "weight_decay": 0.1,
            "momentum": 0.9,
            "nesterov": True,
            "eps": 1e-7,
            "ns_steps": 5,
            "adjust_lr_fn": None,
        },
        {
            "lr": _LR,
            "weight_decay": number(0),
            "momentum": number(0),
            "nesterov": BOOL,
            "eps": number(0),
            "ns_steps": integer(0, 99),
            "adjust_lr_fn": choice(None, "original", "match_rms_adamw"),
        },
    ),
    Call(
        "torchyard_kernels.optim.Adafactor",
        _stepped(optim.Adafactor),
        lambda: {
            "lr": 0.1,
            "beta2_decay": -0.8,
            "eps": (None, 1e-3),
            "d": 1.0,
            "weight_decay": 0.1,
            "maximize": False,
        },
        {
            "lr": _LR,
            "beta2_decay": number(most=0),
            "eps": OTHER,
            "d": number(1),
            "weight_decay": number(0),
            "maximize": BOOL,
        },
    ),
)
