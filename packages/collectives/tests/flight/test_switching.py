"""Switching the recorder on and off: settings, and what is left afterwards."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from packages.collectives.tests.ranks import default_store, run_ranks
from torchyard_collectives.flight import FlightSettingError, disable, dump, enable, is_enabled
from torchyard_collectives.flight._settings import Settings, parse_settings


def _leaves_nothing(folder: str) -> dict[str, bool]:
    threads = set(threading.enumerate())
    hook, register = sys.excepthook, dist.distributed_c10d._register_process_group  # type: ignore[attr-defined]
    name = dist.distributed_c10d._process_group_name  # type: ignore[attr-defined]
    before = torch._C._dispatch_dump("c10d::allreduce_")
    enable(folder)
    assert is_enabled()
    during = torch._C._dispatch_dump("c10d::allreduce_")
    dist.all_reduce(torch.ones(1))
    disable()
    deadline = time.monotonic() + 30
    while set(threading.enumerate()) - threads and time.monotonic() < deadline:
        time.sleep(0.05)
    return {
        "kernel was there": during != before,
        "kernel": torch._C._dispatch_dump("c10d::allreduce_") == before,
        "excepthook": sys.excepthook is hook,
        "registration": dist.distributed_c10d._register_process_group is register,  # type: ignore[attr-defined]
        "names of groups": dist.distributed_c10d._process_group_name is name,  # type: ignore[attr-defined]
        "threads": not set(threading.enumerate()) - threads,
        "files": not list(Path(folder).glob("*")),
        "off": not is_enabled(),
    }


def test_switched_off_nothing_is_left(tmp_path: Path) -> None:
    left = run_ranks(1, _leaves_nothing, str(tmp_path), fresh=True)[0]
    assert all(left.values()), left


def _disables_while_dumping(folder: str) -> dict[str, object]:
    """Switch off while the watchdog writes the dump of a late call."""
    from torchyard_collectives.flight._dump.folder import Box

    store, total = default_store(), torch.ones(1)
    if dist.get_rank():
        store.wait(["the recorder is off"])
        dist.all_reduce(total)
        return {}
    begun, may_end = threading.Event(), threading.Event()
    write = Box.put

    def slow(box: Box, rank: int, text: str) -> Path:
        begun.set()
        assert may_end.wait(60)
        return write(box, rank, text)

    with mock.patch.object(Box, "put", slow):
        enable(folder, timeout=0.2)
        work = dist.all_reduce(total, async_op=True)
        assert work is not None
        assert begun.wait(60)
        switched_off = threading.Thread(target=disable)
        switched_off.start()
        switched_off.join(0.5)
        waited = switched_off.is_alive()
        may_end.set()
        switched_off.join(60)
    files = sorted(path.name for path in Path(folder).iterdir())
    store.set("the recorder is off", "")
    work.wait()
    time.sleep(0.5)
    return {
        "waited": waited,
        "over": not switched_off.is_alive(),
        "the same files": files == sorted(path.name for path in Path(folder).iterdir()),
        "a dump": any(name.startswith("rank") for name in files),
    }


def test_disabling_waits_for_a_late_dump_and_none_follows(tmp_path: Path) -> None:
    for found in run_ranks(2, _disables_while_dumping, str(tmp_path), fresh=True):
        assert all(found.values()), found


def test_settings_are_understood_or_refused_with_what_was_expected() -> None:
    assert parse_settings("") is None
    assert parse_settings(" off ") is None
    assert parse_settings("on") == Settings()
    assert parse_settings("folder=/x/y, timeout=2.5,capacity=7") == Settings(Path("/x/y"), 2.5, 7)
    for text, expected in {
        "yes": "expected on, off, or some of folder=",
        "timeout=soon": "timeout: expected a number, got 'soon'",
        "timeout=0": "timeout: expected more than 0, got 0.0",
        "capacity=-3": "capacity: expected more than 0",
        "where=x": "got 'where=x'",
    }.items():
        with pytest.raises(FlightSettingError) as caught:
            parse_settings(text)
        assert expected in str(caught.value)


@pytest.mark.sweep
def test_importing_switches_nothing_on_unless_the_setting_says_so() -> None:
    # One process has imported torch; each of its forks imports the package with another setting.
    program = """
import os, sys, torch
for value in ("", "off", "on"):
    if not os.fork():
        os.environ["TORCHYARD_FLIGHT"] = value
        import torchyard_collectives
        began = "torchyard_collectives.flight._session" in sys.modules
        from torchyard_collectives.flight import is_enabled
        print(began, is_enabled(), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout.splitlines() == ["False False", "True False", "True True"]


def test_a_dump_needs_a_recorder() -> None:
    with pytest.raises(FlightSettingError, match="call enable"):
        dump()


def test_settings_of_another_kind_are_refused_before_anything_is_switched_on() -> None:
    with pytest.raises(TypeError, match="folder: expected a path, got False"):
        enable(False)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="timeout: expected a finite number, got True"):
        enable(timeout=True)
    with pytest.raises(TypeError, match=r"capacity: expected an int, got 1\.5"):
        enable(capacity=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wait: expected a finite number of 0 to"):
        dump(wait=-1)
    assert not is_enabled()
