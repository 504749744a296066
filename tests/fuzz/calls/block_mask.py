"""Calls of BlockMask's methods that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch import Tensor

from tests.fuzz.harness import call_of
from tests.fuzz.kinds import BOOL, FUNCTION, OTHER, REFUSED, Kind, choice, integer, optional
from torchyard_attention import BlockMask, as_block_mask, create_block_mask

__all__ = ["CALLS"]

_OF: Final = "torchyard_attention.BlockMask"


def _back(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def _mask() -> BlockMask:
    return create_block_mask(_back, None, None, 256, 256, device="cpu")


def _on(name: str) -> Callable[..., Any]:
    def run(**given: Any) -> Any:
        found = getattr(_mask(), name)(**given)
        return found.to_dense() if isinstance(found, BlockMask) else found

    return run


def _set(name: str) -> Callable[..., Any]:
    def run(**given: Any) -> Any:
        mask = _mask()
        setattr(mask, name, given[name])
        return mask.to_dense()

    return run


def _lists() -> dict[str, Any]:
    mask = _mask()
    return {
        "kv_num_blocks": mask.kv_num_blocks,
        "kv_indices": mask.kv_indices,
        "full_kv_num_blocks": mask.full_kv_num_blocks,
        "full_kv_indices": mask.full_kv_indices,
        "BLOCK_SIZE": 128,
        "mask_mod": _back,
        "seq_lengths": (256, 256),
        "compute_q_blocks": True,
        "dq_write_order": None,
        "dq_write_order_full": None,
        "dq_kv_order": None,
    }


_NUMBERS: Final = Kind(lambda v: v if isinstance(v, list | tuple) and not v else REFUSED, free=True)
# There is one batch.
_INDEX: Final = Kind(
    lambda v: v if isinstance(v, tuple) and v == () else integer(-1, 0).stands_for(v)
)
_ORDER: Final = Kind(
    lambda v: v if isinstance(v, Tensor) else optional(BOOL).stands_for(v), free=True
)

CALLS: Final = (
    call_of(
        f"{_OF}.from_kv_blocks",
        _lists,
        lambda **given: BlockMask.from_kv_blocks(**given).to_dense(),
        kv_num_blocks=Kind(lambda v: REFUSED, frozenset(("long", "uint8")), is_tensor=True),
        kv_indices=Kind(lambda v: REFUSED, frozenset(("long", "uint8")), is_tensor=True),
        full_kv_num_blocks=Kind(lambda v: REFUSED, frozenset(("long", "uint8")), is_tensor=True),
        full_kv_indices=Kind(lambda v: REFUSED, frozenset(("long", "uint8")), is_tensor=True),
        BLOCK_SIZE=integer(128, 128),
        mask_mod=optional(FUNCTION),
        seq_lengths=optional(OTHER),
        # torch's, which nothing here reads.
        dq_write_order=optional(_ORDER),
        dq_kv_order=_ORDER,
        calls=("mask_mod",),
    ),
    call_of(f"{_OF}.to", {"device": "cpu"}, _on("to"), device=choice("cpu")),
    call_of(f"{_OF}.as_tuple", {"flatten": True}, _on("as_tuple")),
    call_of(
        f"{_OF}.part",
        {"q_blocks": [0, 1], "kv_blocks": [0, 1]},
        _on("part"),
        q_blocks=_NUMBERS,
        kv_blocks=_NUMBERS,
    ),
    call_of(
        f"{_OF}.to_string",
        {"grid_size": 20, "limit": 4},
        _on("to_string"),
        grid_size=integer(-1, 1 << 40),
        limit=integer(0),
    ),
    call_of(f"{_OF}.__getitem__", {"index": 0}, _on("__getitem__"), index=_INDEX),
    call_of(f"{_OF}.mask_mod", {"mask_mod": _back}, _set("mask_mod"), mask_mod=FUNCTION),
    call_of(f"{_OF}.seq_lengths", {"seq_lengths": (256, 256)}, _set("seq_lengths")),
    call_of(
        "torchyard_attention.as_block_mask",
        lambda: {"block_mask": _mask()},
        as_block_mask,
        block_mask=Kind(lambda v: None if v is None else REFUSED),
    ),
)
