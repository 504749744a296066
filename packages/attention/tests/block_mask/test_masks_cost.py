"""What making a block mask of a long sequence costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torchyard_attention import and_masks, create_block_mask, masks


class LargestTensor(TorchDispatchMode):
    """Keeps the sizes of tensors with memory of their own, in ascending order, each once."""

    def __enter__(self):
        self._seen = set()
        return super().__enter__()

    @property
    def sizes(self):
        return sorted(self._seen)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf._base is None:
                self._seen.add(leaf.numel())
        return result


def _documents(length):
    lengths = torch.randint(
        1500, 4500, (length // 2000,), generator=torch.Generator().manual_seed(0)
    )
    return torch.arange(len(lengths)).repeat_interleave(lengths)[:length].clone()


def test_memory_is_linear_in_the_blocks_that_are_touched():
    length = 1 << 17
    mask_mod = and_masks(masks.causal, masks.document(_documents(length)))
    with LargestTensor() as watch:
        mask = create_block_mask(mask_mod, None, None, length, length, "cpu")
    blocks = int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum())
    assert 4 * blocks < (length // 128) ** 2 // 8
    # The bits, and beside them nothing that is larger than the ids.
    assert watch.sizes[-1] == mask.bits.numel()
    assert watch.sizes[watch.sizes.index(mask.bits.numel()) - 1] <= length


def test_a_plain_function_is_never_held_for_all_pairs():
    length = 1 << 13

    def mask_mod(b, h, q, k):
        return (q >= k) & ((q * 31 + k * 17) % 64 != 0)

    with LargestTensor() as watch:
        mask = create_block_mask(mask_mod, None, None, length, length, "cpu")
    # Every block up to the diagonal is partial. What a stripe of rows takes is all there is
    # beside the bits.
    assert mask.bits.numel() > length * length // 20
    assert watch.sizes[-1] <= mask.bits.numel()


_MILLION = """
import time, torch
from torchyard_attention import and_masks, create_block_mask, masks

def field(path, name):
    return next(int(line.split()[1]) for line in open(path) if line.startswith(name)) / 1024

length = 1_000_000
lengths = torch.randint(1500, 4500, (500,), generator=torch.Generator().manual_seed(0))
ids = torch.arange(500).repeat_interleave(lengths)[:length].clone()

def make(length):
    mask_mod = and_masks(masks.causal, masks.document(ids[:length]))
    return create_block_mask(mask_mod, None, None, length, length, device="cpu")

make(5_000)
before = field("/proc/self/status", "VmRSS")
start = time.perf_counter()
mask = make(length)
print(time.perf_counter() - start, field("/proc/self/status", "VmHWM") - before)
"""


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_a_million_tokens_in_documents_take_less_than_a_second_and_64_mebibytes():
    command = [sys.executable, "-c", _MILLION]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, mebibytes = map(float, done.stdout.split())
    assert mebibytes < 64
    assert seconds < 1
