"""The calls that implementations race on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call

__all__ = ["CASES", "RaceCase", "call_of", "torch_backward"]

_WINDOW: Final = 512


def _visible(mask: str, rows: int, keys: int) -> Tensor | None:
    row = torch.arange(rows)[:, None] + keys - rows
    key = torch.arange(keys)
    causal = row >= key
    shown = {"none": None, "causal": causal, "window": causal & (row - key < _WINDOW)}
    return shown[mask]


def _alibi(heads: int, device: str = "cpu") -> Callable[..., Any]:
    slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1, device=device) / heads)
    return lambda s, b, h, q, k: s + slopes[h] * (k - q)


def _softcap(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 20.0 * torch.tanh(s / 20.0)


# By name: returns the function for some heads, with what it captures on a device.
_SCORES: Final[Mapping[str, Callable[[int, str], Callable[..., Any] | None]]] = MappingProxyType(
    {
        "none": lambda heads, device: None,
        "alibi": _alibi,
        "softcap": lambda heads, device: _softcap,
    }
)


@dataclass(frozen=True, slots=True)
class RaceCase:
    """A call's sizes.

    Attributes:
        batch, q_heads, kv_heads, q_length, kv_length, head_dim: sizes.
        mask: none, causal or window.
        score: none, alibi or softcap.
        training: whether gradients are timed too.
    """

    batch: int = 1
    q_heads: int = 32
    kv_heads: int = 8
    q_length: int = 4096
    kv_length: int = 4096
    head_dim: int = 128
    mask: str = "none"
    score: str = "none"
    training: bool = True

    @property
    def operations(self) -> float:
        """Multiplications and additions of a forward, of visible pairs alone."""
        visible = _visible(self.mask, self.q_length, self.kv_length)
        pairs = self.q_length * self.kv_length if visible is None else int(visible.sum())
        return 4.0 * self.batch * self.q_heads * pairs * self.head_dim

    @property
    def size(self) -> float:
        """Bytes of query, key, value and output in half precision."""
        rows = self.q_heads * self.q_length + self.kv_heads * self.kv_length
        return 4.0 * self.batch * rows * self.head_dim


CASES: Final[Mapping[str, RaceCase]] = MappingProxyType(
    {
        "plain": RaceCase(),
        "causal": RaceCase(mask="causal"),
        "causal-64": RaceCase(mask="causal", head_dim=64, q_heads=16, kv_heads=16),
        "window": RaceCase(mask="window"),
        "alibi": RaceCase(mask="causal", score="alibi"),
        "softcap": RaceCase(score="softcap"),
        "decode": RaceCase(batch=8, q_length=1, kv_length=8192, training=False),
    }
)


def call_of(
    case: RaceCase, *, dtype: torch.dtype, device: str, shortened: bool = False
) -> tuple[AttentionCall, bool]:
    """Build a call, and say whether its mask is exactly the causal one.

    Args:
        case: its sizes.
        dtype, device: of the inputs.
        shortened: to lengths at which a reference in float64 fits in memory.
    """
    rows, keys = case.q_length, case.kv_length
    if shortened:
        rows, keys = min(rows, 300), min(keys, 300)
    call = make_call(
        batch=case.batch,
        q_heads=case.q_heads,
        kv_heads=case.kv_heads,
        q_length=rows,
        kv_length=keys,
        head_dim=case.head_dim,
        dtype=dtype,
        device=device,
        visible=_visible(case.mask, rows, keys),
        score_mod=_SCORES[case.score](case.q_heads, "cpu"),
        captured_grad=False,
    )
    return call, case.mask == "causal" and rows == keys


def torch_backward(case: RaceCase, call: AttentionCall, grad_out: Tensor) -> Callable[[], Any]:
    """Return the backward of torch's flex_attention, compiled, for a case's call."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    device = str(call.query.device)
    masks: dict[str, Callable[..., Any]] = {
        "causal": lambda b, h, q, k: q >= k,
        "window": lambda b, h, q, k: (q >= k) & (q - k < _WINDOW),
    }
    mask = None
    if case.mask != "none":
        sizes = (case.q_length, case.kv_length)
        mask = create_block_mask(masks[case.mask], None, None, *sizes, device=device)
    score = _SCORES[case.score](case.q_heads, device)
    query, key, value = (x.detach().requires_grad_() for x in (call.query, call.key, call.value))
    compiled: Callable[..., Any] = torch.compile(flex_attention, dynamic=False)
    options = {"score_mod": score, "block_mask": mask, "scale": call.scale, "enable_gqa": True}
    out = compiled(query, key, value, **options)
    return lambda: torch.autograd.grad(out, (query, key, value), grad_out, retain_graph=True)
