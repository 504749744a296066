"""Faults of all threads are raised at a synchronisation."""

from __future__ import annotations

import _thread
import contextvars
import threading
from typing import Final

import pytest
import torch

import torchyard_mps
from plugins.mps.tests.emulated import emulated
from torchyard_mps import IndexRangeError
from torchyard_mps._checks import _faults

_BAD: Final = torch.tensor([5])


def test_a_fault_of_another_thread_is_raised_here() -> None:
    # So are those of a gradient on a device, which a thread of autograd computes.
    def run() -> None:
        with emulated():
            _faults.check("gather", _BAD, 4, "dimension 0", wraps=False)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    with pytest.raises(IndexRangeError, match="gather: index: expected 0 to 3"):
        torchyard_mps.synchronize()
    torchyard_mps.synchronize()


def test_a_call_without_a_line_of_the_user_says_where_it_is_from() -> None:
    text = "report('gather', index, 4, 'dimension 0', wraps=False); done.set()"
    code, done = compile(text, _faults.__file__, "exec"), threading.Event()
    scope = {"report": _faults.check, "index": _BAD, "done": done}
    with emulated():
        # A thread without a frame of a user's, as those of autograd are.
        _thread.start_new_thread(contextvars.copy_context().run, (exec, code, scope))
        assert done.wait(60)
    with pytest.raises(IndexRangeError, match="called in a gradient's computation"):
        torchyard_mps.synchronize()
