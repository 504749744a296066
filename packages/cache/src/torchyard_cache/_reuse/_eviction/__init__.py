"""Which entries stay: what they cost, how they were used, and what a policy makes of both."""

from __future__ import annotations

from torchyard_cache._reuse._eviction._costs import TokenCosts, page_cost
from torchyard_cache._reuse._eviction._entries import Entries, Entry
from torchyard_cache._reuse._eviction._policies import POLICIES, Priority, Use
from torchyard_cache._reuse._eviction._simulation import (
    Replay,
    chat_trace,
    prompt_trace,
    simulate,
)

__all__ = [
    "POLICIES",
    "Entries",
    "Entry",
    "Priority",
    "Replay",
    "TokenCosts",
    "Use",
    "chat_trace",
    "page_cost",
    "prompt_trace",
    "simulate",
]
