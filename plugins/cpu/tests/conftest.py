"""Run a native kernel on tensors, and judge what it returns."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from zlib import crc32

import pytest
import torch
from torch import Tensor

from torchyard_attention.contract import MaskBlocks
from torchyard_cpu import _native
from torchyard_cpu._tuning.tunables import frozen
from torchyard_cpu.attention._forward import call_places

from .errors import largest, ratio, rms

# How many times the error of the naive computation a kernel may have.
MARGIN = 1.0

# Grids of hundreds of cases for each instruction set: a third of them, always the same, stands for
# the rest, which the sweep has.
_GRIDS = {
    "test_a_backward_kernel_is_as_exact_as_the_naive_computation",
    "test_a_kernel_is_as_exact_as_the_naive_computation",
    "test_a_program_gives_what_torch_gives",
    "test_gradients_are_as_near_to_the_reference_as_naive_ones",
}


@dataclass(frozen=True)
class Outputs:
    out: Tensor
    lse: Tensor


class Attention:
    """Native kernels, the float64 reference and the bound between them."""

    def __init__(self) -> None:
        # Kernel name -> worst error / bound of out's maximum, out's RMS and lse, and the calls.
        self.worst: dict[str, list[float]] = {}

    def run(
        self,
        kernel: str,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: MaskBlocks | None = None,
        scale: float | None = None,
        threads: int = 1,
        row_padding: int = 0,
    ) -> Outputs:
        """Run a kernel into outputs full of NaN, with working memory full of NaN.

        Args:
            row_padding: elements between the rows of out; checked to stay as they were.
        """
        batches, heads, rows, head_dim = query.shape
        value_dim = value.shape[3]
        padded = torch.full(
            (batches, heads, rows, value_dim + row_padding), math.nan, dtype=query.dtype
        )
        out = padded[..., :value_dim]
        lse = torch.full((batches, heads, rows), math.nan)
        factor = head_dim**-0.5 if scale is None else scale
        decoding = kernel.startswith("attention_decode_")
        (_native.attention_decode if decoding else _native.attention_forward)(
            kernel,
            *call_places(query, key, value, out, lse, factor, mask, frozen("*")),
            None,  # no score program
            0,  # no greatest scores
            threads,
            True,
        )
        assert padded[..., value_dim:].isnan().all(), "wrote between the rows of out"
        return Outputs(out, lse)

    def exact(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        visible: Tensor | None = None,
        scale: float | None = None,
    ) -> Outputs:
        """Compute attention in float64."""
        return _dense(query, key, value, visible, scale, torch.float64)[0]

    def check(
        self,
        kernel: str,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        visible: Tensor | None = None,
        mask: MaskBlocks | None = None,
        scale: float | None = None,
        threads: int = 1,
        row_padding: int = 0,
    ) -> None:
        """Hold a kernel against float64.

        Its errors may be MARGIN times those of the naive computation in the inputs' dtype: scores,
        softmax and sums in float32, probabilities and results rounded to the dtype. That may be
        lucky, so a floor is added. With eps float32's spacing, a score is off by some
        d = eps * (abs(q) @ abs(k)) * scale, whatever the order of its sum; lse is off by that and
        by a few roundings of itself; and out by the rounding of the result, a few roundings of
        float32 and the 2 d that scores and their normaliser bring, all relative to p @ abs(v).
        """
        got = self.run(
            kernel,
            query,
            key,
            value,
            mask=mask,
            scale=scale,
            threads=threads,
            row_padding=row_padding,
        )
        true, weights = _dense(query, key, value, visible, scale, torch.float64)
        naive, _ = _dense(query, key, value, visible, scale, torch.float32)
        group = query.shape[1] // key.shape[1]
        magnitude = weights @ value.double().abs().repeat_interleave(group, 1)
        eps = torch.finfo(torch.float32).eps
        d = eps * _largest_score(query, key, scale)
        floor = torch.finfo(query.dtype).eps / 2 + 4 * eps + 2 * d
        # Where probabilities are rounded to bfloat16, 2^x is a shorter polynomial: 2.9e-6.
        polynomial = 2.9e-6 if kernel.endswith(("bf16", "amx")) else 0.0

        assert torch.equal(got.lse.isneginf(), true.lse.isneginf()), "lse: other rows are empty"
        error, allowed = _error(got.out, true.out), _error(naive.out, true.out)
        finite = true.lse.isfinite()
        lse_error = _error(got.lse[finite], true.lse[finite])
        lse_allowed = _error(naive.lse[finite], true.lse[finite])
        lse_floor = d + 2 * eps * max(1.0, largest(true.lse[finite])) + polynomial
        ratios = [
            ratio(largest(error), MARGIN * largest(allowed) + floor * largest(magnitude)),
            ratio(rms(error), MARGIN * rms(allowed) + floor * rms(magnitude)),
            ratio(largest(lse_error), MARGIN * largest(lse_allowed) + lse_floor),
        ]
        known = self.worst.setdefault(kernel, [0.0, 0.0, 0.0, 0.0])
        known[:] = [max(a, b) for a, b in zip(known[:3], ratios, strict=True)] + [known[3] + 1]
        assert max(ratios) <= 1.0, (
            f"error / bound: max {ratios[0]}, RMS {ratios[1]}, lse {ratios[2]}"
        )


def block_mask(visible: Tensor, block_size: tuple[int, int]) -> MaskBlocks:
    """Return bool [Bm, Hm, Sq, Sk] as blocks."""
    batches, heads, rows, keys = visible.shape
    block_rows, block_keys = block_size
    row_blocks, key_blocks = -(-rows // block_rows), -(-keys // block_keys)

    def cut(full: Tensor) -> Tensor:
        shape = (*full.shape[:-2], row_blocks, block_rows, key_blocks, block_keys)
        return full.reshape(shape).transpose(-3, -2)

    padded = torch.zeros(
        batches, heads, row_blocks * block_rows, key_blocks * block_keys, dtype=torch.bool
    )
    padded[..., :rows, :keys] = visible
    beyond = torch.ones(padded.shape[-2:], dtype=torch.bool)
    beyond[:rows, :keys] = False
    blocks = cut(padded)
    some = blocks.flatten(-2).any(-1)
    full = some & (blocks | cut(beyond)).flatten(-2).all(-1)
    partial = some & ~full

    def listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.argsort((~chosen).to(torch.int8), dim=-1, stable=True)
        return chosen.sum(-1).to(torch.int32), order.to(torch.int32).contiguous()

    count, index = listed(partial)
    full_count, full_index = listed(full)
    octets = torch.zeros(int(partial.sum()), block_rows, -(-block_keys // 8) * 8)
    octets[..., :block_keys] = blocks[partial]
    weights = torch.tensor([1.0, 2, 4, 8, 16, 32, 64, 128])
    bits = (octets.unflatten(-1, (-1, 8)) * weights).sum(-1).to(torch.uint8).contiguous()
    first = (count.flatten().cumsum(0) - count.flatten()).to(torch.int64).reshape(count.shape)
    return MaskBlocks(block_size, count, index, full_count, full_index, bits, first.contiguous())


@pytest.fixture(scope="session")
def attention() -> Attention:
    return _ATTENTION


@pytest.fixture(scope="session")
def gradient_errors() -> dict[str, list[float]]:
    """Return the worst error / bound of each backward kernel so far, for the summary."""
    return _GRADIENT_ERRORS


@pytest.fixture(scope="session")
def native_cases() -> Counter[str]:
    """Return how many random calls of each kind were right so far, for the summary."""
    return _NATIVE_CASES


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    # The tensors are small: handing them to other threads would cost more than it saves.
    torch.set_num_threads(1)


_ATTENTION = Attention()
_GRADIENT_ERRORS: dict[str, list[float]] = {}
_NATIVE_CASES: Counter[str] = Counter()


@pytest.hookimpl(tryfirst=True)  # before marks select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(item, "originalname", None) in _GRIDS and crc32(item.name.encode()) % 3:
            item.add_marker(pytest.mark.sweep)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how near each kernel came to its bound, and how many random calls were right."""
    if _NATIVE_CASES:
        faults = len(terminalreporter.stats.get("failed", []))
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(_NATIVE_CASES.items()))
        terminalreporter.section("random calls of native kernels")
        terminalreporter.write_line(
            f"cases run: {_NATIVE_CASES.total()} ({kinds}); tests with faults: {faults}"
        )
    if _GRADIENT_ERRORS:
        terminalreporter.section("worst error / bound of dq, dk, dv, maximum and RMS each; calls")
        for kernel, (*ratios, calls) in sorted(_GRADIENT_ERRORS.items()):
            numbers = " ".join(f"{value:.2f}" for value in ratios)
            terminalreporter.write_line(f"{kernel:45} {numbers} {calls:5.0f}")
    if not _ATTENTION.worst:
        return
    terminalreporter.section("worst error / bound: out's maximum, out's RMS, lse; calls")
    for kernel, (greatest, root, lse, calls) in sorted(_ATTENTION.worst.items()):
        terminalreporter.write_line(f"{kernel:45} {greatest:.2f} {root:.2f} {lse:.2f} {calls:5.0f}")


def _dense(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor | None,
    scale: float | None,
    compute: torch.dtype,
) -> tuple[Outputs, Tensor]:
    group = query.shape[1] // key.shape[1]
    q = query.to(compute)
    k = key.to(compute).repeat_interleave(group, 1)
    v = value.to(compute).repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse.isneginf(), 0.0)[..., None]).exp()
    if compute is torch.float32:
        weights = weights.to(query.dtype).to(compute)
    out = weights @ v
    return Outputs(out.to(query.dtype) if compute is torch.float32 else out, lse), weights


def _largest_score(query: Tensor, key: Tensor, scale: float | None) -> float:
    group = query.shape[1] // key.shape[1]
    k = key.float().abs().repeat_interleave(group, 1)
    scores = query.float().abs() @ k.transpose(-1, -2)
    return largest(scores) * abs(query.shape[-1] ** -0.5 if scale is None else scale)


def _error(got: Tensor, true: Tensor) -> Tensor:
    return got.double() - true.double()
