"""Compile FlashAttention-4 with recorded programs for an architecture that is not here.

``python -m torchyard_cuda.fa4.compiled`` compiles for the architecture that flash_attn and CuTe DSL
read from FLASH_ATTENTION_ARCH, CUTE_DSL_ARCH and FLASH_ATTENTION_NUM_SMS, on fake tensors. With
CUTE_DSL_KEEP_PTX=1, and CUTE_DSL_DUMP_DIR the folder of ``--code``, it looks for the
architecture's matrix instruction in what was compiled. Prints a table; fails where a program that
the matrix allows does not compile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import files as distribution_files
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_cuda._torch_compat import fake_tensors
from torchyard_cuda.fa4._adapter import Functions, functions
from torchyard_cuda.fa4._program import INPUTS, auxiliary, lower_mask, lower_score
from torchyard_cuda.fa4._verdict import BLOCKS
from torchyard_programs import trace

__all__ = ["PROGRAMS", "Heads", "Row", "rows"]

_HEADS, _LENGTH = 8, 256
_BROUGHT: Final = (
    *("flash-attn-4", "nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-base"),
    *("nvidia-cutlass-dsl-libs-core", "nvidia-cutlass-dsl-libs-cu12", "quack-kernels"),
    *("apache-tvm-ffi", "torch-c-dlpack-ext", "cuda-bindings", "einops", "protobuf"),
)
# Of each major capability: processors of a GPU, and the instruction of matrix products.
_MAJORS: Final = {9: (132, "wgmma.mma_async"), 10: (148, "tcgen05.mma"), 12: (170, "mma.sync")}


def _programs() -> dict[str, tuple[str, Callable[..., Any]]]:
    slopes, bias = torch.ones(_HEADS), torch.zeros((_HEADS, 2 * _LENGTH))
    gates, gate = torch.zeros(_HEADS), torch.tensor(0.5)
    ids = torch.zeros(_LENGTH, dtype=torch.int32)
    prefix = torch.zeros(2, dtype=torch.int64)
    visible = torch.zeros((_LENGTH, _LENGTH), dtype=torch.bool)
    return {
        "alibi": ("score", lambda s, b, h, q, k: s + slopes[h] * (k - q)),
        "softcap": ("score", lambda s, b, h, q, k: 20.0 * torch.tanh(s / 20.0)),
        "bias": ("score", lambda s, b, h, q, k: s + bias[h, q - k + _LENGTH]),
        "gate": ("score", lambda s, b, h, q, k: s * gate),
        "head-gate": ("score", lambda s, b, h, q, k: s * torch.sigmoid(gates[h])),
        "distance": ("score", lambda s, b, h, q, k: s - torch.log1p((q - k).abs().float())),
        "rounded": ("score", lambda s, b, h, q, k: s + (q // 7 - k // 7).float() * 0.1),
        "causal": ("mask", lambda b, h, q, k: q >= k),
        "window": ("mask", lambda b, h, q, k: (q - k).abs() < 64),
        "document": ("mask", lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k)),
        "prefix": ("mask", lambda b, h, q, k: (k < prefix[b]) | (q >= k)),
        "dense": ("mask", lambda b, h, q, k: visible[q, k]),
    }


PROGRAMS: Final[Mapping[str, tuple[str, Callable[..., Any]]]] = _programs()


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of heads that kernels are compiled for.

    Attributes:
        head_dim, value_dim: D and V.
        kv_heads: of key and value; a divisor of 8, the query's.
    """

    head_dim: int = 128
    value_dim: int = 128
    kv_heads: int = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel with one program.

    Attributes:
        architecture, program, direction: what was compiled.
        seconds: of processor time that it took.
        matrix: whether the architecture's matrix instruction is in the code; None where no code
            was kept.
        error: why it was not compiled; empty where it was.
    """

    architecture: str
    program: str
    direction: str
    seconds: float
    matrix: bool | None = None
    error: str = ""


def rows(
    names: list[str], *, heads: Heads | None = None, code: Path | None = None
) -> Iterator[Row]:
    """Compile programs, forward and backward; yields what came of each.

    Args:
        names: keys of PROGRAMS, or ``plain``.
        heads: sizes; None: the default.
        code: the folder that CuTe DSL writes code to.
    """
    import cutlass.utils
    from flash_attn.cute import interface

    number = int(interface._get_device_arch())
    processors, instruction = _MAJORS[number // 10]

    class HardwareInfo:
        """What the static scheduler asks the driver, of a GPU that is not here."""

        def __init__(self, *_: Any) -> None:
            pass

        def get_max_active_clusters(self, size: int, *_: Any) -> int:
            return processors // size

        def get_device_multiprocessor_count(self, *_: Any) -> int:
            return processors

    cutlass.utils.HardwareInfo = HardwareInfo
    taken = functions()
    for name in names:
        results: list[Any] = []
        for direction in ("forward", "backward"):
            begun, started = time.process_time(), time.time()
            error = ""
            try:
                results = _compile(taken, name, direction, results, heads or Heads())
            except Exception as problem:
                # Whatever the compiler raises is what the table is for.
                error = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
            seconds = time.process_time() - begun
            found = None
            if code is not None and not error:
                # One kernel's code of another program has the same name.
                new = [path for path in code.rglob("*.ptx") if path.stat().st_mtime >= started]
                found = any(instruction in path.read_text(errors="replace") for path in new)
            yield Row(f"sm_{number}", name, direction, seconds, found, error)
            if error:
                break


def _compile(
    taken: Functions, name: str, direction: str, results: list[Any], heads: Heads
) -> list[Any]:
    keywords, captured = _keywords(name, direction)
    masked = name != "plain" and PROGRAMS[name][0] == "mask"

    def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    with fake_tensors(), torch.no_grad():
        if captured:
            keywords["aux_tensors"] = [empty(*shape, dtype=dtype) for shape, dtype in captured]
        if masked:
            keywords["block_sparse_tensors"] = taken.lists(**_lists(direction))
        query = empty(2, _LENGTH, _HEADS, heads.head_dim)
        key = empty(2, _LENGTH, heads.kv_heads, heads.head_dim)
        value = empty(2, _LENGTH, heads.kv_heads, heads.value_dim)
        if direction == "forward":
            found = taken.forward(query, key, value, return_lse=True, **keywords)
            return [(tuple(item.shape), item.dtype) for item in found[:2]]
        out, lse = (empty(*shape, dtype=dtype) for shape, dtype in results)
        taken.backward(query, key, value, out, empty(*out.shape), lse, **keywords)
        return results


def _lists(direction: str) -> dict[str, Any]:
    """Return a mask's lists, without values, of blocks that the architecture takes."""
    from flash_attn.cute import interface

    size = BLOCKS[int(interface._get_device_arch()) // 10]
    rows, keys = (-(-_LENGTH // of) for of in size)
    # By rows of blocks for the forward, by columns for the backward.
    lines, width = (rows, keys) if direction == "forward" else (keys, rows)
    found: dict[str, Any] = {"block_size": size}
    for kind in ("mask", "full"):
        for name, shape in (("cnt", (1, 1, lines)), ("idx", (1, 1, lines, width))):
            found[f"{kind}_block_{name}"] = torch.empty(shape, dtype=torch.int32, device="cuda")
    return found


def _keywords(
    name: str, direction: str
) -> tuple[dict[str, Any], list[tuple[tuple[int, ...], torch.dtype]]]:
    """Return what a program is passed as, and shape and dtype of each captured tensor."""
    if name == "plain":
        return {}, []
    kind, function = PROGRAMS[name]
    inputs = tuple(
        (item.name, item.dtype if isinstance(item.dtype, torch.dtype) else None)
        for item in INPUTS[0 if kind == "score" else 1 :]
    )
    text, captured = trace(function, f"{kind}_mod", inputs, torch.device("cpu"))
    traits = tuple((tensor.dtype, tensor.ndim) for tensor in captured)
    lowered = (lower_score if kind == "score" else lower_mask)(text, traits)
    found = lowered.functions()
    keywords = {f"{kind}_mod": found[0]}
    if kind == "score" and direction == "backward":
        keywords["score_mod_bwd"] = found[1]
    tensors = auxiliary(lowered, captured)
    return keywords, [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]


def _installed_bytes() -> int:
    """Return the bytes of the files of what flash-attn-4 brings besides torch and triton."""
    total = 0
    for distribution in _BROUGHT:
        try:
            files = distribution_files(distribution) or []
        except PackageNotFoundError:
            continue
        total += sum(Path(str(file.locate())).stat().st_size for file in files if file.size)
    return total


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", default=",".join(["plain", *PROGRAMS]))
    parser.add_argument("--heads", default="128,128,2", help="head_dim,value_dim,kv_heads")
    parser.add_argument("--code", type=Path, help="where CuTe DSL writes code")
    parser.add_argument("--out", type=Path, help="a JSON file of the rows")
    options = parser.parse_args()
    found = []
    heads = Heads(*map(int, options.heads.split(",")))
    for row in rows(options.programs.split(","), heads=heads, code=options.code):
        found.append(row)
        matrix = {None: "", True: "matrix instruction", False: "NO MATRIX INSTRUCTION"}[row.matrix]
        print(
            f"{row.architecture:8}{row.program:12}{row.direction:10}{row.seconds:6.1f} s  "
            f"{row.error or matrix}",
            flush=True,
        )
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")
    wrong = [row for row in found if row.error or row.matrix is False]
    print(
        f"{len(found) - len(wrong)} of {len(found)} compiled; flash-attn-4 and what it brings: "
        f"{_installed_bytes() / 1e6:.0f} MB"
    )
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    raise SystemExit(_main())
