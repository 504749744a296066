"""What a cache saved, and what it did not look at."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import platformdirs

__all__ = ["Stats", "stats_folder", "write_stats"]


@dataclass(slots=True)
class Stats:
    """Counts since the cache was made.

    Attributes:
        calls: of the model.
        hits: calls of which something was found.
        tokens_reused, tokens_computed: of prompts.
        seconds_saved: an estimate, by the seconds that computed tokens of prompts took.
        bytes, entries: held in memory.
        evictions: entries that were dropped for others.
        tier_hits: by tier, entries that were found below memory.
        tier_errors: by tier, requests that failed or came too late.
        bypassed: by reason, calls that went to the model as they were.
        verified, quarantined: calls that were computed twice, and entries that were dropped since
            they gave other tokens or were damaged.
        tenants: by salt's name, tokens reused.
    """

    calls: int = 0
    hits: int = 0
    tokens_reused: int = 0
    tokens_computed: int = 0
    seconds_saved: float = 0.0
    bytes: int = 0
    entries: int = 0
    evictions: int = 0
    tier_hits: Counter[str] = field(default_factory=Counter)
    tier_errors: Counter[str] = field(default_factory=Counter)
    bypassed: Counter[str] = field(default_factory=Counter)
    verified: int = 0
    quarantined: int = 0
    tenants: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON-ready data."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: dict(v) if isinstance(v, Counter) else v for k, v in found.items()}

    def to_prometheus(self) -> str:
        """Return the counts as text of Prometheus.

        Raises:
            ImportError: prometheus_client is absent: pip install 'torchyard-cache[metrics]'.
        """
        from prometheus_client import CollectorRegistry, Gauge, generate_latest

        registry = CollectorRegistry()
        for name, value in self.to_dict().items():
            metric = f"torchyard_cache_{name}"
            if isinstance(value, dict):
                gauge = Gauge(metric, f"{name} of torchyard-cache", ["what"], registry=registry)
                for what, count in value.items():
                    gauge.labels(what).set(count)
            else:
                Gauge(metric, f"{name} of torchyard-cache", registry=registry).set(value)
        return generate_latest(registry).decode()


_LOCK = threading.Lock()
_LAST: dict[str, float] = {}


def stats_folder() -> Path:
    """Return where processes leave their counts for ``torchyard cache top``."""
    return platformdirs.user_state_path("torchyard") / "cache-stats"


def write_stats(name: str, stats: Stats, *, force: bool = False) -> None:
    """Leave counts for the command, at most once in a second."""
    now = time.monotonic()
    with _LOCK:
        if not force and now - _LAST.get(name, -1.0) < 1.0:
            return
        _LAST[name] = now
    folder = stats_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{name}.json"
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({"pid": os.getpid(), "name": name, **stats.to_dict()}))
        os.replace(beside, path)
    except OSError:
        # Counts for a command's display are worth no failure of the model.
        return
