"""State of the process that a plugin must leave unchanged."""

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
import socket
import sys
import tempfile
import threading
import time
import warnings
from types import ModuleType
from typing import Final

from torchyard import child_environ

_LOGGERS: Final[list[str]] = []


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
        "trace and profile functions": repr((sys.gettrace(), sys.getprofile())),
        "switch interval": repr(sys.getswitchinterval()),
        "loggers": _digest(_loggers()),
        "time zone": repr((time.tzname, time.timezone)),
        "default timeout of sockets": repr(socket.getdefaulttimeout()),
        "folder of temporary files": repr(tempfile.tempdir),
        "builtins": _digest([(name, id(value)) for name, value in vars(builtins).items()]),
        "start method of processes": repr(multiprocessing.get_start_method(allow_none=True)),
        **_system(),
        **_numpy(),
        **_torch(),
    }


def _loggers() -> list[object]:
    """Return how the loggers are set that were there when this was first asked.

    Those that come later are their makers' own.
    """
    there = logging.root.manager.loggerDict
    if not _LOGGERS:
        _LOGGERS.extend(sorted(there))
    found: list[object] = []
    for name in _LOGGERS:
        item = there.get(name)
        if isinstance(item, logging.Logger):
            handlers = list(map(repr, item.handlers))
            found.append((name, item.level, item.disabled, item.propagate, handlers))
    return found


def _system() -> dict[str, str]:
    """Return what the system keeps for the process, where it has such a thing."""
    found: dict[str, str] = {}
    if sys.platform == "linux":
        found["processors that it may use"] = repr(sorted(os.sched_getaffinity(0)))
    if sys.platform != "win32":
        import resource

        found["niceness"] = repr(os.nice(0))
        found["blocked signals"] = repr(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        found["timers"] = repr([signal.getitimer(kind)[1] for kind in (0, 1, 2)])
        names = sorted(name for name in vars(resource) if name.startswith("RLIMIT_"))
        limits = [(name, resource.getrlimit(getattr(resource, name))) for name in names]
        found["limits of resources"] = repr(limits)
    return found


def _numpy() -> dict[str, str]:
    """Return numpy's shared state, where it was imported before."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return {}
    return {
        "numpy's random state": _digest([repr(part) for part in numpy.random.get_state()]),
        "numpy's treatment of errors": repr(sorted(numpy.geterr().items())),
        "numpy's print options": _digest(numpy.get_printoptions()),
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
        "torch's determinism": repr(
            (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
                torch.utils.deterministic.fill_uninitialized_memory,
                torch.backends.cudnn.deterministic,
                torch.backends.cudnn.benchmark,
            )
        ),
        "torch's backends": repr(
            (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled, _flash(torch))
        ),
        "torch's checks": repr(
            (
                torch.is_anomaly_enabled(),
                torch.is_inference_mode_enabled(),
                torch.is_autocast_enabled("cpu"),
            )
        ),
        "torch's way to print": repr(torch.arange(3) / 3),
        "torch's matmul precision": str(torch.get_float32_matmul_precision()),
        "torch's denormals": repr(bool(torch.tensor(1e-39, dtype=torch.float32).mul(1.0) == 0)),
    }


def _flash(torch: ModuleType) -> tuple[bool, ...]:
    """Return which implementations of scaled_dot_product_attention are allowed."""
    cuda = torch.backends.cuda
    return cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
