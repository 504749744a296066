"""Laws of bitwise equality: for every implementation, and for those that claim determinism."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import Claim
from torchyard_attention.cases import Case
from torchyard_attention.contract import AttentionCall, MaskBlocks
from torchyard_attention.testing import request_of
from torchyard_conformance._attention._judges._outputs import computes, tensors_of
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._attention._rulers import compare, compare_gradients, cotangents
from torchyard_conformance._outcome import NotSupported, Violated

__all__ = [
    "computes_in_threads",
    "deterministic_on_demand",
    "is_batch_invariant",
    "is_deterministic",
    "reads_no_fresh_memory",
]

_THREADS: Final = (1, 2, 3, 5)
_WORKERS: Final = 4
# Elements of float32: what small and large scratch memory takes; beyond, it comes as zeros.
_SIZES: Final = tuple(1 << power for power in range(3, 18))


def is_deterministic(kernel: Kernel, case: Case) -> dict[str, float]:
    """Compare the bits of repeated calls, with several numbers of threads."""
    if not kernel.claims(Claim.DETERMINISTIC):
        raise NotSupported(f"{kernel.name} does not claim to be {Claim.DETERMINISTIC}")
    call = kernel.accept(case)
    first = tensors_of(computes(kernel, case, call))
    repeats = 0
    usual = kernel.threads
    try:
        for count in (usual, usual, *_THREADS):
            kernel.threads = count
            again = tensors_of(computes(kernel, case, call))
            repeats += 1
            _same(first, again, "when repeated" if count == usual else f"with {count} threads")
    finally:
        kernel.threads = usual
    return {"repeats": float(repeats)}


def deterministic_on_demand(kernel: Kernel, case: Case) -> dict[str, float]:
    """Compare the bits of repeated calls where torch must use deterministic algorithms."""
    call = kernel.accept(case)
    grad = kernel.is_backward
    kernel.require(request_of(call, causal=case.mask == "causal", grad=grad, deterministic=True))
    with _deterministic():
        first = tensors_of(computes(kernel, case, call))
        for _ in range(3):
            _same(first, tensors_of(computes(kernel, case, call)), "in deterministic mode")
    return {}


def is_batch_invariant(kernel: Kernel, case: Case) -> dict[str, float]:
    """Compare the bits of each batch entry alone, and in the opposite order, with the whole's."""
    if not kernel.claims(Claim.BATCH_INVARIANT):
        raise NotSupported(f"{kernel.name} does not claim to be {Claim.BATCH_INVARIANT}")
    call = kernel.accept(case)
    batch = call.query.shape[0]
    given = cotangents(case, True).to(kernel.device) if kernel.is_backward else None

    def rows(entries: list[int]) -> dict[str, Tensor]:
        part = _entries(call, entries)
        if given is None:
            return tensors_of(kernel.run(part))
        chosen: Any = [None if tensor is None else tensor[entries] for tensor in given]
        grads = kernel.gradients(part, *chosen)
        return {"query": grads.query, "key": grads.key, "value": grads.value}

    whole = rows(list(range(batch)))
    for entries in ([0], [batch - 1], list(range(batch))[::-1]):
        expected = {name: tensor[entries] for name, tensor in whole.items()}
        _same(expected, rows(entries), f"for entries {entries} of {batch}")
    return {"entries": float(batch)}


def reads_no_fresh_memory(kernel: Kernel, case: Case) -> dict[str, float]:
    """Fill memory with NaN before the call gets it; results do not depend on what was there."""
    call = kernel.accept(case)
    computes(kernel, case, call)  # what is made once and kept must be sound too
    device = torch.device(kernel.device)
    # torch fills what it allocates; what a library takes from the system was ours a moment ago.
    with _deterministic():
        computes(kernel, case, call)
        for size in _SIZES:
            poison = [torch.full((size,), float("nan"), device=device) for _ in range(4)]
            del poison
        if kernel.is_backward:
            grads = kernel.gradients(call, *cotangents(case, True).to(kernel.device))
            return compare_gradients(case, True, grads)
        return compare(case, kernel.run(call))


def computes_in_threads(kernel: Kernel, case: Case) -> dict[str, float]:
    """Call it from several Python threads at once; each gets its own result."""
    call = kernel.accept(case)
    others = [replace(call, query=call.query * (1.0 + index)) for index in range(_WORKERS)]
    alone = [tensors_of(computes(kernel, case, other)) for other in others]
    broken: list[str] = []
    start = threading.Barrier(_WORKERS)

    def work(index: int) -> None:
        try:
            start.wait(timeout=60)
            for _ in range(4):
                got = tensors_of(computes(kernel, case, others[index]))
                for name, tensor in got.items():
                    _near(name, tensor, alone[index][name])
        except Exception as error:
            broken.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(_WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise Violated(f"{len(broken)} of {_WORKERS} threads that call at once: {broken[0]}")
    return {}


def _near(name: str, got: Tensor, alone: Tensor) -> None:
    """Compare what may differ by roundings alone."""
    wide = torch.promote_types(got.dtype, torch.float32)
    eps = torch.finfo(got.dtype).eps
    torch.testing.assert_close(
        got.to(wide), alone.to(wide), rtol=64 * eps, atol=256 * eps, msg=lambda m: f"{name}: {m}"
    )


def _same(expected: dict[str, Tensor], got: dict[str, Tensor], where: str) -> None:
    for name, tensor in expected.items():
        one, other = tensor.cpu(), got[name].cpu()
        if not torch.equal(one.nan_to_num(0.125), other.nan_to_num(0.125)):
            differ = int((one != other).sum())
            raise Violated(f"{name}: {differ} of {one.numel()} elements differ {where}")


def _entries(call: AttentionCall, entries: list[int]) -> AttentionCall:
    """Return the call of some batch entries; its mask must not look at the batch."""
    mask = call.mask
    if mask is not None and mask.kv_num_blocks.shape[0] != 1:
        mask = MaskBlocks(
            mask.block_size,
            mask.kv_num_blocks[entries],
            mask.kv_indices[entries],
            mask.full_kv_num_blocks[entries],
            mask.full_kv_indices[entries],
            mask.bits,
            mask.first_partial[entries],
        )
    return replace(
        call,
        query=call.query[entries],
        key=call.key[entries],
        value=call.value[entries],
        mask=mask,
    )


@contextmanager
def _deterministic() -> Iterator[None]:
    """Use deterministic algorithms; torch then fills what it allocates with NaN, too."""
    before: Any = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
