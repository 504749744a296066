"""Streams and events of a device."""

from __future__ import annotations

from torchyard_conformance import Subject, law
from torchyard_conformance._laws.device._tried import devices, try_check


@law("device.events", profiles=("device",), cases=devices)
def test_events_tell_when_work_is_done(subject: Subject, case: str) -> None:
    """An event is over once the work before it is, and two events tell the time between them.

    Why: whoever measures a kernel, overlaps copies, or shards a model waits for events; one that is
    over too early hands out memory that is still being written.

    Fix: `record`, `block`, `queryEvent`, `synchronizeEvent`, `destroyEvent` and `elapsedTime` of
    the device's guard.
    """
    try_check(subject, "events", case)
