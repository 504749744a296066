"""What a model needs to train on a device: a compiler, collectives and a lower precision."""

from __future__ import annotations

from torchyard_conformance import Subject, law
from torchyard_conformance._laws.device._tried import devices, try_check


@law("device.compile", profiles=("device",), cases=devices)
def test_a_block_is_compiled(subject: Subject, case: str) -> None:
    """torch.compile's default backend generates kernels for the device, and they are right.

    A transformer block, forward and backward, is compiled whole, and its output and gradients are
    compared with those of the CPU.

    Why: `torch.compile(model)` is the line that users write. A device that runs the graph's
    operators one by one instead hides that it has no compiler.

    Fix: register a DeviceInterface with Dynamo, and with Inductor a scheduling, a wrapper and the
    device's operations: `compilation.py` of the template has them for kernels of the host, and
    `plugins/simulated` in torchyard's tree for work of a stream.
    """
    try_check(subject, "compile", case)


@law("device.collectives", profiles=("device",), cases=devices, alone=True)
def test_ranks_exchange_tensors(subject: Subject, case: str) -> None:
    """Two processes exchange tensors of the device, and train as one process does.

    Under DDP, FSDP2 and the tensor parallelism of DTensor. The backend is the one that
    torch.distributed takes for the device. Under FSDP2, parameters after a step are compared as
    well as gradients.

    Why: a model that outgrows one device needs nothing else of a plugin, and averages that are
    wrong train on without an error.

    Fix: `torch.distributed.Backend.register_backend(..., devices=[...])`, when the device is
    loaded; broadcasts, sums, gathers and scattered sums are the least. FSDP2 asks the device's
    module for streams and events, and frees and regrows storages: ``Stream``, ``Event``,
    ``stream``, ``current_stream``, ``set_device``, ``is_initialized``. DTensor scatters, and
    gathers and sums lists of tensors: in a group in Python ``scatter``,
    ``all_gather_single_coalesced`` and ``reduce_scatter_single_coalesced``.
    """
    try_check(subject, "collectives", case)


@law("device.autocast", profiles=("device",), cases=devices)
def test_autocast_lowers_and_keeps(subject: Subject, case: str) -> None:
    """Under torch.autocast matrix products are in bfloat16, and what needs float32 stays there.

    Why: mixed precision is the default of training loops; one that lowers a sum diverges late.

    Fix: a fallthrough for AutocastPrivateUse1, torch's lists of operators on top of it, and
    `get_amp_supported_dtype` in the device module.
    """
    try_check(subject, "autocast", case)
