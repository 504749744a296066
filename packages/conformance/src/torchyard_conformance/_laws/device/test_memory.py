"""Memory of a device: pinned on the host, saved, and recorded in graphs."""

from __future__ import annotations

from torchyard_conformance import Subject, law
from torchyard_conformance._laws.device._tried import devices, try_check


@law("device.pinned-memory", profiles=("device",), cases=devices)
def test_pinned_memory_is_told_and_copied(subject: Subject, case: str) -> None:
    """Host memory that was pinned says so, plain memory does not, and copies that do not wait hold.

    Why: data loaders pin what they load; a copy that is late, or memory that only claims to be
    pinned, gives batches of other values.

    Fix: a host allocator with `isPinnedPtr` in the hooks, and copies that wait unless the host side
    is pinned.
    """
    try_check(subject, "pinned", case)


@law("device.serialisation", profiles=("device",), cases=devices)
def test_tensors_are_saved_and_loaded(subject: Subject, case: str) -> None:
    """A saved tensor comes back on its device, or on the CPU, with its strides and its sharing.

    Why: a checkpoint that loads elsewhere, or unties weights, is noticed when it is needed.

    Fix: set_ of storages with sizes and strides, and the generated methods of the device
    (`torch.utils.generate_methods_for_privateuse1_backend`).
    """
    try_check(subject, "serialisation", case)


@law("device.graphs", profiles=("device",), cases=devices)
def test_a_graph_is_captured_and_replayed(subject: Subject, case: str) -> None:
    """A captured graph changes nothing until it is replayed, and each replay reads new inputs.

    Why: loops that are replayed have no other check of what they compute.

    Fix: an implementation in `at::GraphImplRegistry`, under the device's name in capitals; and each
    kernel of the device's own reports its calls to it, or refuses them while a graph is captured.
    """
    try_check(subject, "graphs", case)
