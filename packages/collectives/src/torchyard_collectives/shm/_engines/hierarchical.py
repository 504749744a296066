"""The engine of a group whose ranks are on several hosts, which gloo bridges.

``all_reduce`` reduces on each host first, so that a byte crosses the network once for a host and
not for a rank: each rank of a host reduces a part there, then with the ranks of the same place on
other hosts, and the host's ranks gather the parts. Hosts with different numbers of ranks let their
first rank do it all. Everything else goes through one gloo group of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from torchyard_collectives._torch_compat import PrefixStore, Store, c10d
from torchyard_collectives.contract import SharedMemory
from torchyard_collectives.shm._engines.local import LocalEngine
from torchyard_collectives.shm._errors import RankLostError, RankTimeoutError, SharedMemoryError
from torchyard_collectives.shm._rendezvous.neighbours import Member, Neighbours

__all__ = ["HierarchicalEngine"]

# gloo's operations by an engine's numbers; an average is a sum that is divided at the end.
_OPERATIONS: Final = (
    ReduceOp.SUM,
    ReduceOp.SUM,
    ReduceOp.PRODUCT,
    ReduceOp.MIN,
    ReduceOp.MAX,
    ReduceOp.BAND,
    ReduceOp.BOR,
    ReduceOp.BXOR,
)
_SUM: Final = 0
_AVERAGE: Final = 1
# What gloo reduces. Booleans, as bytes of 0 and 1: any, all and exclusive or.
_REDUCED: Final = frozenset(
    {
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
        *(torch.int8, torch.uint8, torch.int32, torch.int64),
    }
)
_TRUTHS: Final = {0: 4, 2: 3, 3: 3, 4: 4, 5: 3, 6: 4, 7: 7}
# Milliseconds that ranks of a host wait longer for one another than one of them for another host:
# it can tell whose fault it was.
_GRACE: Final = 2000
# What gloo says, in part, when the time was up; everything else means that a peer is gone.
_LATE: Final = ("timed out", "timeout")


class _Waitable(Protocol):
    def wait(self) -> object: ...


class HierarchicalEngine:
    """Collectives over hosts. Arguments as for :class:`LocalEngine`, and where the members are."""

    def __init__(
        self,
        store: Store,
        memory: SharedMemory,
        neighbours: Neighbours,
        rank: int,
        name: str,
        timeout: timedelta,
    ) -> None:
        hosts, own = neighbours.hosts, neighbours.own
        self._hosts = hosts
        self._own = own
        self._rank = rank
        self._name = name
        self._ranks = sum(map(len, hosts))
        self._place = next(i for i, member in enumerate(hosts[own]) if member.rank == rank)
        self._even = len({len(host) for host in hosts}) == 1
        local = PrefixStore(f"host/{own}/", store)
        self._local = LocalEngine(local, memory, hosts[own], rank, name, timeout)
        self._all = self._bridged(
            "making the group",
            self._gloo,
            PrefixStore("all/", store),
            rank,
            self._ranks,
            timeout,
        )
        self._bridge: Any = None
        if self._even or self._place == 0:
            bridge = PrefixStore(f"bridge/{self._place}/", store)
            self._bridge = self._bridged(
                "making the group", self._gloo, bridge, own, len(hosts), timeout
            )

    @staticmethod
    def _gloo(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
        return c10d.ProcessGroupGloo(store, rank, size, timeout=timeout)

    def _bridged(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call something of gloo's; its errors tell which ranks it waited for."""
        try:
            return call(*arguments)
        except SharedMemoryError:
            raise
        except RuntimeError as error:
            told = self._explained(what, error)
            # Ranks of this host that wait for this one must not wait for their time to pass.
            self._local.leave(told)
            raise told from error

    def _explained(self, what: str, error: RuntimeError) -> SharedMemoryError:
        others = [m for i, host in enumerate(self._hosts) if i != self._own for m in host]
        ranks = [member.global_rank for member in others]
        where = "another host" if len(self._hosts) == 2 else "other hosts"
        text = f"{what} in group {self._name!r}: {_named(others)} on {where}"
        said = (str(error).splitlines() or [type(error).__name__])[0]
        if any(word in str(error).lower() for word in _LATE):
            return RankTimeoutError(
                f"{text} did not come within the timeout; look at that host and the network "
                f"between, or raise the timeout (gloo: {said})",
                ranks,
            )
        return RankLostError(
            f"{text} can no longer be reached; start the job again (gloo: {said})", ranks
        )

    def _finish(self, what: str, start: Callable[[], _Waitable]) -> None:
        self._bridged(what, lambda: start().wait())

    def all_reduce(self, tensor: Tensor, operation: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        if tensor.dtype is torch.bool and operation in _TRUTHS:
            self.all_reduce(tensor.view(torch.uint8), _TRUTHS[operation], milliseconds)
            return
        if tensor.dtype not in _REDUCED:
            raise TypeError(
                f"all_reduce: operation {operation} of {tensor.dtype} is not defined between hosts"
            )
        inner = _SUM if operation == _AVERAGE else operation
        whole = tensor.detach().view(-1)
        if self._even:
            parts = whole.tensor_split(len(self._hosts[self._own]))
            mine = torch.empty_like(parts[self._place])
            self._local.reduce_scatter(mine, parts, inner, milliseconds)
            self._cross(mine, operation, milliseconds)
            self._local.all_gather(parts, mine, milliseconds + _GRACE)
            return
        self._local.reduce(whole, inner, 0, milliseconds)
        if self._place == 0:
            self._cross(whole, operation, milliseconds)
        self._local.broadcast(whole, 0, milliseconds + _GRACE)

    def _cross(self, part: Tensor, operation: int, milliseconds: int) -> None:
        """Reduce a part of a host's result with the other hosts', in place."""
        if not part.numel():
            return
        options = c10d.AllreduceOptions()
        options.reduceOp = ReduceOp(_OPERATIONS[operation])
        options.timeout = timedelta(milliseconds=milliseconds)
        self._finish("all_reduce", lambda: self._bridge.allreduce([part], options))
        if operation == _AVERAGE:
            part.copy_(
                torch.div(
                    part, self._ranks, rounding_mode=None if part.is_floating_point() else "trunc"
                )
            )

    def reduce(self, tensor: Tensor, operation: int, root: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        result = tensor.clone()
        self.all_reduce(result, operation, milliseconds)
        if self._rank == root:
            tensor.copy_(result)

    def reduce_scatter(
        self, out: Tensor, sources: Sequence[Tensor], operation: int, milliseconds: int
    ) -> None:
        """See :class:`Engine`."""
        whole = torch.cat([source.detach().reshape(-1) for source in sources])
        self.all_reduce(whole, operation, milliseconds)
        parts = torch.split(whole, [source.numel() for source in sources])
        out.detach().view(-1).copy_(parts[self._rank])

    def all_gather(self, outs: Sequence[Tensor], tensor: Tensor, milliseconds: int) -> None:
        """See :class:`Engine`."""
        self.all_to_all(outs, [tensor] * self._ranks, milliseconds)

    def broadcast(self, tensor: Tensor, root: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        options = c10d.BroadcastOptions()
        options.rootRank = root
        options.timeout = timedelta(milliseconds=milliseconds)
        self._finish("broadcast", lambda: self._all.broadcast([_bytes(tensor)], options))

    def gather(self, outs: Sequence[Tensor], tensor: Tensor, root: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        nothing = tensor.new_empty(0)
        sources = [tensor if rank == root else nothing for rank in range(self._ranks)]
        self.all_to_all(outs or [nothing] * self._ranks, sources, milliseconds)

    def scatter(self, out: Tensor, sources: Sequence[Tensor], root: int, milliseconds: int) -> None:
        """See :class:`Engine`."""
        nothing = out.new_empty(0)
        outs = [out if rank == root else nothing for rank in range(self._ranks)]
        self.all_to_all(outs, sources or [nothing] * self._ranks, milliseconds)

    def all_to_all(
        self, outs: Sequence[Tensor], sources: Sequence[Tensor], milliseconds: int
    ) -> None:
        """See :class:`Engine`."""
        targets, pieces = [_bytes(out) for out in outs], [_bytes(source) for source in sources]
        arrived = torch.empty(sum(target.numel() for target in targets), dtype=torch.uint8)
        options = c10d.AllToAllOptions()
        options.timeout = timedelta(milliseconds=milliseconds)
        self._finish(
            "all_to_all",
            lambda: self._all.alltoall_base(
                arrived,
                torch.cat(pieces),
                [target.numel() for target in targets],
                [piece.numel() for piece in pieces],
                options,
            ),
        )
        for target, part in zip(
            targets, torch.split(arrived, [target.numel() for target in targets]), strict=True
        ):
            target.copy_(part)

    def barrier(self, milliseconds: int) -> None:
        """See :class:`Engine`."""
        options = c10d.BarrierOptions()
        options.timeout = timedelta(milliseconds=milliseconds)
        self._local.barrier(milliseconds)
        self._finish("barrier", lambda: self._all.barrier(options))

    def send(self, tensor: Tensor, rank: int, tag: int) -> _BridgedMessage:
        """See :class:`Engine`."""
        return _BridgedMessage(self, "send", self._all.send([_bytes(tensor)], rank, tag), rank)

    def receive(self, tensor: Tensor, rank: int, tag: int) -> _BridgedMessage:
        """See :class:`Engine`."""
        data = [_bytes(tensor)]
        work = self._all.recv_anysource(data, tag) if rank < 0 else self._all.recv(data, rank, tag)
        return _BridgedMessage(self, "recv", work, rank)

    def leave(self, error: SharedMemoryError | None = None) -> None:
        """See :class:`Engine`."""
        self._local.leave(error)

    def describe(self) -> dict[str, Any]:
        """See :class:`Engine`."""
        return {
            "hosts": [[member.global_rank for member in host] for host in self._hosts],
            "bridge": "gloo",
        }


class _BridgedMessage:
    def __init__(self, engine: HierarchicalEngine, what: str, work: Any, other: int) -> None:
        self._engine = engine
        self._what = what
        self._work = work
        self._other = other

    def look(self) -> int | None:
        """See :class:`Message`."""
        return self.wait(0) if self._work.is_completed() else None

    def wait(self, milliseconds: int) -> int:
        """See :class:`Message`."""
        limit = timedelta(milliseconds=milliseconds)
        wait = self._work.wait if milliseconds == 0 else lambda: self._work.wait(limit)
        self._engine._bridged(self._what, wait)
        return self._other if self._other >= 0 else int(self._work._source_rank())


def _bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's memory as bytes, which gloo moves whatever they mean."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _named(members: Iterable[Member]) -> str:
    names = [str(member.global_rank) for member in members]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"
