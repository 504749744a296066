"""Kernels compile for the architectures that a plugin names, where no device is at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchyard import Compilation
from torchyard_conformance import Subject, law, unverified, violated

_Record = Callable[[str, float | str], None]
# As the cases of other laws name them, which is what a certificate proves of features.
_HALVES = {"attention": "forward", "attention_backward": "backward"}


def _kernels(subject: Subject) -> Mapping[str, Compilation]:
    """Return each kernel by ``implementation@device/half/architecture/name``."""
    found: dict[str, Compilation] = {}
    for device in subject.devices:
        for contract in subject.contracts:
            op = contract.partition("/")[0]
            for item in subject.implementations(contract, device):
                for kernel in item.compilations() if item.compilations is not None else ():
                    where = f"{item.name}@{device}/{_HALVES.get(op, op)}/{kernel.architecture}"
                    if found.setdefault(f"{where}/{kernel.name}", kernel) is not kernel:
                        raise ValueError(f"{where}: expected each name once, got {kernel.name!r}")
    return found


@law("compilation.kernels-compile", profiles=("compiled",), cases=_kernels)
def test_a_kernel_compiles(subject: Subject, case: Compilation, record: _Record) -> None:
    """Each kernel compiles for each architecture, and its code is what the plugin says it is.

    What `Implementation.compilations` names is compiled with nothing but the compiler: neither the
    device nor its driver. The figures are the plugin's, such as registers and shared memory.

    Why: without the device nothing else can be shown of a kernel, and one that does not compile, or
    needs more than the architecture has, fails for the first user who has it.

    Fix: the text is the compiler's own, or names the limit; a smaller tile needs fewer registers
    and less shared memory.
    """
    if missing := case.missing():
        unverified(missing)
    try:
        figures = case.run()
    except Exception as error:
        violated(f"expected {case.name} to compile for {case.architecture}, got {error}")
    for name, value in figures.items():
        record(name, value)
