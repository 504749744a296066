"""The programs that attention knows by their text."""

from __future__ import annotations

from typing import Final

IDENTITY: Final = '"s"'

# The two ways to say that a query sees itself and what came before.
CAUSAL: Final = frozenset({'["ge",["q","k"],{}]\n"%0"', '["le",["k","q"],{}]\n"%0"'})
