"""What a plugin must find and leave as it was: the state that a whole process shares."""

from __future__ import annotations

import builtins
import gc
import hashlib
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings

from torchyard import child_environ


def traces() -> dict[str, str]:
    """Return, for each part of the process's shared state, words that change where it does."""
    return {
        "environment variables": _digest(sorted(child_environ({}).items())),
        "working folder": os.getcwd(),
        "file mode mask": oct(_umask()),
        "signal handlers": _digest(
            [(number, repr(signal.getsignal(number))) for number in sorted(signal.valid_signals())]
        ),
        "sys.path": _digest(sys.path),
        "sys.stdout and sys.stderr": repr((id(sys.stdout), id(sys.stderr))),
        "exception hooks": repr((sys.excepthook, sys.unraisablehook, threading.excepthook)),
        "recursion limit": repr(sys.getrecursionlimit()),
        "warning filters": _digest([repr(item) for item in warnings.filters]),
        "root logger": repr((logging.root.level, logging.root.handlers, logging.root.disabled)),
        "locale": str(locale.setlocale(locale.LC_ALL)),
        "random state": _digest(random.getstate()),
        "garbage collection": repr((gc.isenabled(), gc.get_threshold())),
        "builtins": _digest([(name, id(value)) for name, value in vars(builtins).items()]),
        "start method of processes": repr(multiprocessing.get_start_method(allow_none=True)),
        **_torch(),
    }


def _torch() -> dict[str, str]:
    """Return what torch's defaults are, where it was imported before."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "accelerator"):
        return {}
    return {
        "torch's default dtype": str(torch.get_default_dtype()),
        "torch's default device": str(torch.get_default_device()),
        "torch's threads": repr((torch.get_num_threads(), torch.get_num_interop_threads())),
        "torch's random state": _digest(torch.get_rng_state().tolist()),
        "torch's grad mode": repr(torch.is_grad_enabled()),
        "torch's determinism": repr(torch.are_deterministic_algorithms_enabled()),
        "torch's matmul precision": str(torch.get_float32_matmul_precision()),
        "torch's denormals": repr(bool(torch.tensor(1e-39, dtype=torch.float32).mul(1.0) == 0)),
    }


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
