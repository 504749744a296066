"""Calls of torchyard_kernels' modules, optimizers, graphs and packed weights that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

import torchyard_kernels as kernels
from tests.fuzz.harness import call_of
from tests.fuzz.kinds import (
    FUNCTION,
    OTHER,
    REFUSED,
    Kind,
    choice,
    integer,
    number,
    optional,
    tensor,
)
from torchyard_kernels import PackedRecurrent, PackedWeight, Padding, nn, optim

__all__ = ["CALLS"]

_OF: Final = "torchyard_kernels"
_EMPTY: Final = Kind(lambda v: v if isinstance(v, list | tuple) and not v else REFUSED, free=True)
_TABLE: Final = Kind(lambda v: v if isinstance(v, dict) and not v else REFUSED, free=True)
_STATE: Final = Kind(lambda v: None if v is None else REFUSED, is_tensor=True)


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _accelerated(**given: Any) -> Tensor:
    kernels.accelerate(**given)
    model = given["model"]
    with torch.no_grad():
        return model(_x(2, 32))  # type: ignore[no-any-return]


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)).eval()


def _packed_gru(**given: Any) -> Any:
    return kernels.gru(_x(5, 2, 4), None, PackedRecurrent(**given))


def _weights() -> list[Tensor]:
    return [_x(24, 4), _x(24, 8), _x(24), _x(24)]


def _graph() -> Any:
    return kernels.capture(lambda x: x + 1, _x(4))


def _padded(**given: Any) -> Any:
    padding = Padding(**given)
    graph = kernels.capture(lambda x: x + 1, _x(4), buckets=[(_x(8),)], padding=padding)
    return graph(_x(3))


def _tuned(**given: Any) -> None:
    with kernels.max_autotune(**given):
        pass


def _state() -> dict[str, Any]:
    return {"state": PackedWeight(_x(64, 64)).state_dict()}


def _forward(cls: Any) -> Callable[..., Any]:
    def run(**given: Any) -> Any:
        torch.manual_seed(0)
        return cls(4, 8)(**given)

    return run


def _made(cls: Any) -> Callable[..., Any]:
    def run(params: Any) -> None:
        cls(params)

    return run


def _stepped(cls: Any) -> Callable[..., Any]:
    def run(closure: Any) -> Any:
        parameter = torch.nn.Parameter(_x(4, 4))
        parameter.grad = _x(4, 4)
        return cls([parameter]).step(closure)

    return run


CALLS: Final = (
    call_of(
        f"{_OF}.accelerate",
        lambda: {
            "model": _model(),
            "weights": None,
            "group_size": None,
            "activation": None,
            "fuse": True,
            "cache": True,
            "skip": (),
            "keep_originals": True,
            "measure": False,
        },
        _accelerated,
        model=OTHER,
        skip=_EMPTY,
    ),
    call_of(
        f"{_OF}.PackedRecurrent",
        lambda: {"kind": "gru", "weights": _weights(), "num_layers": 1, "bidirectional": False},
        _packed_gru,
        num_layers=integer(1, 1),
        bidirectional=choice(False),
    ),
    call_of(
        f"{_OF}.PackedWeight.from_state",
        _state,
        lambda state: PackedWeight.from_state(state).unpack(),
        says={"state": "state|from_state"},
    ),
    call_of(
        f"{_OF}.PackedWeight.stacked",
        lambda: {"weights": [PackedWeight(_x(64, 64)), PackedWeight(_x(64, 64))]},
        lambda weights: PackedWeight.stacked(weights).unpack(),
    ),
    call_of(
        f"{_OF}.PackedWeight.converted",
        {"dtype": torch.bfloat16, "device": torch.device("cpu")},
        lambda **given: PackedWeight(_x(64, 64)).converted(**given).unpack(),
        dtype=Kind(lambda v: v if v is torch.float32 else REFUSED),
    ),
    call_of(
        f"{_OF}.Graph",
        lambda: {"x": _x(4)},
        lambda x: _graph()(x),
        says={"x": "argument|graph"},
    ),
    call_of(
        f"{_OF}.Graph.check",
        lambda: {"x": _x(4), "rtol": 0.0, "atol": 0.0},
        lambda x, **given: _graph().check(x, **given),
        rtol=number(0),
        atol=number(0),
        says={"x": "argument|graph"},
    ),
    call_of(
        f"{_OF}.Padding",
        {"inputs": {0: 0}, "outputs": {0: 0}, "value": 0.0},
        _padded,
        outputs=_TABLE,
        inputs=OTHER,
        value=Kind(lambda v: v if isinstance(v, float) else number().stands_for(v), free=True),
        # Without them no bucket fits.
        says={"inputs": "inputs|graph"},
    ),
    call_of(
        f"{_OF}.max_autotune", {"seconds": 1.0, "again": False}, _tuned, seconds=number(above=0)
    ),
    *(
        call_of(
            f"{_OF}.nn.{cls.__name__}.forward",
            lambda: {"input": _x(5, 2, 4), "hx": None},
            _forward(cls),
            input=tensor("a dimension less"),
            hx=_STATE,
            says={"input": r"input|weights", "hx": r"hx|state"},
        )
        for cls in (nn.GRU, nn.LSTM, nn.RNN)
    ),
    *(
        call_of(
            f"{_OF}.optim.{cls.__name__}",
            lambda: {"params": [torch.nn.Parameter(_x(4, 4))]},
            _made(cls),
        )
        for cls in (optim.AdamW, optim.Lion, optim.Muon, optim.Adafactor)
    ),
    *(
        call_of(
            f"{_OF}.optim.{cls.__name__}.step",
            {"closure": None},
            _stepped(cls),
            closure=optional(FUNCTION),
            calls=("closure",),
        )
        for cls in (optim.AdamW, optim.Lion, optim.Muon, optim.Adafactor)
    ),
)
