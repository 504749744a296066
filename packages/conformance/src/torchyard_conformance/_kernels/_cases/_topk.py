"""Cases of ``topk/1``, each of which has one right output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

import torchyard_kernels  # noqa: F401  (registers the ops)
from torchyard_conformance._kernels._case import Case, Given, implementation, named_cases
from torchyard_kernels.topk.contract import DTYPES, TOPK, Order, TopKCall, TopKRequest

__all__ = ["GRIDS"]


@dataclass(frozen=True)
class TopKCase(Case):
    """A selection.

    Attributes:
        dtype, shape, k, largest, order: of the call.
        values: ``distinct``; ``equal``: five numbers, of zero both signs; ``special``: NaN of both
            signs and infinities among them.
        seen: which share of the elements a mask shows; None: there is no mask.
        offsets: of segments; empty: there are none.
    """

    dtype: str = "float32"
    shape: tuple[int, ...] = (3, 50)
    k: int = 5
    largest: bool = True
    order: Order = Order.SORTED
    values: str = "distinct"
    seen: float | None = None
    offsets: tuple[int, ...] = ()

    contract: ClassVar[str] = TOPK
    batch: ClassVar[Mapping[str, int]] = dict.fromkeys(("x", "mask", "values", "indices"), 0)
    fixed: ClassVar[frozenset[str]] = frozenset({"offsets"})

    def make(self) -> Given:
        """Return the call."""
        generator = torch.Generator().manual_seed(5)
        dtype: torch.dtype = getattr(torch, self.dtype)
        x = _values(self.shape, dtype, self.values, generator)
        mask = None
        if self.seen is not None:
            mask = torch.rand(self.shape, generator=generator) < self.seen
        offsets = torch.tensor(self.offsets) if self.offsets else None
        return (TopKCall(x, self.k, self.largest, self.order, mask, offsets),)

    def request(self, given: Given) -> TopKRequest:
        """Describe the call."""
        call: TopKCall = given[0]
        length = call.x.shape[-1]
        rows = call.x.numel() // length if length else 0
        return TopKRequest(
            device=call.x.device.type,
            dtype=self.dtype,
            rows=rows if call.offsets is None else call.offsets.numel() - 1,
            length=length,
            k=call.k,
            largest=call.largest,
            order=call.order,
            masked=call.mask is not None,
            segmented=call.offsets is not None,
            unit_stride=length < 2 or call.x.stride(-1) == 1,
        )

    def exact(self, given: Given) -> dict[str, Tensor]:
        """Select in Python's numbers, one row at a time."""
        return self.named_outputs(implementation(TOPK, "kernels.reference")(*given))

    def public(self, given: Given) -> Any:
        """Call the op."""
        call: TopKCall = given[0]
        words = (call.largest, str(call.order))
        ops = torch.ops.torchyard_kernels
        if call.offsets is not None:
            return ops.segmented_topk(call.x, call.offsets, call.k, *words)
        return ops.topk(call.x, call.mask, call.k, call.x.dim() - 1, *words)


def _values(
    shape: tuple[int, ...], dtype: torch.dtype, values: str, generator: torch.Generator
) -> Tensor:
    if values == "equal":
        x = torch.randint(0, 3, shape, generator=generator).to(dtype)
        # Of a zero too: equal to it, and to be kept.
        sign = torch.rand(shape, generator=generator) < 0.5
        return torch.where(sign, -x, x) if dtype.is_signed else x
    length = shape[-1]
    order = torch.rand(shape, generator=generator).argsort(dim=-1)
    # Of any dtype exact for rows of up to 250 elements.
    x = (order - (length // 2 if dtype.is_signed else 0)).to(dtype).reshape(shape)
    if values == "special":
        x[..., ::7] = torch.nan
        x[..., 3::7] = -torch.nan
        x[..., 1::11] = torch.inf
        x[..., 2::11] = -torch.inf
    return x


_FLOATS: Final = ("float32", "float64", "float16", "bfloat16")
_MATCHES: Final = named_cases(
    *(TopKCase(name, dtype=name, k=7) for name in DTYPES),
    *(TopKCase(f"{name}-smallest", dtype=name, largest=False) for name in DTYPES),
    TopKCase("k-1", k=1),
    TopKCase("k-all", k=50),
    TopKCase("bfloat16-k-all", k=250, shape=(2, 250), dtype="bfloat16"),
    TopKCase("long", shape=(2, 5000), k=8),
    TopKCase("long-large-k", shape=(2, 5000), k=1100),
    TopKCase("int64-long", shape=(1, 3000), k=100, dtype="int64", largest=False),
    TopKCase("many-rows", shape=(130, 33), k=3),
    TopKCase("by-index", order=Order.INDEX, k=9),
    TopKCase("last", order=Order.LAST, k=9),
    TopKCase("masked", seen=0.5),
    TopKCase("masked-few", seen=0.05, k=9, order=Order.INDEX),
    TopKCase("masked-all", seen=0.0, dtype="float16", largest=False),
    TopKCase("masked-int8", seen=0.1, dtype="int8", k=20),
    TopKCase("segments", shape=(60,), offsets=(0, 7, 7, 40, 60), k=9),
    TopKCase("segments-smallest", shape=(60,), offsets=(3, 50), dtype="int16", largest=False),
)
_EQUAL: Final = named_cases(
    *(TopKCase(name, dtype=name, values="equal", k=20) for name in DTYPES),
    TopKCase("smallest", values="equal", k=20, largest=False),
    TopKCase("bfloat16-long", values="equal", k=300, shape=(2, 4000), dtype="bfloat16"),
    TopKCase("last", values="equal", k=20, order=Order.LAST),
    TopKCase("masked", values="equal", k=20, seen=0.6),
    TopKCase("segments", values="equal", k=9, shape=(60,), offsets=(0, 25, 60)),
)
_NOT_FINITE: Final = named_cases(
    *(TopKCase(name, dtype=name, values="special", k=30) for name in _FLOATS),
    *(
        TopKCase(f"{name}-smallest", dtype=name, values="special", k=40, largest=False)
        for name in _FLOATS
    ),
)
_LAYOUTS: Final = ("offset", "strided", "transposed")
_ANY_MEMORY: Final = named_cases(
    *(TopKCase(f"{layout}", layout) for layout in _LAYOUTS),
    *(TopKCase(f"masked-{layout}", layout, seen=0.5, dtype="bfloat16") for layout in _LAYOUTS),
    TopKCase("segments-strided", "strided", shape=(60,), offsets=(0, 25, 60)),
    TopKCase("no-rows", shape=(0, 50)),
    TopKCase("no-segments", shape=(60,), offsets=(4, 4, 4)),
)
_FORMS: Final = named_cases(
    *(
        case
        for case in _MATCHES.values()
        if case.name in {"float32", "int8", "bfloat16-k-all", "last", "masked", "segments"}
    )
)
_BATCHES: Final = named_cases(
    TopKCase("float32", shape=(5, 200), k=20, values="equal"),
    TopKCase("long", shape=(3, 5000), k=70, values="equal"),
)
_TANGENTS: Final = named_cases(
    TopKCase("float32"),
    TopKCase("float64-smallest", dtype="float64", largest=False),
    TopKCase("masked", seen=0.9, k=3),
    TopKCase("segments", shape=(60,), offsets=(0, 25, 60), k=5),
)

GRIDS: Final[Mapping[str, Mapping[str, Mapping[str, Case]]]] = {
    TOPK: {
        "matches": _MATCHES,
        "equal": _EQUAL,
        "not-finite": _NOT_FINITE,
        "any-memory": _ANY_MEMORY,
        "forms": _FORMS,
        "batches": _BATCHES,
        "tangents": _TANGENTS,
    }
}
