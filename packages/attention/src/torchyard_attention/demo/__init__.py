"""``torchyard demo``: train a small transformer on real text, continue a prompt, compare.

Its parts are here for other demonstrations of the same model on the same text.
"""

from __future__ import annotations

from torchyard_attention.demo._command import command
from torchyard_attention.demo._model import Transformer, seeded_model
from torchyard_attention.demo._settings import Size
from torchyard_attention.demo._text import Text, TextError, collect_text
from torchyard_attention.demo._training import make_optimizer
from torchyard_attention.demo._ways import Attend, Slopes

__all__ = [
    "Attend",
    "Size",
    "Slopes",
    "Text",
    "TextError",
    "Transformer",
    "collect_text",
    "command",
    "make_optimizer",
    "seeded_model",
]
