"""Both contracts as the registry knows them: a request as text, and the requests of a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from torchyard import ContractDefinition, RequestField
from torchyard_attention.contract._request import AttentionRequest, MaskKind, ScoreKind

__all__ = ["BACKWARD", "DEFINITIONS", "FORWARD"]

FORWARD: Final = "attention/1"
BACKWARD: Final = "attention_backward/1"

_E = TypeVar("_E", bound=StrEnum)

_FIELDS: Final = (
    RequestField("device", "torch device type", "cpu"),
    RequestField("dtype", "dtype of query, key and value", "float32"),
    RequestField("shape", "query's shape: batch,heads,length,head_dim", "1,8,2048,64"),
    RequestField("kv_heads", "key and value heads; 0: as query", "0"),
    RequestField("kv_length", "keys; -1: as query", "-1"),
    RequestField("value_dim", "value's head size; 0: as query", "0"),
    RequestField("score", "none, pointwise or general", "none"),
    RequestField("mask", "none, causal or blocks", "none"),
    RequestField("block_size", "rows,keys per block of the mask", "128,128"),
    RequestField("lse", "whether the lse is returned", "false"),
    RequestField("max_scores", "whether the greatest scores are returned", "false"),
    RequestField("grad", "whether gradients will be asked for", "false"),
    RequestField("unit_stride", "whether the last dimensions are contiguous", "true"),
    RequestField("deterministic", "whether algorithms must be deterministic", "false"),
    RequestField("page_size", "keys per page of a cache; 0: keys are contiguous", "0"),
    RequestField("score_text", "the program of a pointwise score, lines joined by \\n", ""),
    RequestField("score_captured", "dtype:dimensions of each captured tensor, commas between", ""),
    RequestField("dropout", "whether weights are dropped at random", "false"),
    RequestField("captured_grad", "whether each one's gradient is asked for, commas between", ""),
    RequestField("mask_text", "the program of a block mask, as score_text", ""),
    RequestField("mask_captured", "what it captures, as score_captured", ""),
)


def _parse_request(text: Mapping[str, str]) -> AttentionRequest:
    """Build a request from text fields, those of ``torchyard explain attention``.

    Raises:
        ValueError: names the field, what was expected and what came.
    """
    batch, heads, length, head_dim = _integers("shape", text["shape"], 4)
    kv_heads = _integers("kv_heads", text["kv_heads"], 1)[0] or heads
    kv_length = _integers("kv_length", text["kv_length"], 1)[0]
    mask = _choice("mask", text["mask"], MaskKind)
    rows, keys = _integers("block_size", text["block_size"], 2)
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"kv_heads: expected a divisor of {heads} query heads, got {kv_heads}")
    return AttentionRequest(
        device=text["device"],
        dtype=text["dtype"],
        batch=batch,
        q_heads=heads,
        kv_heads=kv_heads,
        q_length=length,
        kv_length=length if kv_length < 0 else kv_length,
        head_dim=head_dim,
        value_dim=_integers("value_dim", text["value_dim"], 1)[0] or head_dim,
        score=_choice("score", text["score"], ScoreKind),
        mask=mask,
        block_size=(0, 0) if mask is MaskKind.NONE else (rows, keys),
        lse=_flag("lse", text["lse"]),
        max_scores=_flag("max_scores", text["max_scores"]),
        grad=_flag("grad", text["grad"]),
        unit_stride=_flag("unit_stride", text["unit_stride"]),
        deterministic=_flag("deterministic", text["deterministic"]),
        page_size=_integers("page_size", text["page_size"], 1)[0],
        dropout=_flag("dropout", text["dropout"]),
        score_text=text["score_text"].replace("\\n", "\n"),
        score_captured=_captured("score_captured", text["score_captured"]),
        captured_grad=tuple(
            _flag("captured_grad", part)
            for part in text["captured_grad"].split(",")
            if text["captured_grad"]
        ),
        mask_text=text["mask_text"].replace("\\n", "\n"),
        mask_captured=_captured("mask_captured", text["mask_captured"]),
    )


def _representative_requests(device: str) -> Iterator[AttentionRequest]:
    """Yield the requests whose decisions a release records: training, prefill and decoding."""
    for dtype in ("float32", "bfloat16", "float16"):
        for q_length, kv_length in ((1, 4096), (128, 128), (2048, 2048)):
            for score in (ScoreKind.NONE, ScoreKind.POINTWISE):
                for mask in MaskKind:
                    for grad in (False, True):
                        yield AttentionRequest(
                            device=device,
                            dtype=dtype,
                            batch=1,
                            q_heads=32,
                            kv_heads=8,
                            q_length=q_length,
                            kv_length=kv_length,
                            head_dim=128,
                            value_dim=128,
                            score=score,
                            mask=mask,
                            block_size=(0, 0) if mask is MaskKind.NONE else (128, 128),
                            grad=grad,
                        )


DEFINITIONS: Final = {
    FORWARD: ContractDefinition(
        contract=FORWARD,
        summary="attention with modified scores and block masks: outputs",
        fields=_FIELDS,
        parse=_parse_request,
        cases=_representative_requests,
    ),
    BACKWARD: ContractDefinition(
        contract=BACKWARD,
        summary="attention with modified scores and block masks: gradients",
        fields=_FIELDS,
        parse=_parse_request,
        cases=lambda device: (r for r in _representative_requests(device) if r.grad),
    ),
}


def _integers(name: str, text: str, count: int) -> list[int]:
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count or any(value < -1 for value in values):
        raise ValueError(f"{name}: expected {count} integers with commas between, got {text!r}")
    return values


def _captured(name: str, text: str) -> tuple[tuple[str, int], ...]:
    traits = []
    for part in text.split(",") if text else ():
        dtype, _, ndim = part.partition(":")
        if not dtype.isidentifier() or not ndim.isdigit():
            raise ValueError(f"{name}: expected dtype:dimensions such as float32:1, got {part!r}")
        traits.append((dtype, int(ndim)))
    return tuple(traits)


def _flag(name: str, text: str) -> bool:
    values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in values:
        raise ValueError(f"{name}: expected true or false, got {text!r}")
    return values[text.lower()]


def _choice(name: str, text: str, kind: type[_E]) -> _E:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}: expected one of {', '.join(kind)}, got {text!r}") from None
