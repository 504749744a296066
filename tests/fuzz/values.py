"""Values that an argument may be given by mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

__all__ = ["DAMAGED", "VALUES"]

# Made again for each call. Each kind of argument says which of them it accepts.
VALUES: Final[Mapping[str, Callable[[], Any]]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "3": lambda: 3,
    "2 ** 31": lambda: 2**31,
    "10 ** 30": lambda: 10**30,
    "np.int64(1)": lambda: np.int64(1),
    "np.int64(-9)": lambda: np.int64(-9),
    "np.bool_(True)": lambda: np.bool_(True),
    "np.float32(1)": lambda: np.float32(1),
    "1.0": lambda: 1.0,
    "-0.5": lambda: -0.5,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "1j": lambda: 1j,
    "'x'": lambda: "x",
    "'False'": lambda: "False",
    "''": lambda: "",
    "b'x'": lambda: b"x",
    "[]": list,
    "['x']": lambda: ["x"],
    "[None]": lambda: [None],
    "[1.5]": lambda: [1.5],
    "()": tuple,
    "{}": dict,
    "{'x': 1}": lambda: {"x": 1},
    "object": object,
    "a class": lambda: int,
    "a function of nothing": lambda: lambda: None,
    "np.ones(3)": lambda: np.ones(3),
    "a tensor": lambda: torch.ones(3),
    "a bool tensor": lambda: torch.ones(3, dtype=torch.bool),
    "a tensor of one int": lambda: torch.tensor(1),
    "a dtype": lambda: torch.float32,
}


def _freed(tensor: Tensor) -> Tensor:
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def _shortened(tensor: Tensor) -> Tensor:
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(max(0, tensor.untyped_storage().nbytes() - 1))
    return tensor


# What may be wrong with a tensor that would else fit.
DAMAGED: Final[Mapping[str, Callable[[Tensor], Any]]] = {
    "numpy": lambda t: t.detach().numpy(),
    "list": lambda t: t.tolist(),
    "sparse": lambda t: t.to_sparse(),
    "nested": lambda t: torch.nested.nested_tensor([t, t]),
    "meta": lambda t: t.to("meta"),
    "complex": lambda t: t.to(torch.complex64),
    "bool": lambda t: t.to(torch.bool),
    "long": lambda t: t.to(torch.int64),
    "uint8": lambda t: t.to(torch.uint8),
    "double": lambda t: t.double(),
    "half": lambda t: t.half(),
    "another dimension": lambda t: t[None],
    "a dimension less": lambda t: t.sum(0) if t.dim() else t[None],
    "one element": lambda t: t.reshape(-1)[:1].reshape(()),
    "empty": lambda t: t.reshape(-1)[:0],
    "freed": _freed,
    "shortened": _shortened,
}
