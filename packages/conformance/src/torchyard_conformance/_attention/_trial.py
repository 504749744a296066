"""A plugin's implementations as cases of attention's laws. torch is imported when a law runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from torchyard_conformance._outcome import Unverified
from torchyard_conformance._trials._trial import Trial

if TYPE_CHECKING:
    from torchyard_conformance._attention._kernel import Kernel
    from torchyard_conformance._subjects._subject import Subject

__all__ = ["trials"]

_HALVES: Final[Mapping[str, str]] = {"attention/1": "forward", "attention_backward/1": "backward"}


def trials(law: str) -> Callable[[Subject], Mapping[str, Trial]]:
    """Return a function from a plugin to a law's trials.

    Their ids are ``implementation@device/half``, and ``/call`` where the law has calls.
    """

    def found(subject: Subject) -> Mapping[str, Trial]:
        if not {*_HALVES} & {*subject.contracts}:
            return {}
        try:
            return _found(law, subject)
        except (ImportError, Unverified) as error:
            return {"unavailable": Trial(None, str(error))}

    return found


def _found(law: str, subject: Subject) -> Mapping[str, Trial]:
    from torchyard_conformance._attention._laws import LAWS, judge

    held = LAWS[law]
    cases = {}
    for device in subject.devices:
        absence = subject.absence(device)
        for contract, half in _HALVES.items():
            for kernel in _kernels(subject, contract, device):
                if not held.of(kernel):
                    continue
                for call in held.case_names(quick=subject.quick):
                    words = [f"{kernel.name}@{device}", half, *([call] if call else ())]
                    cases["/".join(words)] = Trial(partial(judge, held, kernel, call), absence)
    return cases


def _kernels(subject: Subject, contract: str, device: str) -> list[Kernel]:
    import torch

    from torchyard_attention.contract import FORWARD
    from torchyard_conformance._attention._kernel import Kernel

    count = torch.get_num_threads()
    forwards = {item.name: item for item in subject.implementations(FORWARD, device)}
    return [
        Kernel(item, device, forward=forwards.get(item.name), threads=count)
        for item in subject.implementations(contract, device)
    ]
