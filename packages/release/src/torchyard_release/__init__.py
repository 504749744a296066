"""The release train: cut, prove and publish every package of a repository."""

from __future__ import annotations

__all__: list[str] = []
