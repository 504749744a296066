"""The machine's own limits, measured in the run that quotes them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import torch
from torch import Tensor

__all__ = ["Limits", "Probe"]

_SOURCE: Final = Path(__file__).with_name("limits.c")
_SECONDS: Final = 0.4


@dataclass(frozen=True, slots=True)
class Limits:
    """What nothing on this machine can exceed; None where it could not be measured.

    Attributes:
        float32_flops: fused multiply-adds, two operations each, per second.
        bfloat16_flops: products of bfloat16 pairs into float32, by matrix tiles where the
            processor has them, per second; None without the
            instruction.
        read_bytes: bytes read from memory per second.
        problem: why nothing could be measured; empty where it could.
    """

    float32_flops: float | None = None
    bfloat16_flops: float | None = None
    read_bytes: float | None = None
    problem: str = ""

    def flops(self, dtype: torch.dtype) -> float | None:
        """Return the limit for products of a dtype; float32's where it has none of its own."""
        if dtype == torch.bfloat16 and self.bfloat16_flops is not None:
            return self.bfloat16_flops
        return self.float32_flops

    def raised(self, other: Limits) -> Limits:
        """Return these with the arithmetic of others where that was faster."""
        return replace(
            self,
            float32_flops=_larger(self.float32_flops, other.float32_flops),
            bfloat16_flops=_larger(self.bfloat16_flops, other.bfloat16_flops),
        )


def _limits(measured: dict[str, float]) -> Limits:
    return Limits(
        measured.get("float32_flops"), measured.get("bfloat16_flops"), measured.get("read_bytes")
    )


def _larger(first: float | None, second: float | None) -> float | None:
    return max((value for value in (first, second) if value is not None), default=None)


class Probe:
    """The loops of limits.c, compiled for this processor while the context lasts."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._program = Path(self._folder.name, "limits")
        library = Path(self._folder.name, "limits.so")
        self._problem = self._compile(self._program) or self._compile(library, "-shared", "-fPIC")
        if not self._problem:
            self._seconds_to_read = ctypes.CDLL(str(library)).seconds_to_read
            self._seconds_to_read.restype = ctypes.c_double
            self._by_parts: dict[int, bool] = {}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def limits(self, threads: int) -> Limits:
        """Measure every limit, on as many threads as the contestants use."""
        if self._problem:
            return Limits(problem=self._problem)
        return _limits(self._run(threads))

    def arithmetic(self, threads: int) -> Limits:
        """Measure the limits of arithmetic alone."""
        return (
            Limits(problem=self._problem) if self._problem else _limits(self._run(threads, "flops"))
        )

    def read_bytes(self, threads: int) -> float | None:
        """Measure how many bytes are read from memory per second; None where nothing can be."""
        return None if self._problem else self._read(threads)["read_bytes"]

    def seconds_to_read(self, tensors: Sequence[Tensor], threads: int) -> float | None:
        """Measure how long it takes to read some tensors once, in place.

        Args:
            tensors: contiguous, each a whole number of lines of 64 bytes.
            threads: that share each tensor's reading.

        Returns:
            Seconds; None where nothing can be measured.
        """
        if self._problem:
            return None
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        if not all(tensor.is_contiguous() for tensor in tensors) or any(
            size % 64 for size in sizes
        ):
            raise ValueError("tensors: expected contiguous ones of whole lines of 64 bytes")
        if threads not in self._by_parts:
            self._read(threads)
        starts = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
        lines = (ctypes.c_size_t * len(tensors))(*(size // 64 for size in sizes))
        seconds = float(
            self._seconds_to_read(starts, lines, len(tensors), threads, self._by_parts[threads])
        )
        return seconds if seconds > 0 else None

    def _read(self, threads: int) -> dict[str, float]:
        """Read memory in both orders, and keep which is the faster."""
        measured = self._run(threads, "read")
        self._by_parts[threads] = measured["read_by_parts"] == 1
        return measured

    def _compile(self, to: Path, *words: str) -> str:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            return "no C compiler"
        built = subprocess.run(
            [compiler, "-O3", "-march=native", "-pthread", *words, str(_SOURCE), "-o", str(to)],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode != 0:
            return f"limits.c does not compile here: {built.stderr.strip()[:200]}"
        return ""

    def _run(self, threads: int, *words: str) -> dict[str, float]:
        result = subprocess.run(
            [str(self._program), str(threads), str(_SECONDS), *words],
            capture_output=True,
            text=True,
            check=True,
        )
        lines = (line.split() for line in result.stdout.splitlines())
        return {name: float(value) for name, value in lines}
