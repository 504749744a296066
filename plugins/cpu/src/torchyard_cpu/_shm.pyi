# Groups of processes that share memory: torchyard_collectives.contract.SharedMemory, natively.
# Addresses are not checked: whoever calls answers for them.

from typing import TypeAlias

MAX_RANKS: int

_Failure: TypeAlias = tuple[int, int, int, int, int, int, int, int]

def make_segment(ranks: int, /) -> int: ...
def start_time(pid: int, /) -> int: ...
def join(file: int, rank: int, pids: tuple[int, ...], starts: tuple[int, ...], /) -> object: ...
def meet(group: object, milliseconds: int, /) -> _Failure | None: ...
def leave(group: object, note: str, /) -> None: ...
def note(group: object, rank: int, /) -> str: ...
def reduces(dtype: int, operation: int, /) -> bool: ...
def all_reduce(
    group: object,
    source: int,
    out: int,
    count: int,
    dtype: int,
    operation: int,
    milliseconds: int,
    /,
) -> _Failure | None: ...
def reduce(
    group: object,
    source: int,
    out: int,
    count: int,
    dtype: int,
    operation: int,
    root: int,
    milliseconds: int,
    /,
) -> _Failure | None: ...
def reduce_scatter(
    group: object,
    sources: tuple[int, ...],
    out: int,
    counts: tuple[int, ...],
    dtype: int,
    operation: int,
    milliseconds: int,
    /,
) -> _Failure | None: ...
def move(
    group: object,
    kind: int,
    root: int,
    size: int,
    outgoing: tuple[int, ...],
    incoming: tuple[int, ...],
    milliseconds: int,
    /,
) -> _Failure | None: ...
def barrier(group: object, milliseconds: int, /) -> _Failure | None: ...
def send(group: object, rank: int, tag: int, data: int, size: int, /) -> int: ...
def receive(group: object, rank: int, tag: int, data: int, size: int, /) -> int: ...
def look(group: object, number: int, /) -> tuple[int, _Failure | None] | None: ...
def wait(group: object, number: int, milliseconds: int, /) -> tuple[int, _Failure | None]: ...
