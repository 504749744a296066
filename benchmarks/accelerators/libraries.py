"""Attention of libraries that no plugin wraps, as contestants where they are installed.

Arguments are those of FlashAttention-3's ``hopper/flash_attn_interface.py`` (November 2026) and of
FlashInfer's documentation (docs.flashinfer.ai, ``flashinfer.prefill`` and ``flashinfer.decode``).
Both were read, and neither was run: no machine with a GPU had them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.accelerators.cases import RaceCase
from torchyard_attention.contract import AttentionCall, AttentionResult

__all__ = ["LIBRARIES", "Library", "contestants"]

_WORKSPACE: Final = 128 << 20
# Keys of one page of FlashInfer's cache.
_PAGE: Final = 16
# Masks that both have as an argument.
_MASKS: Final = frozenset({"none", "causal"})
_NO_SCORE: Final = "none"

Run = Callable[[], AttentionResult]


@dataclass(frozen=True, slots=True)
class Library:
    """One library.

    Attributes:
        module: what is imported.
        prepare: (module, call, causal) to what is timed; copies and plans are made before.
        one_sequence: whether its function for many rows takes one sequence alone.
    """

    module: str
    prepare: Callable[[Any, AttentionCall, bool], Callable[[], Tensor]]
    one_sequence: bool = False

    def absence(self) -> str:
        """Return why it takes no part; the empty string where nothing speaks against it."""
        return "" if find_spec(self.module) is not None else f"{self.module} is not installed"

    def computes(self, case: RaceCase) -> bool:
        """Return whether a case is one of its."""
        if case.mask not in _MASKS or case.score != _NO_SCORE:
            return False
        return not self.one_sequence or case.batch == 1 or case.q_length == 1

    def run_of(self, call: AttentionCall, causal: bool) -> Run:
        """Return what computes a call, which is prepared now."""
        compute = self.prepare(import_module(self.module), call, causal)
        # [B, S, H, D] as it comes; ours is [B, H, S, D].
        return lambda: AttentionResult(compute().movedim(1, 2))


def contestants(case: RaceCase) -> tuple[Mapping[str, Library], Mapping[str, str]]:
    """Return the libraries that compute a case, by name; and those that are absent, with why."""
    found = {name: item for name, item in LIBRARIES.items() if item.computes(case)}
    absent = {name: why for name, item in found.items() if (why := item.absence())}
    return {name: item for name, item in found.items() if name not in absent}, absent


def _rows_first(x: Tensor) -> Tensor:
    return x.detach().movedim(1, 2).contiguous()


def _flash_attention(module: Any, call: AttentionCall, causal: bool) -> Callable[[], Tensor]:
    query, key, value = map(_rows_first, (call.query, call.key, call.value))
    if query.shape[1] == 1:
        # The one that splits a long row of keys among multiprocessors.
        return lambda: module.flash_attn_with_kvcache(query, key, value, softmax_scale=call.scale)

    def run() -> Tensor:
        found = module.flash_attn_func(query, key, value, softmax_scale=call.scale, causal=causal)
        # Its first versions returned the log-sum-exp too.
        out: Tensor = found[0] if isinstance(found, tuple) else found
        return out

    return run


def _flashinfer(module: Any, call: AttentionCall, causal: bool) -> Callable[[], Tensor]:
    query, key, value = map(_rows_first, (call.query, call.key, call.value))
    if query.shape[1] == 1:
        return _paged_decode(module, query, key, value, call.scale)
    one, keys, values = query[0], key[0], value[0]

    def run() -> Tensor:
        out: Tensor = module.single_prefill_with_kv_cache(
            one, keys, values, causal=causal, sm_scale=call.scale
        )
        return out.unsqueeze(0)

    return run


def _paged_decode(
    module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> Callable[[], Tensor]:
    batch, length, heads, size = key.shape
    pages = -(-length // _PAGE)
    keys, values = (
        F.pad(x, (0, 0, 0, 0, 0, pages * _PAGE - length)).view(batch * pages, _PAGE, heads, size)
        for x in (key, value)
    )
    whole: dict[str, Any] = {"dtype": torch.int32, "device": key.device}
    wrapper = module.BatchDecodeWithPagedKVCacheWrapper(
        torch.zeros(_WORKSPACE, dtype=torch.uint8, device=key.device),
        "NHD",
        # For heads that share keys, as its documentation recommends.
        use_tensor_cores=query.shape[2] > heads,
    )
    wrapper.plan(
        torch.arange(batch + 1, **whole) * pages,
        torch.arange(batch * pages, **whole),
        torch.full((batch,), length - (pages - 1) * _PAGE, **whole),
        query.shape[2],
        heads,
        size,
        _PAGE,
        q_data_type=query.dtype,
        kv_data_type=key.dtype,
        sm_scale=scale,
    )
    rows = query[:, 0].contiguous()
    return lambda: wrapper.run(rows, (keys, values)).unsqueeze(1)


LIBRARIES: Final[Mapping[str, Library]] = MappingProxyType(
    {
        "flash-attention-3": Library("flash_attn_interface", _flash_attention),
        "flashinfer": Library("flashinfer", _flashinfer, one_sequence=True),
    }
)
