"""The interface of a case: what laws need to run an implementation on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchyard import ContractId, Request, registry
from torchyard_conformance._kernels._tensors import laid, mapped, named
from torchyard_conformance._outcome import unverified
from torchyard_conformance._torch_compat import fake_tensor_mode

__all__ = ["Case", "Given", "forms", "implementation", "named_cases"]

Given = tuple[Any, ...]
"""What an implementation is called with."""


@dataclass(frozen=True)
class Case(ABC):
    """One call of a contract, by sizes and words.

    Attributes:
        name: stable and readable.
        layout: the inputs' memory layout, see ``_tensors.laid``.
    """

    name: str
    layout: str = "contiguous"

    contract: ClassVar[str]
    # The dimension that batch entries lie in, by the last word of a tensor's path, of inputs and
    # of outputs; a tensor that is not named belongs to all entries.
    batch: ClassVar[Mapping[str, int]] = {}
    # Tensors that a contract wants contiguous.
    fixed: ClassVar[frozenset[str]] = frozenset()
    # Tensors that are no input of a derivative, by path or last word.
    constant: ClassVar[frozenset[str]] = frozenset({"tensors"})
    # Whether the contract says that results are contiguous.
    contiguous: ClassVar[bool] = True

    @abstractmethod
    def make(self) -> Given:
        """Return contiguous tensors on the CPU; the same ones for the same case."""

    @abstractmethod
    def request(self, given: Given) -> Request:
        """Describe a call, from sizes and dtypes alone."""

    @abstractmethod
    def exact(self, given: Given) -> dict[str, Tensor]:
        """Return the outputs of the contract's reference: in float64, or equal elements."""

    def naive(self, given: Given) -> dict[str, Tensor] | None:
        """Return a naive computation in the inputs' dtype; None: outputs must be equal."""
        return None

    @abstractmethod
    def public(self, given: Given) -> Any:
        """Call the component's op, which has a rule for fake tensors."""

    def named_outputs(self, result: Any) -> dict[str, Tensor]:
        """Return a result's tensors by name."""
        return {name or "out": tensor for name, tensor in named(result)}

    def given(self, device: str = "cpu") -> Given:
        """Return the call's tensors on a device, in its layout."""

        def place(path: str, tensor: Tensor) -> Tensor:
            word = last_word(path)
            if word == "lengths":
                return tensor
            return laid(tensor.to(device), "contiguous" if word in self.fixed else self.layout)

        found: Given = mapped(self.make(), place)
        return found


def last_word(path: str) -> str:
    """Return the name of what a path leads to, or leads to an item of."""
    return path.rpartition(".")[2].partition("[")[0]


def forms(case: Case, given: Given) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Return shapes and dtypes of the outputs, as the component tells torch.compile."""
    with fake_tensor_mode() as mode:
        fake = mapped(given, lambda _, tensor: mode.from_tensor(tensor))
        return [(tuple(tensor.shape), tensor.dtype) for _, tensor in named(case.public(fake))]


def implementation(contract: str, name: str) -> Any:
    """Return the component's own implementation, such as a contract's reference; loads it once.

    Raises:
        Unverified: it is not there.
    """
    return _implementation(contract, name)


@lru_cache(maxsize=16)
def _implementation(contract: str, name: str) -> Any:
    offered, _ = registry().implementations(ContractId.parse(contract), "cpu")
    for item in offered:
        if item.name == name:
            return item.load()
    unverified(f"{contract}: {name} is not installed")


def named_cases(*cases: Case) -> dict[str, Case]:
    """Return cases by name."""
    found = {case.name: case for case in cases}
    assert len(found) == len(cases), "two cases have one name"
    return found
