"""The parts of Metal that kernels which compute do without."""

from __future__ import annotations

from typing import Final

from torchyard_conformance.metal._errors import UnsupportedSourceError
from torchyard_conformance.metal._source._tokens import Token

__all__ = ["refuse_unsupported"]

_UNSUPPORTED: Final = {
    "fragment": "stages of rendering",
    "function_constant": "function constants; write the constant into the source",
    "intersector": "ray tracing",
    "mesh": "stages of rendering",
    "simdgroup_async_copy": "asynchronous copies",
    "texture1d": "textures",
    "texture2d": "textures",
    "texture3d": "textures",
    "threadgroup_imageblock": "image blocks",
    "vertex": "stages of rendering",
}


def refuse_unsupported(items: list[Token]) -> None:
    """Raise UnsupportedSourceError where a source uses what is neither run nor checked here."""
    for item in items:
        if item.kind == "word" and item.text in _UNSUPPORTED:
            raise UnsupportedSourceError(
                f"line {item.line}: {item.text}: not supported here: {_UNSUPPORTED[item.text]}"
            )
