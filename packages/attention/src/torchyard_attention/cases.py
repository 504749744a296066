"""The grid of calls on which every implementation is compared with the reference.

Each case varies one thing around a small call: dtypes, head sizes, lengths about the edges of
blocks and tiles, groups of heads, masks, score modifications, outputs and strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionRequest
from torchyard_attention.testing import make_call, request_of, traced_mask_mod

__all__ = ["CASES", "MASKS", "MASK_MODS", "SCORE_MODS", "Case"]

# (B, Hq, Sq, Sk) -> bool [Bm, Hm, Sq, Sk]
_Mask = Callable[[int, int, int, int], Tensor]
_Function = Callable[..., Any]


def _causal(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    q, k = torch.arange(q_length).unsqueeze(1), torch.arange(kv_length)
    return (q >= k)[None, None]


def _window(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    q, k = torch.arange(q_length).unsqueeze(1), torch.arange(kv_length)
    return ((q >= k) & (q - k < 50))[None, None]


def _documents(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    starts = torch.arange(1, batch + 1).view(-1, 1, 1, 1) * 37
    q, k = torch.arange(q_length).unsqueeze(1), torch.arange(kv_length)
    return (q // starts == k // starts) & (q >= k)


def _random(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.rand((1, 1, q_length, kv_length), generator=generator) < 0.4


def _per_head(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    q, k = torch.arange(q_length).unsqueeze(1), torch.arange(kv_length)
    return ((q - k).abs() < 20 * torch.arange(1, heads + 1).view(-1, 1, 1))[None]


def _per_batch_and_head(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    generator = torch.Generator().manual_seed(8)
    blocks = torch.rand(
        (batch, heads, -(-q_length // 16), -(-kv_length // 16)), generator=generator
    )
    dense = (blocks < 0.5).repeat_interleave(16, dim=2).repeat_interleave(16, dim=3)
    return dense[:, :, :q_length, :kv_length] & _window(batch, heads, q_length, kv_length)


def _empty_rows(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    visible = _causal(batch, heads, q_length, kv_length).clone()
    visible[..., ::3, :] = False
    visible[..., : q_length // 2, :] = False
    return visible


def _nothing(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    return torch.zeros((1, 1, q_length, kv_length), dtype=torch.bool)


def _everything(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    return ~_nothing(batch, heads, q_length, kv_length)


MASKS: Final[Mapping[str, _Mask]] = MappingProxyType(
    {
        "causal": _causal,
        "window": _window,
        "documents": _documents,
        "random": _random,
        "per_head": _per_head,
        "per_batch_and_head": _per_batch_and_head,
        "empty_rows": _empty_rows,
        "nothing": _nothing,
        "everything": _everything,
    }
)


def _window_mod() -> _Function:
    return lambda b, h, q, k: (q >= k) & (q - k < 50)


def _documents_mod() -> _Function:
    starts = torch.arange(1, 10) * 37
    return lambda b, h, q, k: (q // starts[b] == k // starts[b]) & (q >= k)


def _per_head_mod() -> _Function:
    widths = 20 * torch.arange(1, 10, dtype=torch.int32)
    return lambda b, h, q, k: (q - k).abs() < widths[h]


# Functions that show what the masks of these names show, for up to nine batches and heads.
MASK_MODS: Final[Mapping[str, Callable[[], _Function]]] = MappingProxyType(
    {"window": _window_mod, "documents": _documents_mod, "per_head": _per_head_mod}
)


def _alibi() -> _Function:
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.5, 0.25, 0.125, 0.0625])
    return lambda score, b, h, q, k: score + slopes[h] * (k - q)


def _softcap() -> _Function:
    return lambda score, b, h, q, k: 3.0 * torch.tanh(score / 3.0)


def _relative_bias() -> _Function:
    table = torch.linspace(-1.0, 1.0, 41)
    return lambda score, b, h, q, k: score + table[torch.clamp(q - k, -20, 20) + 20]


def _gate() -> _Function:
    gate = torch.tensor(1.5)
    return lambda score, b, h, q, k: score * gate


def _gated_alibi() -> _Function:
    slopes, gate = torch.linspace(0.1, 0.4, 8), torch.tensor(1.5)
    return lambda score, b, h, q, k: gate * score + slopes[h] * (k - q)


def _batch_bias_bfloat16() -> _Function:
    bias = torch.tensor([[0.5, -0.5, 1.0, 0.0]] * 3, dtype=torch.bfloat16)
    return lambda score, b, h, q, k: score + bias[b, h % 4]


def _hides_by_score() -> _Function:
    return lambda score, b, h, q, k: torch.where(q % 4 == 0, -math.inf, score)


def _ignores_score() -> _Function:
    return lambda score, b, h, q, k: (q - k) * 0.01


def _undefined_where_hidden() -> _Function:
    # Infinite or NaN where q < k, which a causal mask hides.
    return lambda score, b, h, q, k: score / torch.sqrt((q - k + 1) * 1.0)


SCORE_MODS: Final[Mapping[str, Callable[[], _Function]]] = MappingProxyType(
    {
        "alibi": _alibi,
        "softcap": _softcap,
        "relative_bias": _relative_bias,
        "gate": _gate,
        "gated_alibi": _gated_alibi,
        "batch_bias_bfloat16": _batch_bias_bfloat16,
        "hides_by_score": _hides_by_score,
        "ignores_score": _ignores_score,
        "undefined_where_hidden": _undefined_where_hidden,
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the grid.

    Attributes:
        name: unique and readable.
        sizes: arguments of :func:`torchyard_attention.testing.make_call`.
        mask: a key of MASKS, or empty.
        score_mod: a key of SCORE_MODS, or empty.
        layout: ``contiguous``, ``transposed`` ([B, S, H, D] in memory), ``strided`` (every second
            element of the last dimension), ``expanded`` (one key head's memory for all),
            ``padded`` (rows three elements apart) or ``offset`` (one element behind the start of
            its memory, so that no vector is aligned).
        recorded: whether the mask has a program, that of MASK_MODS.
    """

    name: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    mask: str = ""
    score_mod: str = ""
    layout: str = "contiguous"
    recorded: bool = False

    def call(self, device: str = "cpu") -> AttentionCall:
        """Build the call."""
        sizes = {"batch": 2, "q_heads": 4, "q_length": 64, "head_dim": 32, **self.sizes}
        sizes.setdefault("kv_length", sizes["q_length"])
        visible = None
        if self.mask:
            shape = (sizes["batch"], sizes["q_heads"], sizes["q_length"], sizes["kv_length"])
            visible = MASKS[self.mask](*shape)
        call = make_call(
            **sizes,
            device=device,
            visible=visible,
            score_mod=SCORE_MODS[self.score_mod]() if self.score_mod else None,
        )
        if self.recorded:
            assert visible is not None
            shape = (visible.shape[0], visible.shape[1], *shape[2:])
            size = sizes.get("block_size", (128, 128))
            mask = traced_mask_mod(MASK_MODS[self.mask](), shape, size, device)
            call = replace(call, mask=mask)
        if self.layout == "contiguous":
            return call
        query, key, value = (_LAYOUTS[self.layout](t) for t in (call.query, call.key, call.value))
        return replace(call, query=query, key=key, value=value)

    def request(self, call: AttentionCall, *, grad: bool = False) -> AttentionRequest:
        """Describe the call."""
        return request_of(call, causal=self.mask == "causal", grad=grad)


_LAYOUTS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = MappingProxyType(
    {
        "transposed": lambda tensor: tensor.transpose(1, 2).contiguous().transpose(1, 2),
        "strided": lambda tensor: torch.stack([tensor, tensor], dim=-1).flatten(-2)[..., ::2],
        "expanded": lambda tensor: tensor[:, :1].expand_as(tensor),
        "padded": lambda tensor: torch.nn.functional.pad(tensor, (0, 3))[..., : tensor.shape[-1]],
        "offset": lambda tensor: torch.nn.functional.pad(tensor.flatten(), (1, 0))[1:].view(
            tensor.shape
        ),
    }
)


def _cases() -> dict[str, Case]:
    low = (torch.bfloat16, torch.float16)
    # Of several tiles, with no gradient of what the function captures.
    fixed = {"kv_heads": 2, "q_length": 150, "captured_grad": False}
    cases = [Case("plain"), Case("causal", mask="causal")]
    for dtype in (torch.float64, *low):
        short = str(dtype).removeprefix("torch.")
        cases += [
            Case(short, {"dtype": dtype}),
            Case(f"{short}-causal", {"dtype": dtype, "q_length": 129}, "causal"),
            Case(f"{short}-window-alibi", {"dtype": dtype, "q_length": 200}, "window", "alibi"),
        ]
    for head_dim in (1, 8, 17, 40, 72, 80, 96, 256):
        cases.append(Case(f"head_dim-{head_dim}", {"head_dim": head_dim}, "causal"))
    cases += [
        Case("value_dim-16", {"value_dim": 16}, "window"),
        Case("value_dim-96", {"value_dim": 96}),
    ]
    lengths = (
        (0, 5),
        (5, 0),
        (0, 0),
        (1, 1),
        (1, 257),
        (7, 1),
        (7, 129),
        (127, 128),
        (128, 127),
        (129, 129),
        (257, 130),
    )
    for q_length, kv_length in lengths:
        both = {"q_length": q_length, "kv_length": kv_length}
        cases.append(Case(f"lengths-{q_length}-{kv_length}", both))
        cases.append(Case(f"lengths-{q_length}-{kv_length}-causal", both, "causal"))
    cases += [
        Case("keys-of-several-pieces", {"q_length": 3, "kv_length": 5000, "batch": 1}),
        Case("keys-of-several-pieces-mask", {"q_length": 130, "kv_length": 2500}, "random"),
        Case("batch-0", {"batch": 0}),
        Case("grouped-2", {"kv_heads": 2}, "window"),
        Case("grouped-1", {"kv_heads": 1}, "causal", "alibi"),
        Case("grouped-plain", {"kv_heads": 2}),
        Case("grouped-decoding", {"kv_heads": 2, "q_length": 1, "kv_length": 300}),
        Case("bfloat16-grouped-alibi", {"dtype": torch.bfloat16, **fixed}, "causal", "alibi"),
        Case("bfloat16-grouped-softcap", {"dtype": torch.bfloat16, **fixed}, "", "softcap"),
        Case("grouped-6-of-3", {"q_heads": 6, "kv_heads": 3}, "per_head"),
    ]
    for mask in MASKS:
        cases.append(Case(f"mask-{mask}", {"q_length": 150, "kv_length": 140}, mask))
        small = {"q_length": 100, "kv_length": 90, "block_size": (16, 24), "kv_heads": 2}
        cases.append(Case(f"mask-{mask}-small-blocks", small, mask))
    cases += [
        Case("mask-wide-blocks", {"q_length": 400, "block_size": (512, 4096)}, "window"),
        Case("mask-odd-blocks", {"q_length": 100, "block_size": (20, 13)}, "window"),
        Case("mask-full-as-partial", {"q_length": 150, "separate_full_blocks": False}, "window"),
    ]
    for score_mod in SCORE_MODS:
        cases.append(Case(f"score-{score_mod}", {"q_length": 70}, "causal", score_mod))
        if score_mod != "undefined_where_hidden":
            cases.append(Case(f"score-{score_mod}-alone", {"kv_heads": 2}, "", score_mod))
    for layout in _LAYOUTS:
        cases.append(Case(f"layout-{layout}", layout=layout))
        cases.append(Case(f"layout-{layout}-window", {"kv_heads": 2}, "window", "", layout))
    cases += [
        Case("dropout", {"dropout_p": 0.25}),
        Case("dropout-window-alibi", {"dropout_p": 0.5, "q_length": 150}, "window", "alibi"),
        Case("dropout-grouped", {"dropout_p": 0.1, "kv_heads": 2, "kv_length": 135}, "causal"),
        Case("dropout-bfloat16", {"dropout_p": 0.1, "dtype": torch.bfloat16}, "per_head"),
        Case("dropout-everything", {"dropout_p": 1.0}, "causal"),
        Case("without-lse", {"lse": False}),
        Case("without-lse-score", {"lse": False, "q_length": 200}, "window", "alibi"),
        Case("max_scores", {"max_scores": True}, "empty_rows", "alibi"),
        Case("scale", {"scale": 0.5}, "causal"),
        Case("scale-negative", {"scale": -0.25}, "window"),
        Case("scale-0", {"scale": 0.0}, "window"),
    ]
    return {case.name: case for case in cases}


CASES: Final[Mapping[str, Case]] = MappingProxyType(_cases())
