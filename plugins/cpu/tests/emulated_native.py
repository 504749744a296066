"""A pytest plugin: the native module of another processor in place of this one's.

    pytest -p emulated_native --native-server="qemu-aarch64-static -cpu max build/module_server"

The server (native/emulated/server.cc) holds the module, compiled for that processor. Each call goes
there together with the memory of every tensor whose address its arguments hold, and what the call
wrote comes back: the tests, their references and their bounds stay on this processor and unchanged.
"""

from __future__ import annotations

import builtins
import importlib
import shlex
import struct
import subprocess
import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import partial
from threading import Lock
from types import ModuleType
from typing import Any, Final

import pytest
import torch
from torch import Tensor, UntypedStorage

import torchyard._platforms.platform
import torchyard_cpu
from torchyard_cpu._isa import feature_sets

_NAME: Final = "torchyard_cpu._native"
_KEPT_STORAGES: Final = 512
_TABLES: Final = ("", "decode_", "backward_", "linear_", "recurrent_")
# What reads torch's tensors in place, which a server's module cannot: without a connection to torch
# there is no fast path.
_IN_PLACE: Final = ("connect_torch", "packed_weights")


class Storages:
    """The storages of the last tensors that were asked for their address, kept alive.

    Whatever the native module gets as an address comes from ``Tensor.data_ptr``.
    """

    def __init__(self) -> None:
        self._recent: OrderedDict[int, UntypedStorage] = OrderedDict()
        original = Tensor.data_ptr

        def data_ptr(tensor: Tensor) -> int:
            storage = tensor.untyped_storage()
            if storage.nbytes():
                self._recent[storage.data_ptr()] = storage
                self._recent.move_to_end(storage.data_ptr())
                while len(self._recent) > _KEPT_STORAGES:
                    self._recent.popitem(last=False)
            return original(tensor)

        Tensor.data_ptr = data_ptr  # type: ignore[method-assign]

    def of(self, words: Iterable[int]) -> list[UntypedStorage]:
        """Return those that hold one of the addresses among the integers."""
        integers = set(words)
        return [
            storage
            for start, storage in self._recent.items()
            if any(start <= word < start + storage.nbytes() for word in integers)
        ]


class Numbers(array):  # type: ignore[type-arg]
    """Plain numbers whose address the native module gets: kept as tensors' storages are."""

    def buffer_info(self) -> tuple[int, int]:
        return torch.frombuffer(self, dtype=torch.uint8).data_ptr(), len(self)


class Server:
    """The other processor's module, in a process that is started again after it died."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()
        self._storages = Storages()

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the module.

        Raises:
            RuntimeError: the process died, as it does where a kernel reads beyond a tensor.
        """
        storages = self._storages.of(_integers(arguments))
        request = [struct.pack("<q", len(storages))]
        for storage in storages:
            request.append(struct.pack("<qq", storage.data_ptr(), storage.nbytes()))
            request.append(_bytes(storage))
        request += [_encoded(name), _encoded(arguments)]
        with self._lock:
            try:
                return self._exchange(b"".join(request), storages)
            except (EOFError, BrokenPipeError):
                process, self._process = self._process, None
                assert process is not None
                process.kill()
                status = process.wait()
                raise RuntimeError(f"{name}: the emulated process ended, {status}") from None

    def _exchange(self, request: bytes, storages: list[UntypedStorage]) -> Any:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._process.stdin is not None
        self._process.stdin.write(request)
        self._process.stdin.flush()
        if self._read(1) == b"r":
            result, error = self._read_object(), None
        else:
            kind, text = (self._read(self._read_integer()).decode() for _ in range(2))
            result, error = None, getattr(builtins, kind)(text)
        for storage in storages:
            written = torch.frombuffer(bytearray(self._read(storage.nbytes())), dtype=torch.uint8)
            torch.empty(0, dtype=torch.uint8).set_(storage).copy_(written)
        if error is not None:
            raise error
        return result

    def _read(self, size: int) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) != size:
            raise EOFError
        return data

    def _read_integer(self) -> int:
        return int(struct.unpack("<q", self._read(8))[0])

    def _read_object(self) -> Any:
        kind = self._read(1)
        if kind == b"N":
            return None
        if kind in b"iB":
            number = self._read_integer()
            return bool(number) if kind == b"B" else number
        if kind == b"s":
            return self._read(self._read_integer()).decode()
        assert kind == b"(", kind
        return tuple(self._read_object() for _ in range(self._read_integer()))


def _bytes(storage: UntypedStorage) -> bytes:
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()


def _integers(value: Any) -> Iterator[int]:
    """Return all integers of an argument that may be addresses, words within bytes included."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, bytes):
        yield from (word for (word,) in struct.iter_unpack("<q", value[: len(value) // 8 * 8]))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _integers(item)


def _encoded(value: Any) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"B" + struct.pack("<q", value)
    if isinstance(value, int):
        return b"i" + struct.pack("<q", value)
    if isinstance(value, float):
        return b"d" + struct.pack("<d", value)
    if isinstance(value, (str, bytes)):
        data = value.encode() if isinstance(value, str) else value
        return (b"s" if isinstance(value, str) else b"b") + struct.pack("<q", len(data)) + data
    kind = b"(" if isinstance(value, tuple) else b"["
    items = [_encoded(item) for item in value]
    return kind + struct.pack("<q", len(items)) + b"".join(items)


def _module(server: Server) -> ModuleType:
    module = ModuleType(_NAME, "The native module of another processor.")
    constants, names = server.call("")
    vars(module).update(constants)
    vars(module).update((name, partial(server.call, name)) for name in names)
    return module


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("the native module of another processor")
    group.addoption("--native-server", required=True, help="the command that runs it")
    group.addoption(
        "--native-isas", required=True, help="the instruction sets to test, which it must have"
    )
    group.addoption(
        "--native-limit",
        type=float,
        default=float("inf"),
        help="leave out the sweep's cases of more products; an emulator does some 1e7 a second",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Put the module in place before any file of tests imports it."""
    options = early_config.known_args_namespace
    module = _module(Server(options.native_server))
    features = frozenset(module.cpu_features())
    tables = [getattr(module, f"{name}kernels")() for name in _TABLES]
    found = {isa for table in tables for _, _, isa, needed in table if features.issuperset(needed)}
    if lacking := set(options.native_isas.split(",")) - found:
        raise pytest.UsageError(
            f"UNVERIFIED: the emulated processor runs no kernels of {', '.join(sorted(lacking))}; "
            f"it has {' '.join(sorted(features)) or 'no known features'}: use a newer emulator"
        )
    for function in _IN_PLACE:
        setattr(module, function, lambda *_: None)
    sys.modules[_NAME] = torchyard_cpu._native = module  # type: ignore[attr-defined]
    torchyard._platforms.platform._cpu_features = lambda: features  # type: ignore[assignment]
    importlib.import_module("torchyard_cpu.pointwise._map").array = Numbers  # type: ignore[attr-defined]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    isas = frozenset(config.option.native_isas.split(","))
    chosen = [
        item
        for item in items
        if _concerns(getattr(item, "callspec", None), isas, config.option.native_limit)
    ]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def _concerns(callspec: Any, isas: frozenset[str], limit: float) -> bool:
    """Whether no other instruction set is named by a test's parameters, nor a long case."""
    parameters = {} if callspec is None else callspec.params
    for value in parameters.values():
        # A row of a table begins with the kernel's name, which ends in its instruction set.
        name = value[0] if isinstance(value, tuple) and value else value
        if isinstance(name, str) and name.rpartition("_")[2] in feature_sets().keys() - isas:
            return False
    case = parameters.get("case")
    if not hasattr(case, "lengths"):
        return True
    rows, keys = case.lengths
    return bool(case.batches * case.heads[0] * rows * keys * sum(case.dims) <= limit)


def pytest_report_header(config: pytest.Config) -> str:
    features = " ".join(sys.modules[_NAME].cpu_features())
    return f"native module: {config.option.native_server} ({features})"
