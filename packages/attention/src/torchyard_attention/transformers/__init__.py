"""This package's attention inside of Hugging Face transformers.

After :func:`register`, ``attn_implementation="torchyard"`` is an attention that every model of
transformers which takes the attention interface can be given. transformers itself is imported when
it is called: ``pip install torchyard-attention[transformers]`` brings it.
"""

from __future__ import annotations

from torchyard_attention.transformers._errors import UnsupportedArgumentError
from torchyard_attention.transformers._interface import UnusedAttentionWarning
from torchyard_attention.transformers._register import register

__all__ = ["UnsupportedArgumentError", "UnusedAttentionWarning", "register"]
