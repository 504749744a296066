"""For packages that spread a model's attention over processes: its layers and masks."""

from __future__ import annotations

from torchyard_attention.transformers._attention import attention
from torchyard_attention.transformers._errors import UnsupportedArgumentError
from torchyard_attention.transformers._kinds import MaskKind, mask_kind
from torchyard_attention.transformers._mask import check_asked, prepare
from torchyard_attention.transformers._prepared import PreparedMask

__all__ = [
    "MaskKind",
    "PreparedMask",
    "UnsupportedArgumentError",
    "attention",
    "check_asked",
    "mask_kind",
    "prepare",
]
