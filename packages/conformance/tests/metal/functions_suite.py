"""What Metal's types and functions compute is what torch computes, by whichever implementation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from torchyard_conformance.metal import Empty

__all__ = ["SOURCE", "FunctionsSuite", "by_lanes"]

SOURCE: Final = Path(__file__).with_name("functions.metal").read_text(encoding="utf-8")


class FunctionsSuite:
    """A subclass says how a kernel of ``SOURCE`` is run."""

    @abstractmethod
    def outputs(
        self,
        kernel: str,
        grid: int | tuple[int, ...],
        threads: int | tuple[int, ...],
        buffers: Sequence[Any] | Mapping[Any, Any],
        group_memory: Mapping[int, int] | None = None,
    ) -> Mapping[str, Tensor]:
        """Return what a kernel writes, with simdgroups of 32."""

    def test_vectors_and_swizzles(self) -> None:
        x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
        outputs = self.outputs("swizzles", 5, 2, [x, Empty((10,), torch.float32)])
        v = x.clone()
        v[:, :2] = x[:, 2:] + x[:, :1]
        v[:, 3] += 1
        v[:, 2] += 2
        table = torch.tensor([1.5, -2.0, 0.25])[torch.arange(10) % 3]
        crossed = torch.linalg.cross(v[:, :3], torch.tensor([[1.0, 0.0, 2.0]]))
        expected = (
            v[:, 0] * table
            + (v * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum(1)
            + crossed[:, 1]
            + v[:, :2].norm(dim=1)
        )
        torch.testing.assert_close(outputs["y"], expected)
        torch.testing.assert_close(outputs["x"], x[:, [2, 1, 0, 3]])

    def test_halves_are_rounded_after_each_operation(self) -> None:
        # Every exponent of a half, subnormals and both signs.
        bits = torch.arange(0, 0x7800, 61, dtype=torch.int16)
        a = bits.view(torch.float16)
        b = -a.flip(0)
        kinds = (torch.float16, torch.bfloat16, torch.float32)
        empty = [Empty((a.numel(),), kind) for kind in kinds]
        outputs = self.outputs("halves", 1, a.numel(), [a, b, *empty])
        assert torch.equal(outputs["sums"], a + b * 2)
        assert torch.equal(outputs["products"], a.bfloat16() * b.bfloat16())
        torch.testing.assert_close(outputs["mixed"], a.float() * 0.1 + 1)

    def test_mathematics(self) -> None:
        x = torch.linspace(-3, 3, 96)
        outputs = self.outputs(
            "mathematics", 3, 32, [x, Empty((8, 96), torch.float32), torch.tensor(96).int()]
        )
        index = torch.arange(96)
        bits = [f"{i:032b}" for i in index.tolist()]
        counted = [
            text.count("1")
            + (len(text) - len(text.lstrip("0")))
            + (((i + 1) & -(i + 1)).bit_length() - 1)
            + (i * 2**30 >> 32)
            for i, text in enumerate(bits)
        ]
        expected = torch.stack(
            [
                x.exp(),
                x.tanh(),
                (x.abs() + 1).log(),
                (x * x + 0.5).rsqrt(),
                x.clamp(-0.5, 0.5) + x * 2 + 1,
                torch.where(x > 0, x.ceil(), x.floor()),
                -x,
                torch.tensor(counted).float(),
            ]
        )
        torch.testing.assert_close(outputs["y"], expected)

    def test_operations_of_simdgroups(self) -> None:
        x = torch.randint(-50, 50, (128,), generator=torch.Generator().manual_seed(1)).int()
        outputs = self.outputs("lanes", 1, 128, [x, Empty((11, 128), torch.int32)])
        assert torch.equal(outputs["y"], by_lanes(x, 32))

    @pytest.mark.parametrize(
        ("kernel", "dtype"),
        [
            ("multiply_float", torch.float32),
            ("multiply_half", torch.float16),
            ("multiply_bfloat", torch.bfloat16),
        ],
    )
    def test_simdgroup_matrices(self, kernel: str, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(2)
        a, b = (torch.randn(16, 16, generator=generator).to(dtype) for _ in range(2))
        size = torch.tensor(16, dtype=torch.int32)
        outputs = self.outputs(kernel, (2, 2), 32, [a, b, Empty((16, 16), torch.float32), size])
        torch.testing.assert_close(outputs["c"], (a.double() @ b.double().mT).float())

    def test_compare_and_exchange_and_memory_of_the_launch(self) -> None:
        x = torch.randint(0, 10000, (2, 6, 8), generator=torch.Generator().manual_seed(3)).int()
        best = torch.full((1,), -1, dtype=torch.int32)
        outputs = self.outputs("greatest", (2, 3, 1), (4, 2, 2), [x, best], {0: 64})
        assert outputs["best"].item() == x.max().item()
        assert best.item() == -1

    def test_a_barrier_of_the_simdgroup_orders_its_lanes(self) -> None:
        x = torch.arange(128, dtype=torch.int32)
        outputs = self.outputs("neighbours_of_lanes", 1, 128, [x, Empty((128,), torch.int32)])
        assert torch.equal(outputs["y"], x.reshape(4, 32).roll(-1, 1).reshape(128))


def by_lanes(x: Tensor, width: int) -> Tensor:
    """Return what the kernel ``lanes`` computes of whole simdgroups."""
    rows = x.reshape(-1, width)
    lane = torch.arange(width)
    even = torch.where(lane % 2 == 0, rows, 0).sum(1, keepdim=True)
    odd = rows.sum(1, keepdim=True) - even
    ballot = (rows % 2 != 0).long() @ (1 << lane).masked_fill(lane > 15, 0)
    down = torch.where(lane + 4 < width, rows[:, (lane + 4) % width], 0)
    filled = torch.where(lane + 4 < width, down, rows[:, (lane + 4) % width] + 1000)
    found = [
        rows.cumsum(1),
        rows.cumsum(1) - rows,
        (rows.amax(1, keepdim=True) - rows.amin(1, keepdim=True)).expand_as(rows),
        torch.where(lane + 3 < width, rows[:, (lane + 3) % width], rows),
        torch.where(lane >= 2, rows[:, lane - 2], rows),
        rows[:, 7:8].expand_as(rows),
        ballot[:, None].expand_as(rows),
        x.reshape(-1, 4).sum(1, keepdim=True).expand(-1, 4).reshape(rows.shape),
        rows[:, (lane + 1) % width],
        torch.where(lane % 2 == 0, even, -odd),
        filled,
    ]
    return torch.stack([part.reshape(-1).int() for part in found])
