"""Why torch finds no device, as far as the host shows it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from torchyard import host_problem


def test_a_setting_that_hides_every_device_is_named() -> None:
    for value in ("", " ", "-1"):
        text = host_problem([], ["A_DEVICES", "B_DEVICES"], environ={"B_DEVICES": value})
        assert text.startswith(f"B_DEVICES={value} hides every device")
    assert host_problem([os.devnull], ["A_DEVICES"], environ={"A_DEVICES": "0"}) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="device files are Linux's")
def test_device_files_that_are_absent_or_closed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = str(tmp_path / "absent")
    assert host_problem([absent], environ={}).startswith(f"none of {absent} exists")
    assert host_problem([absent, os.devnull], environ={}) == ""
    # Root may open everything.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    text = host_problem([absent, os.devnull], environ={})
    assert text.startswith(f"this user may not open {os.devnull}")
    assert "usermod" in text
