"""A plugin's implementations as cases of the kernels' laws. torch is imported when a law runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from torchyard_conformance._outcome import Unverified
from torchyard_conformance._trials._trial import Trial

if TYPE_CHECKING:
    from torchyard_conformance._subjects._subject import Subject

__all__ = ["trials"]

_CONTRACTS: Final = ("linear/1", "pointwise/1", "recurrent/1", "recurrent_backward/1", "topk/1")


def trials(law: str) -> Callable[[Subject], Mapping[str, Trial]]:
    """Return a function from a plugin to a law's trials.

    Their ids are ``implementation@device/op``, and ``/call`` where the law is held on each call.
    """

    def found(subject: Subject) -> Mapping[str, Trial]:
        contracts = [name for name in _CONTRACTS if name in subject.contracts]
        if not contracts:
            return {}
        # Asked first: a plugin whose modules need the component would be marked as failed.
        if find_spec("torchyard_kernels") is None:
            return {"unavailable": Trial(None, "torchyard-kernels is not installed")}
        try:
            return _found(law, subject, contracts)
        except (ImportError, Unverified) as error:
            return {"unavailable": Trial(None, str(error))}

    return found


def _found(law: str, subject: Subject, contracts: Sequence[str]) -> Mapping[str, Trial]:
    import torch

    from torchyard_conformance._kernels._kernel import Kernel
    from torchyard_conformance._kernels._laws import LAWS, judge

    held = LAWS[law]
    cases = {}
    for device in subject.devices:
        absence = subject.absence(device)
        for contract in contracts:
            names = list(held.case_names(contract, quick=subject.quick))
            if not names:
                continue
            for item in subject.implementations(contract, device):
                kernel = Kernel(item, device, threads=torch.get_num_threads())
                for call in names:
                    words = [f"{kernel.name}@{device}", contract.partition("/")[0]]
                    cases["/".join([*words, *([call] if call else ())])] = Trial(
                        partial(judge, held, kernel, call), absence
                    )
    return cases
