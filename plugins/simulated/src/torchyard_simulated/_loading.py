"""Load the device library into torch, once, and store the reason where that fails."""

from __future__ import annotations

import atexit
import importlib
import sys
import threading
import traceback
import types
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from torchyard import TorchyardError, setting

DEVICE: Final = "simulated"
HOW_TO_ASK: Final = (
    "set TORCHYARD_PRIVATEUSE1=simulated before torch is imported, or call "
    "torchyard_simulated.load()"
)
_SWITCH_OFF: Final = "set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to import torch without device plugins"


class LoadState(StrEnum):
    """The device's state in this process."""

    NOT_LOADED = "not loaded"
    LOADED = "loaded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """What became of loading the device.

    Attributes:
        state: of the device.
        reason: one line for a person; empty unless ``state`` is ``FAILED``.
        hint: what the person could do; empty unless ``state`` is ``FAILED``.
        traceback: the whole failure as text; empty unless ``state`` is ``FAILED``.
    """

    state: LoadState
    reason: str = ""
    hint: str = ""
    traceback: str = ""


class DeviceLoadError(RuntimeError):
    """The simulated device cannot be used in this process.

    Args:
        reason: what went wrong, without the subject.
        hint: what the person could do.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        self.reason: Final = reason
        self.hint: Final = hint
        remedy = f"; {hint}" if hint else ""
        super().__init__(f"torchyard-simulated: the device is not loaded: {reason}{remedy}")


class _FailedDevice(types.ModuleType):
    """Is ``torch.simulated`` after a failure, and gives the reason at every use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise DeviceLoadError(_status.reason, _status.hint)


_lock = threading.RLock()
_status = LoadStatus(LoadState.NOT_LOADED)


def status() -> LoadStatus:
    """Return what became of loading the device; never loads it."""
    return _status


def load() -> None:
    """Load the device into torch, importing torch if that has not happened.

    Returns at once when the device is loaded.

    Raises:
        DeviceLoadError: the device cannot be used in this process. The first failure stays: torch
            has no way to unload half a device, so every later call raises it again.
    """
    # Before the lock: importing torch calls autoload(), perhaps on another thread.
    import torch

    with _lock:
        if _status.state is LoadState.NOT_LOADED:
            _attempt(torch)
        if _status.state is LoadState.FAILED:
            raise DeviceLoadError(_status.reason, _status.hint)


def is_asked_for() -> bool:
    """Return whether the device takes part: it was loaded, or the environment asks for it."""
    return _status.state is not LoadState.NOT_LOADED or setting("TORCHYARD_PRIVATEUSE1") == DEVICE


def autoload() -> None:
    """Load the device from inside of ``import torch`` where it is asked for; never raises.

    Else it would become the current accelerator of every program in the environment, and with it
    the default of whatever looks for one.

    torch calls this through the entry point group ``torch.backends``, and stops importing when it
    raises. A failure is kept for :func:`status`, and told by every use of ``torch.simulated``.
    """
    try:
        if not is_asked_for():
            return
    # A configuration file that cannot be read asks for nothing; whoever decides by it says so.
    except TorchyardError:
        return
    import torch  # in the middle of its own import, but whole enough to load into

    with _lock:
        if _status.state is LoadState.NOT_LOADED:
            _attempt(torch)


def _attempt(torch: types.ModuleType) -> None:
    """Load, and set the module's status to what came of it."""
    global _status
    try:
        _load_into(torch)
    except Exception as error:
        if isinstance(error, DeviceLoadError):
            reason, hint = error.reason, error.hint
        else:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            hint = f"reinstall torchyard-simulated, or {_SWITCH_OFF}"
        _status = LoadStatus(LoadState.FAILED, reason, hint, traceback.format_exc())
        if not hasattr(torch, DEVICE):
            placeholder = _FailedDevice(f"torch.{DEVICE}", reason)
            setattr(torch, DEVICE, placeholder)
            sys.modules[placeholder.__name__] = placeholder
    else:
        _status = LoadStatus(LoadState.LOADED)


def _load_into(torch: Any) -> None:
    built_for, library = _built()
    running = str(torch.__version__)
    if _minor(running) != _minor(built_for):
        raise DeviceLoadError(
            f"it was built for torch {_minor(built_for)}, and this is torch {running}",
            f"install the torchyard-simulated of this torch, or torch {_minor(built_for)}",
        )
    torch.ops.load_library(str(library))
    ops = torch.ops.torchyard_simulated
    try:
        if ops.slot_taken():
            raise RuntimeError("a device guard or hooks are registered for PrivateUse1")
        torch.utils.rename_privateuse1_backend(DEVICE)
        ops.initialize()
    except RuntimeError as error:
        raise DeviceLoadError(
            "torch's PrivateUse1 slot, of which a process has one, is taken by another device",
            f"uninstall one of the two device packages, or {_SWITCH_OFF} and load the one you want",
        ) from error
    from torchyard_simulated import runtime
    from torchyard_simulated._collectives import register_collectives
    from torchyard_simulated._torch_compat import register_device_module

    register_device_module(DEVICE, runtime)
    register_collectives()
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    atexit.register(ops.settle_engine)


def _built() -> tuple[str, Path]:
    """Return the torch version the library was built for, and where the library is."""
    try:
        build = importlib.import_module("torchyard_simulated._build")
    except ModuleNotFoundError as error:
        raise DeviceLoadError(
            "its library was never built",
            "install the package with pip instead of importing a checkout",
        ) from error
    library = Path(str(build.__file__)).with_name(build.LIBRARY)
    if not library.is_file():
        raise DeviceLoadError(
            f"its library {library.name} is missing", "reinstall torchyard-simulated"
        )
    return build.TORCH_VERSION, library


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
