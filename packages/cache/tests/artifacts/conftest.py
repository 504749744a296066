"""Folders of the user's own, and a process that has loaded nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard_cache.artifacts._process import LOADED


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test a home: keys, serials and torch's cache are below it."""
    home = tmp_path / "home"
    home.mkdir()
    for name, folder in {
        "HOME": "",
        "XDG_CONFIG_HOME": "config",
        "XDG_CACHE_HOME": "cache",
        "XDG_STATE_HOME": "state",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
    }.items():
        monkeypatch.setenv(name, str(home / folder))
    LOADED.artifacts.clear()
    LOADED.skipped.clear()
    LOADED.bundles = 0
    yield home
    LOADED.artifacts.clear()
    LOADED.skipped.clear()
    LOADED.bundles = 0
