"""Programs that observe a plugin from inside a fresh interpreter, one function each.

They write their observations to a file, step by step, so that a step that ends the process shows.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torchyard
from torchyard_conformance._trials._traces import traces

_CHILD_SECONDS: Final = 60.0
# A busy machine takes seconds to end a process that has imported torch and what compiles.
_EXIT_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.02
_ANY: Final = "*"

Seen = dict[str, Any]


class Diary:
    """Keep what was seen, and write it down after every step."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: Seen = {}

    def note(self, step: str, seen: object) -> None:
        """Write a step down."""
        self._seen[step] = seen
        scratch = self._path.with_suffix(".scratch")
        scratch.write_text(json.dumps(self._seen), encoding="utf-8")
        scratch.replace(self._path)

    def attempt(self, step: str, act: Callable[[], object]) -> None:
        """Take a step and write it down; what it raises is what was seen."""
        try:
            seen = act()
        except BaseException as error:
            seen = {"raised": f"{type(error).__name__}: {error}"}
        self.note(step, seen)


def alone(before: list[str], name: str, path: str) -> None:
    """Observe a plugin that is loaded before torch, and a process that it is left in.

    Args:
        before: the modules that were imported when the interpreter started.
        name: the plugin's.
        path: the file to write to.
    """
    diary = Diary(path)
    diary.note("start", before)
    diary.note("discovery", _discovery())
    diary.attempt("activation", lambda: _activation(name))
    diary.attempt("again", lambda: [_summary(name) for _ in range(2)])
    diary.attempt("fork", lambda: _forked(name))
    diary.attempt("spawn", lambda: _spawned(name, path))
    diary.attempt("torch", lambda: _import_torch())
    diary.attempt("after torch", lambda: _summary(name, torchyard.registry()))
    diary.note("end", True)
    # Ends a process that does not end, and says what it was waiting for.
    faulthandler.dump_traceback_later(_EXIT_SECONDS, exit=True)


def after_torch(name: str, path: str) -> None:
    """Observe a plugin that is loaded after torch."""
    diary = Diary(path)
    diary.attempt("torch", lambda: _import_torch())
    diary.attempt("activation", lambda: _activation(name))
    _leave()


def summary(name: str, path: str) -> None:
    """Observe a plugin where something else than usual was arranged."""
    diary = Diary(path)
    modules = set(sys.modules)
    diary.attempt("activation", lambda: _summary(name))
    diary.note("imported", sorted(set(sys.modules) - modules))
    diary.note("plugins", {item.name: str(item.state) for item in torchyard.registry().plugins})
    _leave()


def _leave() -> None:
    """End at once: whether the process can end is another law's affair."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _discovery() -> Seen:
    modules = set(sys.modules)
    start = time.perf_counter()
    registry = torchyard.registry()
    registry.contracts(), registry.commands(), registry.devices()
    seconds = time.perf_counter() - start
    return {"imported": sorted(set(sys.modules) - modules), "seconds": seconds}


def _activation(name: str) -> Seen:
    """Load everything that a plugin offers, and see what that costs and leaves behind."""
    _import_requirements()
    plugin = torchyard.registry().plugin(name)
    modules = set(sys.modules)
    before = traces()
    start = time.perf_counter()
    torchyard.registry().activate(plugin)
    seconds = time.perf_counter() - start
    after = traces()
    return {
        **_summary(name, torchyard.registry()),
        "notes": list(plugin.notes),
        "seconds": seconds,
        "import_seconds": dict(plugin.import_seconds),
        "imported": sorted(set(sys.modules) - modules),
        "left": {key: [before[key], after[key]] for key in before if before[key] != after[key]},
    }


def _import_requirements() -> None:
    """Import what torchyard itself requires: what that costs and leaves is not the plugin's."""
    for module in ("click", "pluggy", "rich.console", "rich.progress", "rich.table"):
        importlib.import_module(module)


def _summary(name: str, registry: torchyard.Registry | None = None, *, checks: bool = True) -> Seen:
    """Load a plugin by a registry, by default a new one, and return what came of it.

    Args:
        name: the plugin's.
        registry: the registry.
        checks: whether the plugin's checks for ``torchyard doctor`` run too.
    """
    registry = registry or torchyard.Registry()
    plugin = registry.plugin(name)
    if checks:
        registry.activate(plugin)
    offers: dict[str, list[str]] = {}
    devices: list[str] = []
    if plugin.usable and plugin.manifest is not None:
        devices = [device.name for device in plugin.manifest.devices if device.module]
        for entry in plugin.manifest.implements:
            if registry.minor(entry.contract) is None:
                continue
            names = set(offers.get(str(entry.contract), []))
            for device in entry.devices:
                found, _ = registry.implementations(
                    entry.contract, "cpu" if device == _ANY else device
                )
                names |= {item.name for item in found if item.plugin == name}
            offers[str(entry.contract)] = sorted(names)
    return {
        "state": str(plugin.state),
        "code": str(plugin.code or ""),
        "reason": plugin.reason,
        "traceback": plugin.traceback,
        "offers": offers,
        "devices": {device: _probed(registry, device) for device in devices},
    }


def _probed(registry: torchyard.Registry, device: str) -> Mapping[str, object]:
    status = registry.probe_device(device)
    return {"device": status.device, "text": status.text, "hint": status.hint}


def _import_torch() -> str:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return ""
    import torch

    return str(torch.__version__)


def _forked(name: str) -> Seen:
    if sys.platform == "win32":
        return {"absent": "this system has no fork"}
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            # Checks may compute, and torch's autograd cannot after a fork, whatever the device.
            text = json.dumps(_summary(name, checks=False))
        except BaseException as error:
            text = json.dumps({"raised": f"{type(error).__name__}: {error}"})
        with os.fdopen(writer, "w") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(writer)
    # Whatever the plugin left locked is locked in the child for good.
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.alarm(int(_CHILD_SECONDS))
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    signal.alarm(0)
    _, status = os.waitpid(pid, 0)
    return _told(text, os.waitstatus_to_exitcode(status))


def _spawned(name: str, path: str) -> Seen:
    file = Path(f"{path}.spawned")
    process = multiprocessing.get_context("spawn").Process(target=_answer, args=(name, str(file)))
    process.start()
    end = time.monotonic() + _CHILD_SECONDS
    while process.is_alive() and not file.is_file() and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    # Whether a process that loaded the plugin can end is another law's affair.
    if text:
        process.kill()
    elif process.is_alive():
        return {"raised": f"the child was still at it after {_CHILD_SECONDS:.0f} s"}
    process.join()
    return _told(text, process.exitcode)


def _answer(name: str, path: str) -> None:
    """Be the spawned child."""
    scratch = Path(f"{path}.scratch")
    scratch.write_text(json.dumps(_summary(name)), encoding="utf-8")
    scratch.replace(path)


def _told(text: str, exitcode: int | None) -> Seen:
    if not text:
        return {"raised": f"the child ended with status {exitcode} and told nothing"}
    return dict(json.loads(text))
