"""The contract ``topk/1``: the first k of each row in an order that is total.

With a row of n elements, x[i] comes before x[j] exactly where

    largest:      x[i] > x[j], or they are equal and i < j
    not largest:  x[i] < x[j], or they are equal and i < j

NaN is greater than every number and equal to every NaN; -0.0 equals 0.0. So the order of a row is
unique, and every implementation returns the same indices on every device, from any number of
threads. Values are the elements themselves, the sign of a zero included; of a NaN only that it is
one. Masked elements are ignored; a row that has fewer than k others is filled with index -1 and the
value that comes last in the order: -inf or the dtype's least for the largest, inf or its greatest
for the smallest.
Source: torch.topk, torch.sort(stable=True) and torch.kthvalue (torch 2.13) for NaN; torch leaves
the order of equal elements open.

A plugin that implements the contract imports this module, which imports torch only for type
checkers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from torchyard import ContractDefinition, RequestField, round_size
from torchyard_kernels._request_fields import parse_flag, parse_sizes

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "DEFINITIONS",
    "DTYPES",
    "TOPK",
    "Order",
    "TopKCall",
    "TopKKernel",
    "TopKRequest",
    "TopKResult",
]

TOPK: Final = "topk/1"

# What torch.topk computes; bool and complex numbers it refuses.
DTYPES: Final = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
)


class Order(StrEnum):
    """What of the first k is returned, and in which order.

    SORTED: all, best first. INDEX: all, in the order of their indices. LAST: the k-th alone.
    """

    SORTED = "sorted"
    INDEX = "index"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class TopKRequest:
    """Describe a call, without its tensors.

    Attributes:
        device: torch device type.
        dtype: the name of x's dtype, such as ``float32``.
        rows, length, k: sizes; above 16 rounded up to a power of two. Of segments, length is that
            of all together.
        largest: whether the greatest are asked for.
        order: what of them is returned.
        masked: whether a mask hides elements.
        segmented: whether rows are segments of one tensor.
        unit_stride: whether elements of a row lie side by side.
    """

    device: str
    dtype: str
    rows: int
    length: int
    k: int
    largest: bool = True
    order: Order = Order.SORTED
    masked: bool = False
    segmented: bool = False
    unit_stride: bool = True

    def __post_init__(self) -> None:
        for name in ("rows", "length", "k"):
            object.__setattr__(self, name, round_size(getattr(self, name)))

    def bucket(self) -> str:
        """Return the key under which the decision for this request is locked."""
        flags = [name for name in ("masked", "segmented") if getattr(self, name)]
        if not self.unit_stride:
            flags.append("strided")
        return " ".join(
            [
                self.device,
                self.dtype,
                f"{self.rows}x{self.length}",
                f"k{self.k}",
                "largest" if self.largest else "smallest",
                self.order,
                *flags,
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class TopKCall:
    """The tensors of a call.

    Attributes:
        x: [..., n], any strides; [n] where there are offsets.
        k: how many, 1 or more; at most n where neither a mask nor offsets make rows shorter.
        largest: whether the greatest are asked for.
        order: what of them is returned.
        mask: bool, of x's shape, any strides, those of a broadcast tensor included: True where an
            element is to be seen. None: all are.
        offsets: int64 [rows + 1], contiguous, rising, within 0 to n: row r is
            x[offsets[r]:offsets[r + 1]], and indices count from x's first element. None: rows are
            those of x.
    """

    x: Tensor
    k: int
    largest: bool
    order: Order
    mask: Tensor | None = None
    offsets: Tensor | None = None

    def request(self) -> TopKRequest:
        """Return the call's request; reads sizes, strides and dtypes only."""
        x, offsets = self.x, self.offsets
        length = x.shape[-1]
        rows = x.numel() // length if length else 0
        return TopKRequest(
            device=x.device.type,
            dtype=str(x.dtype)[6:],
            rows=rows if offsets is None else offsets.numel() - 1,
            length=length,
            k=self.k,
            largest=self.largest,
            order=self.order,
            masked=self.mask is not None,
            segmented=offsets is not None,
            unit_stride=length < 2 or x.stride(-1) == 1,
        )


class TopKResult(NamedTuple):
    """What an implementation returns: contiguous tensors that nothing else uses.

    Attributes:
        values: [..., k], or [..., 1] for the last alone, in x's dtype; [rows, k] for segments.
        indices: int64, likewise; -1 where a row has no k elements to be seen.
    """

    values: Tensor
    indices: Tensor


class TopKKernel(Protocol):
    """The callable that an implementation of ``topk/1`` loads.

    May have ``fast_path(request)``: see ``torchyard.dispatch``. The path takes ``topk``'s own
    arguments, (x, k, dim, largest, sorted); or ``kthvalue``'s, (x, k, dim), whose results lack the
    dimension; or ``masked_topk``'s, with the mask after topk's; or those of ``segmented_topk``,
    with None and the offsets after topk's, and a dim of -1.
    """

    def __call__(self, call: TopKCall) -> TopKResult:
        """Select. Must not keep, alias or change the inputs."""


_FIELDS: Final = (
    RequestField("device", "torch device type", "cpu"),
    RequestField("dtype", f"dtype of x: {', '.join(DTYPES)}", "float32"),
    RequestField("shape", "rows,length", "64,131072"),
    RequestField("k", "how many of each row", "64"),
    RequestField("largest", "whether the greatest are asked for", "true"),
    RequestField("order", f"{', '.join(Order)}", "sorted"),
    RequestField("masked", "whether a mask hides elements", "false"),
    RequestField("segmented", "whether rows are segments", "false"),
    RequestField("unit_stride", "whether a row's elements lie side by side", "true"),
)


def _parse_request(text: Mapping[str, str]) -> TopKRequest:
    """Build a request from text fields, those of ``torchyard explain topk``.

    Raises:
        ValueError: names the field, what was expected and what came.
    """
    rows, length = parse_sizes("shape", text["shape"], 2)
    if text["order"] not in set(Order):
        raise ValueError(f"order: expected one of {', '.join(Order)}, got {text['order']!r}")
    return TopKRequest(
        device=text["device"],
        dtype=text["dtype"],
        rows=rows,
        length=length,
        k=parse_sizes("k", text["k"], 1)[0],
        largest=parse_flag("largest", text["largest"]),
        order=Order(text["order"]),
        masked=parse_flag("masked", text["masked"]),
        segmented=parse_flag("segmented", text["segmented"]),
        unit_stride=parse_flag("unit_stride", text["unit_stride"]),
    )


def _representative_requests(device: str) -> Iterator[TopKRequest]:
    """Yield the requests whose decisions a release records."""
    for dtype in DTYPES:
        for rows, length in ((1, 50257), (64, 4096), (64, 131072)):
            for k in (1, 64, 1024):
                yield TopKRequest(device=device, dtype=dtype, rows=rows, length=length, k=k)
        yield TopKRequest(device=device, dtype=dtype, rows=64, length=4096, k=64, masked=True)
        yield TopKRequest(device=device, dtype=dtype, rows=64, length=4096, k=64, segmented=True)


DEFINITIONS: Final = {
    TOPK: ContractDefinition(
        contract=TOPK,
        summary="the first k of each row, equal elements by lowest index",
        fields=_FIELDS,
        parse=_parse_request,
        cases=_representative_requests,
    )
}
