"""The words and dtypes that the native kernels compute, as tables."""

from __future__ import annotations

from typing import Any, Final

import torch

__all__ = [
    "CASTS",
    "COMPARISONS",
    "COMPUTED",
    "DEFAULTS",
    "FILLS",
    "FLOAT_WORDS",
    "SAME",
    "STORED",
    "TRUTHS",
]

# What captured tensors may hold, and what that is read as.
STORED: Final = {
    torch.float32: "float32",
    torch.bfloat16: "float32",
    torch.float16: "float32",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int32",
    torch.int8: "int32",
    torch.uint8: "int32",
    torch.bool: "bool",
}
COMPUTED: Final = {
    torch.float32: "float32",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.bool: "bool",
}
FLOAT_WORDS: Final = frozenset({"exp", "exp2", "log", "log2", "rsqrt", "sigmoid", "sqrt", "tanh"})
SAME: Final = frozenset({"clone", "contiguous", "detach", "positive"})
CASTS: Final = frozenset({"bfloat16", "bool", "float", "half", "int", "long", "to", "type_as"})
COMPARISONS: Final = {
    "lt": ("lt", False),
    "le": ("le", False),
    "gt": ("lt", True),
    "ge": ("le", True),
    "eq": ("eq", False),
    "ne": ("ne", False),
}
FILLS: Final = {
    "zeros_like": 0,
    "ones_like": 1,
    "new_zeros": 0,
    "new_ones": 1,
    "full_like": None,
    "new_full": None,
    "new_tensor": None,
}
# Keywords that say nothing with these values, which torch's own functions pass on.
DEFAULTS: Final[dict[str, Any]] = {
    "alpha": 1,
    "approximate": "none",
    "decimals": 0,
    "inplace": False,
    "rounding_mode": None,
}
TRUTHS: Final = {
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}
