"""What differs on Windows, tried by its name alone: no fork, no sysconf, no flags of mmap.

That no other call of POSIX alone is made without asking is checked by mypy, whose stubs of Windows
have none of them: ``nox -s types``.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchyard.optimization import _measurement
from torchyard_attention._mask_blocks import _cost
from torchyard_collectives.flight._dump.folder import Box
from torchyard_collectives.flight._record.endings import Endings
from torchyard_conformance._laws.truth import _process, test_process
from torchyard_conformance._subjects._fresh import end_group
from torchyard_conformance._trials import _resources, _traces
from torchyard_kernels import _large_pages


@pytest.fixture(autouse=True)
def _windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")


def test_memory_of_the_machine_is_not_known() -> None:
    _cost._physical_memory.cache_clear()
    assert _cost._physical_memory() is None
    _cost._physical_memory.cache_clear()
    assert _measurement._free_memory(torch.device("cpu")) is None


def test_tensors_lie_in_usual_pages() -> None:
    like = torch.empty(1)
    count = 2 * _large_pages.LARGE_PAGE // 4
    assert _large_pages._block(4 * count) is None
    assert _large_pages.large_empty(like, (count,)).shape == (count,)


def test_dumps_are_written_without_a_lock(tmp_path: Path) -> None:
    box = Box(tmp_path)
    assert box.put(0, "{}").read_text() == "{}"
    assert not box.requested()
    box.ask()
    assert box.requested()


def test_an_end_by_sigterm_is_not_caught() -> None:
    before = signal.getsignal(signal.SIGTERM)
    endings = Endings(lambda ending: None)
    try:
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        endings.remove()


def test_laws_start_a_process_for_each_implementation() -> None:
    assert not test_process._forks(("attention/1", "cpu", "cpu.native"))
    with pytest.raises(OSError, match="no fork"):
        _process._alone("plugin", "attention/1", "cpu", "cpu.native", Path("unused"))


def test_growth_is_told_by_objects_alone_and_traces_by_what_there_is() -> None:
    assert list(_resources._held("cpu")) == ["objects of Python"]
    assert _traces._system() == {}


def test_a_process_is_ended_by_itself() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    end_group(process)
    assert process.poll() is not None
