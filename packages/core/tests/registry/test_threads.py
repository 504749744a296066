"""The registry and threads: decisions, loads, notices, prints and locks."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import torchyard
from packages.core.tests.conftest import Make
from packages.core.tests.registry.warp import ask, offer, warp
from packages.core.tests.toys import TOY


def _together(count: int, work: Callable[[], Any]) -> list[Any]:
    results: list[Any] = []
    barrier = threading.Barrier(count)

    def run() -> None:
        barrier.wait()
        results.append(work())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_share_one_decision_one_load_and_one_notice(
    make_registry: Make, caplog: pytest.LogCaptureFixture
) -> None:
    slow = "lambda: (__import__('time').sleep(0.05), lambda numbers: 'warped')[1]"
    registry = make_registry(TOY, warp(offer(load=slow)))
    found = _together(8, lambda: registry.resolve("toy/1", ask(device="warp")))
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert sys.modules["yard_warp.toy"].calls == ["toy/1"]
    _together(8, lambda: registry.resolve("toy/1", ask(dtype="float64")))
    assert len(caplog.records) == 1


def test_threads_get_one_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchyard._registry.registry._process", [])
    assert len(set(map(id, _together(8, torchyard.registry)))) == 1


def test_what_other_threads_print_while_a_plugin_is_imported_is_not_swallowed(
    make_registry: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import threading\nprint('from the plugin')\n"
        "thread = threading.Thread(target=print, args=('from another thread',))\n"
        "thread.start()\nthread.join()\n"
    )
    registry = make_registry(TOY, warp(code + offer()))
    registry.decide("toy/1", ask(device="warp"))
    print("afterwards")
    assert capsys.readouterr().out == "from another thread\nafterwards\n"
    assert "printed 'from the plugin'" in registry.plugin("warp").notes[0]


def test_a_plugin_that_wraps_stdout_takes_nothing_away(
    make_registry: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    wrap = """
import sys

class Wrapper:
    def __init__(self, inner): self.inner = inner
    def write(self, text): return self.inner.write(text.upper())
    def flush(self): self.inner.flush()

sys.stdout = Wrapper(sys.stdout)
"""
    make_registry(TOY, warp(wrap + offer())).decide("toy/1", ask(device="warp"))
    print("afterwards")
    assert capsys.readouterr().out == "AFTERWARDS\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_does_not_inherit_a_lock_that_another_thread_holds(make_registry: Make) -> None:
    registry = make_registry(TOY)
    request = ask()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with registry._lock:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if registry.resolve("toy/1", request)([1]) == [2] else 2
        finally:
            os._exit(status)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
