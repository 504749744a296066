"""Laws of bitwise equality: repeated calls, other rows of a batch, uninitialised memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from torchyard import Claim
from torchyard_conformance._kernels._case import Case, last_word
from torchyard_conformance._kernels._kernel import Kernel
from torchyard_conformance._kernels._ruler import compare
from torchyard_conformance._kernels._tensors import mapped, same_bits
from torchyard_conformance._outcome import NotSupported, Violated

__all__ = ["is_batch_invariant", "is_deterministic", "reads_no_fresh_memory"]

_THREADS: Final = (1, 2, 3, 5)
# Elements of float32: what small and large scratch memory takes; beyond, it comes as zeros.
_SIZES: Final = tuple(1 << power for power in range(3, 18))


def is_deterministic(kernel: Kernel, case: Case) -> dict[str, float]:
    """Compare the bits of repeated calls, with several numbers of threads."""
    if not kernel.claims(Claim.DETERMINISTIC):
        raise NotSupported(f"{kernel.name} does not claim to be {Claim.DETERMINISTIC}")
    given = kernel.accept(case)
    first = kernel.run(case, given)
    usual = kernel.threads
    try:
        for count in (usual, usual, *_THREADS):
            kernel.threads = count
            where = "when repeated" if count == usual else f"with {count} threads"
            _check_same(first, kernel.run(case, given), where)
    finally:
        kernel.threads = usual
    return {"repeats": 2.0 + len(_THREADS)}


def is_batch_invariant(kernel: Kernel, case: Case) -> dict[str, float]:
    """Compare the bits of batch entries alone, and in the opposite order, with the whole's."""
    if not kernel.claims(Claim.BATCH_INVARIANT):
        raise NotSupported(f"{kernel.name} does not claim to be {Claim.BATCH_INVARIANT}")
    given = kernel.accept(case)
    whole = kernel.run(case, given)

    def chosen(path: str, tensor: Tensor) -> Tensor:
        dim = case.batch.get(last_word(path))
        return tensor if dim is None else tensor.index_select(dim, rows.to(tensor.device))

    name = next((name for name in whole if name in case.batch), "")
    if not name:
        raise NotSupported("the contract knows no batch entries here")
    count = whole[name].shape[case.batch[name]]
    for entries in ([0], [count - 1], list(range(count))[::-1]):
        rows = torch.tensor(entries)
        part = mapped(given, chosen)
        if not kernel.verdict(case.request(part)).supported:
            continue
        expected = {name: chosen(name, tensor) for name, tensor in whole.items()}
        _check_same(expected, kernel.run(case, part), f"for entries {entries} of {count}")
    return {"entries": float(count)}


def reads_no_fresh_memory(kernel: Kernel, case: Case) -> dict[str, float]:
    """Fill memory with NaN before the call gets it; results do not depend on what was there."""
    given = kernel.accept(case)
    # torch fills what it allocates; what a library takes from the system was ours a moment ago.
    with _deterministic():
        kernel.run(case, given)
        for size in _SIZES:
            poison = [torch.full((size,), torch.nan, device=kernel.device) for _ in range(4)]
            del poison
        return compare(case, kernel.run(case, given))


def _check_same(expected: dict[str, Tensor], got: dict[str, Tensor], where: str) -> None:
    for name, tensor in expected.items():
        if not same_bits(tensor.cpu(), got[name].cpu()):
            differ = int((tensor != got[name]).sum())
            raise Violated(f"{name}: {differ} of {tensor.numel()} elements differ {where}")


@contextmanager
def _deterministic() -> Iterator[None]:
    """Use deterministic algorithms; torch then fills what it allocates with NaN, too."""
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
