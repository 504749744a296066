"""Dumps of torch's own flight recorder, of any backend, as histories.

Read from torch 2.13's ``_dump_fr_trace`` and ``_dump_fr_trace_json``. With gloo ``pg_config`` has
one nameless group while entries name theirs, ``state`` stays ``scheduled`` and no completion time
is written; ``retired`` and ``pg_status`` then tell what is over, well or not: a call that failed
counts as one that completed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torchyard_collectives.flight._errors import FlightDumpError
from torchyard_collectives.flight._history import (
    Frame,
    Group,
    RankHistory,
    Record,
    State,
    TensorSpec,
)

__all__ = ["from_torch", "looks_like_torch"]

_MOST_ENTRIES: Final = 200_000
_MOST_FRAMES: Final = 16
_MOST_SPECS: Final = 4_000_000
_LONGEST: Final = 4096
_INTERNAL: Final = re.compile(r"[/\\](torch|torch_npu)[/\\]|^<frozen|c10d_logger\.py$")
_PEERS: Final = re.compile(r"(\d+)\s*(?:->|<-)\s*(\d+)")
_OPS: Final = {
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "all_to_all_base": "all_to_all_single",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
}
_DTYPES: Final = {
    "Bool": "bool",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "ComplexDouble": "complex128",
    "ComplexFloat": "complex64",
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
}


def looks_like_torch(data: object) -> bool:
    """Whether parsed data is a dump of torch's recorder."""
    return isinstance(data, dict) and "entries" in data and "pg_config" in data


def from_torch(data: object, rank: int, source: str) -> RankHistory:
    """Return the history in a dump of torch's recorder.

    Args:
        data: what the pickle or the JSON holds.
        rank: the global rank, which the dump itself does not say.
        source: the file's name, for errors.

    Groups whose ranks the dump does not tell have none; the reader of the whole folder adds them.
    """
    try:
        return _Dump(data, rank, source).history()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, FlightDumpError):
            raise
        raise FlightDumpError(
            f"{source}: expected a dump of torch's flight recorder, got a damaged one: "
            f"{type(error).__name__}: {str(error)[:200]}"
        ) from error


class _Dump:
    """One dump while it is read."""

    def __init__(self, data: Any, rank: int, source: str) -> None:
        version = _text(data["version"])
        if version.partition(".")[0] != "2":
            raise FlightDumpError(
                f"{source}: version: expected torch's flight recorder 2.x, got {version[:40]!r}"
            )
        self._entries = data["entries"]
        if not isinstance(self._entries, list) or len(self._entries) > _MOST_ENTRIES:
            raise FlightDumpError(
                f"{source}: entries: expected a list of at most {_MOST_ENTRIES} calls"
            )
        self._rank = rank
        self._source = source
        self._specs_left = _MOST_SPECS
        self._frames: dict[int, tuple[Frame, ...]] = {}
        self._ranks = dict(self._configured(data["pg_config"]))
        self._status = dict(self._statuses(data.get("pg_status") or {}))

    def history(self) -> RankHistory:
        names = {_text(entry["process_group"][0]): entry for entry in self._entries}
        groups = {}
        for name, entry in names.items():
            description = _text(entry["process_group"][1])
            ranks = self._ranks.get(name, ())
            if not ranks and description in ("default_pg", ""):
                ranks = self._ranks.get("", ())
            backend = _text(entry["profiling_name"]).partition(":")[0]
            enqueued = self._status.get(str(entry.get("pg_id", name)), (0, 0))[0]
            groups[name] = Group(name, ranks, description, backend, enqueued)
        records = tuple(self._records())
        world = [max(ranks) + 1 for ranks in self._ranks.values() if ranks]
        first = self._entries[0]["record_id"] if self._entries else 0
        return RankHistory(
            self._rank,
            max([*world, self._rank + 1]),
            groups,
            records,
            reason="torch's flight recorder",
            dropped=_number(first),
            source=self._source,
        )

    def _configured(self, config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
        for name, group in config.items():
            ranks = group["ranks"]
            if isinstance(ranks, str):
                ranks = json.loads(ranks[: 1 << 22])
            yield _text(name), tuple(_number(rank) for rank in ranks)

    def _statuses(self, status: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, int]]]:
        for name, one in status.items():
            yield (
                str(name),
                (
                    _count(one.get("last_enqueued_collective", 0)),
                    _count(one.get("last_completed_collective", 0)),
                ),
            )

    def _records(self) -> Iterator[Record]:
        sent: Counter[tuple[str, str, int | None]] = Counter()
        together: dict[tuple[str, int], list[Any]] = {}
        for entry in self._entries:
            if entry["is_p2p"]:
                yield self._message(entry, sent)
            else:
                key = (_text(entry["process_group"][0]), _number(entry["collective_seq_id"]))
                together.setdefault(key, []).append(entry)
        for (group, number), entries in together.items():
            yield self._collective(group, number, entries)

    def _collective(self, group: str, number: int, entries: list[Any]) -> Record:
        """Make one record of the calls that share a number, which torch has coalesced."""
        ops = [_op(entry) for entry in entries]
        states = [self._state(entry) for entry in entries]
        last = entries[-1]
        over = all(state is State.COMPLETED for state in states)
        return Record(
            group=group,
            sequence=max(number - 1, 0),
            op=ops[0] if len(ops) == 1 else f"coalesced {', '.join(ops)}",
            inputs=tuple(spec for entry in entries for spec in self._specs(entry, "input")),
            outputs=tuple(spec for entry in entries for spec in self._specs(entry, "output")),
            site=self._site(last),
            entered=_number(entries[0]["time_created_ns"]),
            started=_time(last.get("time_discovered_started_ns")),
            completed=_time(last.get("time_discovered_completed_ns")),
            state=State.COMPLETED if over else min(states, key=list(State).index),
        )

    def _message(self, entry: Any, sent: Counter[tuple[str, str, int | None]]) -> Record:
        name = _text(entry["profiling_name"])
        found = _PEERS.search(name)
        group = _text(entry["process_group"][0])
        ranks = self._ranks.get(group, ()) or self._ranks.get("", ())
        peer = int(found[2]) if found else -1
        if 0 <= peer < len(ranks):
            peer = ranks[peer]
        op = "send" if "send" in name else "recv"
        key = (group, op, peer)
        sent[key] += 1
        return Record(
            group=group,
            sequence=sent[key] - 1,
            op=op,
            inputs=self._specs(entry, "input"),
            outputs=self._specs(entry, "output"),
            peer=peer,
            site=self._site(entry),
            entered=_number(entry["time_created_ns"]),
            completed=_time(entry.get("time_discovered_completed_ns")),
            state=self._state(entry),
        )

    def _state(self, entry: Any) -> State:
        done = self._status.get(str(entry.get("pg_id", "")), (0, 0))[1]
        counted = not entry["is_p2p"] and _number(entry["collective_seq_id"]) <= done
        if entry["state"] == "completed" or entry.get("retired") is True or counted:
            return State.COMPLETED
        return State.STARTED

    def _specs(self, entry: Any, side: str) -> tuple[TensorSpec, ...]:
        sizes, dtypes = entry[f"{side}_sizes"], entry[f"{side}_dtypes"]
        self._specs_left -= sum(len(shape) + 1 for shape in sizes)
        if self._specs_left < 0:
            raise FlightDumpError(
                f"{self._source}: expected at most {_MOST_SPECS} sizes in all, got more"
            )
        names = [_DTYPES.get(_text(name), _text(name)) for name in dtypes[: len(sizes)]]
        names += [""] * (len(sizes) - len(names))
        return tuple(
            TensorSpec(tuple(_number(extent) for extent in shape), name)
            for shape, name in zip(sizes, names, strict=True)
        )

    def _site(self, entry: Any) -> tuple[Frame, ...]:
        frames = entry.get("frames") or []
        # Many entries may share one list.
        if id(frames) not in self._frames:
            kept: list[Frame] = []
            for frame in frames[:256]:
                file = _text(frame["filename"])
                if not _INTERNAL.search(file) and len(kept) < _MOST_FRAMES:
                    kept.append(Frame(file, _number(frame["line"]), _text(frame["name"])))
            self._frames[id(frames)] = tuple(kept)
        return self._frames[id(frames)]


def _op(entry: Any) -> str:
    name = _text(entry["profiling_name"]).rpartition(":")[2].lower()
    return _OPS.get(name, name)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {type(value).__name__}")
    return value[:_LONGEST]


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 1 << 63:
        raise TypeError(f"expected an integer of 64 bits, got {type(value).__name__}")
    return value


def _count(value: object) -> int:
    """Return a count that torch writes as a number, or in JSON as a text; -1 means none."""
    if isinstance(value, str):
        value = int(value[:20])
    return max(_number(value), 0)


def _time(value: object) -> int | None:
    return None if value is None else _number(value) or None
