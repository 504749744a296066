"""The lifetime of a process group, the start of its operations, and its messages."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, Work

from torchyard_collectives._torch_compat import Store, backends_of
from torchyard_collectives.shm._engines.engine import Engine, Message
from torchyard_collectives.shm._group.devices import OtherDevices
from torchyard_collectives.shm._group.profiling import profiled
from torchyard_collectives.shm._group.tensors import check_memory
from torchyard_collectives.shm._group.uncompiled import eager
from torchyard_collectives.shm._group.work import DONE
from torchyard_collectives.shm._group.worker import Worker

__all__ = ["EngineGroup", "milliseconds_of"]


@eager
class EngineGroup(ProcessGroup):
    """What is the same for every operation of a group on an :class:`Engine`.

    A call whose caller waits is done in the caller's thread; others are done one after another by
    a thread of the group. Messages go their own way.

    Args:
        store: the group's.
        rank, size: this rank among the group's, and how many there are.
        timeout: of operations that give none.
        engine: does the work.
        name: the group's.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        engine: Engine,
        name: str,
    ) -> None:
        # The constructor for subclasses; torch's types know the other one alone.
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._store = store
        self._engine = engine
        self._rank = rank
        self._ranks = size
        self._name = name
        self._desc = "undefined"
        self._milliseconds = milliseconds_of(timeout)
        self._worker = Worker(f"torchyard shm {name}", timeout.total_seconds())
        self._devices = OtherDevices(store, rank, size, timeout)
        self._messages: list[MessageWork] = []
        self._count = 0
        # Peers learn then that this rank ended as it should.
        self._leave = weakref.finalize(self, _leave, engine, self._worker)
        self._leave.atexit = False
        atexit.register(self._leave)

    # What torch asks of a group written in Python.

    def getBackendName(self) -> str:
        """Return the backend's name."""
        return "shm"

    def getGroupName(self) -> str:
        """Return the group's name."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Set the group's name."""
        self._name = name

    def getGroupDesc(self) -> str:
        """Return the group's description."""
        return self._desc

    def setGroupDesc(self, desc: str) -> None:
        """Set the group's description."""
        self._desc = desc

    def get_group_store(self) -> Store:
        """Return the group's store."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of operations that give none."""
        self._milliseconds = milliseconds_of(timeout)

    def shutdown(self) -> None:
        """Leave the group; what is under way fails."""
        self._devices.shutdown()
        atexit.unregister(self._leave)
        self._leave()

    abort = shutdown

    def describe(self) -> dict[str, Any]:
        """Return the global ranks by host, and what bridges hosts."""
        return self._engine.describe()

    def _get_backend(self, device: torch.device) -> Any:
        """Return the group for a device: this one, or the one that it made for the device."""
        if device.type == "cpu":
            return self
        return self._of_device(device)._get_backend(device)

    @property
    def _device_types(self) -> list[torch.device]:
        """Return the CPU, which torch reads, once torch knows the group.

        Before, it would have the device's backend record the group's operations, which only a
        backend in C++ can.
        """
        return [torch.device("cpu")] if backends_of(self) else []

    # What torch asks of a group's backend.
    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Return False: any memory will do."""
        return False

    def _set_default_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of operations that give none."""
        self.set_timeout(timeout)

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: the number is right from the start."""

    def _get_sequence_number_for_group(self) -> int:
        """Return how many collectives were called."""
        return self._count

    def _start_coalescing(self, device: torch.device) -> None:
        """Do nothing: operations start when they are called."""

    def _end_coalescing(self, device: torch.device) -> Work:
        """Return something that is done once everything before is."""
        return self._start(lambda: None, [], True)

    # Starting operations.

    def _limit(self, opts: Any) -> int:
        timeout = opts.timeout
        # Options that name none hold a negative one.
        return self._milliseconds if timeout.days < 0 else milliseconds_of(timeout)

    def _start(self, body: Callable[[], None], results: list[Tensor], asynchronous: bool) -> Work:
        self._count += 1
        if asynchronous:
            return self._worker.submit(body, results)
        self._worker.run(body)
        return DONE

    def _other(self, tensors: Sequence[Tensor]) -> ProcessGroup | None:
        """Return the group that moves the tensors, where that is not this one."""
        if not tensors:
            raise ValueError("shm: expected at least one tensor, got an empty list")
        return None if tensors[0].is_cpu else self._of_device(tensors[0].device)

    def _root(self, opts: Any) -> int:
        root: int = opts.rootRank
        if not 0 <= root < self._ranks:
            raise ValueError(
                f"shm: root: expected a rank of the group, 0 to {self._ranks - 1}, got {root}"
            )
        return root

    def _of_device(self, device: torch.device) -> ProcessGroup:
        config = backends_of(self)
        return self._devices.group(device, config, self._name)

    # Messages.

    @profiled("send")
    def send(self, tensors: list[Tensor], dstRank: int, tag: int) -> Work:
        """Start to send a tensor."""
        if (other := self._other(tensors)) is not None:
            return other.send(tensors, dstRank, tag)
        return self._keep(self._engine.send(_contiguous("send", tensors), dstRank, tag), tensors)

    @profiled("recv")
    def recv(self, tensors: list[Tensor], srcRank: int, tag: int) -> Work:
        """Start to receive a tensor."""
        if (other := self._other(tensors)) is not None:
            return other.recv(tensors, srcRank, tag)
        return self._keep(self._engine.receive(_contiguous("recv", tensors), srcRank, tag), tensors)

    @profiled("recvAnySource")
    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Work:
        """Start to receive a tensor from whoever sends one."""
        if (other := self._other(tensors)) is not None:
            return other.recv_anysource(tensors, tag)
        return self._keep(self._engine.receive(_contiguous("recv", tensors), -1, tag), tensors)

    recvAnysource = recv_anysource

    def _keep(self, message: Message, tensors: list[Tensor]) -> Work:
        """Hold on to a message that nobody may wait for."""
        self._messages = [work for work in self._messages if not work.is_completed()]
        work = MessageWork(message, tensors, self._milliseconds, self._worker)
        self._messages.append(work)
        return work


@eager
class MessageWork(Work):
    """A send or a receive under way."""

    def __init__(
        self, message: Message, tensors: list[Tensor], milliseconds: int, worker: Worker
    ) -> None:
        super().__init__()
        self._message = message
        self._tensors = tensors
        self._milliseconds = milliseconds
        self._worker = worker
        self._other = -1
        self._error: BaseException | None = None
        self._ended = False
        # An engine forgets a message with its end; threads that wait for one take turns.
        self._turn = threading.Lock()
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is done.

        Raises:
            SharedMemoryError: it failed, or was not done in time; the group is broken then.
        """
        limit = self._milliseconds
        if timeout is not None and timeout.total_seconds() > 0:
            limit = milliseconds_of(timeout)
        with self._turn:
            if not self._ended:
                try:
                    self._other = self._message.wait(limit)
                except RuntimeError as error:
                    self._error = error
                self._ended = True
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether it is done, or failed."""
        # Who waits for it meanwhile sees the end.
        if self._turn.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._turn.release()
        return self._ended

    def _look(self) -> None:
        if self._ended:
            return
        try:
            other = self._message.look()
        except RuntimeError as error:
            self._error, self._ended = error, True
        else:
            if other is not None:
                self._other, self._ended = other, True

    def is_success(self) -> bool:
        """Whether it is done."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Return why it failed."""
        return self._error

    def synchronize(self) -> None:
        """Wait until it is done."""
        self.wait()

    def result(self) -> list[Tensor]:
        """Return the tensors that are sent or received."""
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the tensors."""
        with self._turn:
            if self._future is not None:
                return self._future
            future = self._future = torch.futures.Future()
        self._worker.give(lambda: self._complete(future))
        return future

    def _complete(self, future: torch.futures.Future[Any]) -> None:
        try:
            self.wait()
        except RuntimeError as error:
            future.set_exception(error)
        else:
            future.set_result(self._tensors)

    def source_rank(self) -> int:
        """Return whom a receive heard, as numbered in the group."""
        return self._other

    _source_rank = source_rank


def milliseconds_of(timeout: timedelta) -> int:
    return max(1, int(timeout.total_seconds() * 1000))


def _leave(engine: Engine, worker: Worker) -> None:
    engine.leave()
    worker.stop()


def _contiguous(what: str, tensors: list[Tensor]) -> Tensor:
    if len(tensors) != 1:
        raise ValueError(f"{what}: expected one tensor, got {len(tensors)}")
    tensor = check_memory(tensors[0])
    if not tensor.is_contiguous():
        raise ValueError(f"{what}: expected one contiguous tensor; call contiguous() on it")
    return tensor
