"""Endings caused by a fault elsewhere, removed before the analysis.

Once one rank has failed, the launcher ends the others with SIGTERM; and a rank whose call timed
out, or lost its peer, ends with that call's exception. Neither is why the job stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from torchyard_collectives.flight._analysis.clocks import Clocks
from torchyard_collectives.flight._history import (
    Ending,
    EndingKind,
    RankHistory,
    Record,
    State,
)

__all__ = ["with_failed_calls", "without_orders_to_end"]

# How the backends' own errors are told from the program's: their classes and their sources.
_OF_BACKENDS: Final = (
    "torchyard_collectives.shm._errors.",
    "torch.distributed.Dist",
    "torch.distributed.distributed_c10d.",
    "gloo/",
    "ProcessGroup",
)
_ABNORMAL: Final = (EndingKind.EXCEPTION, EndingKind.SIGNAL, EndingKind.GONE)


def with_failed_calls(histories: Mapping[int, RankHistory]) -> dict[int, RankHistory]:
    """Return the histories with a call as failed whose backend's error ended the process.

    A handle that keeps its error for whoever waits counts as over when its caller comes back, also
    where it came back with that error.
    """
    return {rank: _with_failed_call(history) for rank, history in histories.items()}


def _with_failed_call(history: RankHistory) -> RankHistory:
    ending = history.ending
    if ending.kind is not EndingKind.EXCEPTION or not ending.site or not history.records:
        return history
    if not any(word in ending.text for word in _OF_BACKENDS):
        return history
    last = history.records[-1]
    if not last.site or last.site[0].place != ending.site[0].place or last.error:
        return history
    failed = replace(last, state=State.FAILED, error=ending.text)
    return replace(history, records=(*history.records[:-1], failed))


def without_orders_to_end(
    histories: Mapping[int, RankHistory], gone: Mapping[int, str], clocks: Clocks, patience: int
) -> dict[int, RankHistory]:
    """Return the histories with ranks as running that SIGTERM ended after the job had failed.

    Args:
        histories: by rank.
        gone: ranks without a dump whose process is known to have ended.
        clocks: the common clock.
        patience: nanoseconds that a rank may wait before that is a fault.
    """
    found = dict(histories)
    for rank, history in histories.items():
        if history.ending.kind is not EndingKind.SIGNAL or history.ending.text != "SIGTERM":
            continue
        if history.dumped is None:
            continue
        ended = clocks.time(rank, history.dumped)
        others = [(other, seen) for other, seen in histories.items() if other != rank]
        told = bool(gone) or any(
            _failed_before(other, seen, ended, clocks)
            or _waits_long(other, seen, ended - patience, clocks)
            for other, seen in others
        )
        if told or _outstanding(history, history.dumped - patience):
            found[rank] = replace(history, ending=Ending())
    return found


def _failed_before(rank: int, history: RankHistory, when: int, clocks: Clocks) -> bool:
    if history.ending.kind not in _ABNORMAL or history.ending.text == "SIGTERM":
        return False
    return history.dumped is None or clocks.time(rank, history.dumped) <= when


def _waits_long(rank: int, history: RankHistory, since: int, clocks: Clocks) -> bool:
    return any(
        _is_waiting(record) and clocks.time(rank, record.entered) <= since
        for record in history.records
    )


def _outstanding(history: RankHistory, since: int) -> bool:
    return any(_is_waiting(record) and record.entered <= since for record in history.records)


def _is_waiting(record: Record) -> bool:
    return record.state.outstanding or record.state is State.FAILED
