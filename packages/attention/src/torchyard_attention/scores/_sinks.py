"""Attention sinks: a logit per head that takes weight and gives nothing."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchyard_attention._validation import floats


class SinkOutput(NamedTuple):
    """Attention with a sink.

    Attributes:
        out: [B, Hq, Sq, V], in the dtype that came in.
        lse: [B, Hq, Sq]: the log of the sum that includes the sink, as the lse that came in.
    """

    out: Tensor
    lse: Tensor


def sinks(out: Tensor, lse: Tensor, logits: Tensor) -> SinkOutput:
    """Add a sink to attention that was computed without one.

    A sink enlarges the softmax's sum by exp(logits[h]), so it changes no score and cannot be a
    score_mod. From the log-sum-exp the result follows exactly::

        out[b, h, q] * sigmoid(lse[b, h, q] - logits[h])

    Differentiable in all three, if attention was asked for its lse. For out in half precision it
    rounds once more than attention with a sink of its own would. A row that sees no key stays 0.

    Args:
        out: [B, Hq, Sq, V], from flex_attention.
        lse: [B, Hq, Sq], natural logarithm, from the same call.
        logits: floating point [Hq]; -inf is no sink.

    Raises:
        ValueError: shapes do not fit; names the argument.
    """
    floats("sinks", "out", out, "[B, Hq, Sq, V]", (4,))
    floats("sinks", "lse", lse, "[B, Hq, Sq]", (3,))
    floats("sinks", "logits", logits, "[Hq]", (1,))
    for name, tensor in (("lse", lse), ("logits", logits)):
        if tensor.device != out.device:
            raise ValueError(
                f"sinks: {name}: expected a tensor on {out.device}, as out, got one on "
                f"{tensor.device}"
            )
    if lse.shape != out.shape[:-1]:
        raise ValueError(
            f"sinks: lse: expected {list(out.shape[:-1])}, as out, got {list(lse.shape)}"
        )
    if logits.shape != (out.shape[1],):
        raise ValueError(f"sinks: logits: expected [{out.shape[1]}], got {list(logits.shape)}")
    sink = logits.to(lse.dtype)[:, None].expand_as(lse)
    # Without any key and any sink the sum is empty, and differences of infinities would be NaN.
    empty = torch.isneginf(lse) & torch.isneginf(sink)
    filled = torch.where(empty, 0.0, lse)
    weight = torch.sigmoid(filled - sink)
    total = torch.where(empty, -torch.inf, torch.logaddexp(filled, sink))
    return SinkOutput((out * weight[..., None]).to(out.dtype), total)
