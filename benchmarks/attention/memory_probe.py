"""Peak memory of one call, in a process of its own.

``python -m benchmarks.attention.memory_probe KIND WHO LENGTH HEADS`` prints seconds, the growth of
the resident set to its peak in bytes, and the implementation that computed the call.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as stock
from torch.nn.functional import scaled_dot_product_attention as sdpa

from torchyard_attention import and_masks, create_block_mask, explain, flex_attention, masks

__all__: list[str] = []

HEAD_DIM: Final = 64
# An eager mask of torch's at 32,768 tokens wants tens of GiB, which would end other processes.
_MOST: Final = 12 << 30


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def _peak(run: Callable[[], object]) -> dict[str, float]:
    """Run, and return its seconds and by how many bytes the resident set grew at most."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status("VmRSS")
    start = time.perf_counter()
    kept = run()
    seconds = time.perf_counter() - start
    grown = _status("VmHWM") - before
    del kept
    return {"seconds": seconds, "bytes": grown}


def _inputs(heads: int, length: int) -> list[Tensor]:
    made = [torch.empty(1, heads, length, HEAD_DIM, dtype=torch.bfloat16) for _ in range(4)]
    for tensor in made:
        tensor.normal_()
    return [tensor.requires_grad_() for tensor in made[:3]] + made[3:]


def _train(who: str, length: int, heads: int) -> dict[str, Any]:
    def ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rows = query.shape[2]
        mask = create_block_mask(masks.causal, None, None, rows, rows, device="cpu")
        out = flex_attention(query, key, value, block_mask=mask)
        assert isinstance(out, Tensor)
        return out

    def theirs(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return sdpa(query, key, value, is_causal=True)

    def train(given: list[Tensor]) -> object:
        out = (ours if who == "torchyard" else theirs)(*given[:3])
        return out, torch.autograd.grad(out, given[:3], given[3])

    train(_inputs(heads, 300))
    given = _inputs(heads, length)
    computed_by = "torch"
    if who == "torchyard":
        mask = create_block_mask(masks.causal, None, None, 300, 300, device="cpu")
        query, key, value = (tensor[:, :, :300] for tensor in given[:3])
        names = [
            explain(query, key, value, block_mask=mask, backward=part).name
            for part in (False, True)
        ]
        computed_by = ", ".join(dict.fromkeys(names))
    return {**_peak(lambda: train(given)), "computed_by": computed_by}


def _documents(who: str, length: int, heads: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1500, 4500, (1 + length // 2000,), generator=generator)
    ids = torch.arange(len(lengths)).repeat_interleave(lengths)[:length].clone()

    def make(size: int) -> object:
        mask_mod = and_masks(masks.causal, masks.document(ids[:size]))
        return create_block_mask(mask_mod, None, None, size, size, device="cpu")

    make(5000)
    return {**_peak(lambda: make(length)), "computed_by": "torchyard"}


def _arbitrary(who: str, length: int, heads: int) -> dict[str, Any]:
    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx >= kv_idx) & ((q_idx * 31 + kv_idx * 17) % 64 != 0)

    def make(size: int) -> object:
        if who == "torchyard":
            return create_block_mask(mask_mod, None, None, size, size, device="cpu")
        compiled = who == "torch compiled"
        return stock.create_block_mask(
            mask_mod, None, None, size, size, device="cpu", _compile=compiled
        )

    make(1024)
    if who != "torchyard":
        resource.setrlimit(resource.RLIMIT_AS, (_MOST, _MOST))
    return {**_peak(lambda: make(length)), "computed_by": who}


if __name__ == "__main__":
    _kind, _who, _length, _heads = sys.argv[1:]
    _probe = {"train": _train, "documents": _documents, "arbitrary": _arbitrary}[_kind]
    print(json.dumps(_probe(_who, int(_length), int(_heads))))
