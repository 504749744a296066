"""Threads: the same bits from any number of them, in any process."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
import torch

from torchyard_cpu import _native

if TYPE_CHECKING:
    from plugins.cpu.tests.conftest import Attention

KERNELS = [
    pytest.param(name, getattr(torch, dtype), id=name.removeprefix("attention_forward_"))
    for name, dtype, _, needed in _native.kernels()
    if set(needed) <= set(_native.cpu_features())
]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("kernel", "dtype"), KERNELS)
def test_results_have_the_same_bits_for_any_number_of_threads(
    attention: Attention, kernel: str, dtype: torch.dtype, masked: bool
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    query = torch.randn(3, 6, 300, 40).to(dtype)
    # Steep enough that some tiles need the exact softmax.
    query[:, :, 100:] *= 12
    key, value = torch.randn(2, 3, 2, 700, 40).to(dtype)
    mask = block_mask(torch.rand(3, 6, 300, 700) < 0.4, (96, 160)) if masked else None
    alone = attention.run(kernel, query, key, value, mask=mask)
    for threads in (2, 3, 7, 64):
        together = attention.run(kernel, query, key, value, mask=mask, threads=threads)
        assert torch.equal(alone.out, together.out), f"{threads} threads"
        assert torch.equal(alone.lse, together.lse), f"{threads} threads"


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("kernel", "dtype"), KERNELS)
def test_many_short_heads_have_the_same_bits_for_any_number_of_threads(
    attention: Attention, kernel: str, dtype: torch.dtype, masked: bool
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    # Enough for two and three threads to take whole heads, and not for seven.
    query = torch.randn(24, 4, 50, 24).to(dtype)
    key, value = torch.randn(2, 24, 2, 150, 24).to(dtype)
    mask = block_mask(torch.rand(24, 4, 50, 150) < 0.4, (32, 64)) if masked else None
    alone = attention.run(kernel, query, key, value, mask=mask)
    for threads in (2, 3, 7):
        together = attention.run(kernel, query, key, value, mask=mask, threads=threads)
        assert torch.equal(alone.out, together.out), f"{threads} threads"
        assert torch.equal(alone.lse, together.lse), f"{threads} threads"


def test_calls_from_several_python_threads_do_not_disturb_one_another(
    attention: Attention,
) -> None:
    kernel = _native.select_kernel("float32", _native.cpu_features(), None)
    assert kernel is not None
    query, key, value = torch.randn(3, 1, 4, 200, 64)
    expected = attention.run(kernel, query, key, value).out
    wrong = []

    def work() -> None:
        for _ in range(20):
            if not torch.equal(attention.run(kernel, query, key, value, threads=2).out, expected):
                wrong.append(threading.current_thread().name)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


WITHOUT_TORCH = """
import array, sys
from torchyard_cpu import _native

rows, size = 400, 32
data = array.array("f", [((i * 2654435761) % 1000) / 500 - 1 for i in range(4 * rows * size)])
place = (data.buffer_info()[0], 4 * rows * size, rows * size, size)
kernel = _native.select_kernel("float32", _native.cpu_features(), None)
tunables = (128, 512, 132, 1 << 19)
results = []
for threads in (1, 3):
    out = array.array("f", bytes(4 * len(data)))
    to = (out.buffer_info()[0], *place[1:])
    dims = (1, 4, 4, rows, rows, size, size)
    _native.attention_forward(
        kernel, dims, place, place, place, to, 0, 0.2, None, tunables, None, 0, threads, False
    )
    results.append(out.tobytes())
assert "torch" not in sys.modules
assert results[0] == results[1] and any(out)
"""


def test_the_native_module_works_and_threads_in_a_process_without_torch() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True, timeout=300)
