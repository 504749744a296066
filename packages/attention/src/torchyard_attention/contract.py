"""The contracts ``attention/1`` and ``attention_backward/1``.

With B batches, Hq query heads, Hkv key heads, Sq queries, Sk keys, D head size, V value size and
query head h reading key head h // (Hq / Hkv)::

    raw[b, h, q, k]    = scale * sum_d query[b, h, q, d] * key[b, h // G, k, d]
    scores[b, h, q, k] = score_mod(raw[b, h, q, k], b, h, q, k)    where (q, k) is visible
                       = -inf                                     elsewhere
    lse[b, h, q]       = log(sum_k exp(scores[b, h, q, k]))
    out[b, h, q, v]    = sum_k exp(scores[b, h, q, k] - lse[b, h, q]) * value[b, h // G, k, v]

With dropout of probability p a weight counts for out divided by 1 - p, or as 0: which of them is a
function of the call's seed and of (b, h, q, k), see ``torchyard_attention.dropout``.

A row that sees no key has out 0, lse -inf and max_scores -inf. Nothing of a key or value that a
row does not see reaches that row, NaN and infinities included, and nothing of a row, of its query
and gradients, reaches the gradient of a key or value that it does not see. Scores, softmax and sums
are float32, or float64 where the inputs are. Source: FlashAttention-2 (arXiv 2307.08691) section 2
and FlexAttention (arXiv 2412.05496) section 3; empty rows as torch.nn.attention.flex_attention.

This module is what a plugin needs to serve attention. It imports torch only for type checkers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from torchyard import ContractDefinition, RequestField

if TYPE_CHECKING:
    from torch import Tensor

    from torchyard_attention.dropout import Dropout
    from torchyard_attention.pages import KeyPages

FORWARD: Final = "attention/1"
BACKWARD: Final = "attention_backward/1"

_E = TypeVar("_E", bound=StrEnum)

__all__ = [
    "BACKWARD",
    "DEFINITIONS",
    "FORWARD",
    "AttentionCall",
    "AttentionGradients",
    "AttentionRequest",
    "AttentionResult",
    "Backward",
    "Forward",
    "MaskBlocks",
    "MaskKind",
    "ScoreKind",
    "ScoreMod",
]


class ScoreKind(StrEnum):
    """What changes the scores."""

    NONE = "none"
    POINTWISE = "pointwise"
    GENERAL = "general"


class MaskKind(StrEnum):
    """What hides keys: nothing, exactly ``q >= k``, or a block mask of any other form."""

    NONE = "none"
    CAUSAL = "causal"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class AttentionRequest:
    """Describe a call, without its tensors. Both contracts use it.

    Attributes:
        device: torch device type.
        dtype: the name of query's, key's and value's dtype, such as ``bfloat16``.
        batch, q_length, kv_length: sizes; above 16 rounded up to a power of two, so that a growing
            cache of keys does not ask for a new decision at every step.
        q_heads, kv_heads: Hq, Hkv; the second divides the first.
        head_dim, value_dim: D, V.
        score: what changes the scores.
        mask: what hides keys.
        block_size: rows and keys per block of the mask; (0, 0) without one.
        lse: whether the log-sum-exp is an output.
        max_scores: whether each row's greatest score is an output.
        grad: whether gradients will be asked for; the forward then returns the lse too.
        unit_stride: whether the last dimension of query, key and value has stride 1.
        deterministic: whether torch was told to use deterministic algorithms.
        page_size: keys per page of a cache that holds key and value; 0 where they are contiguous.
            kv_length is then what the cache's table has room for.
        score_text: a pointwise score_mod's program, ``ScoreMod.text``, which
            ``torchyard_attention.programs`` reads; empty where there is none, or none is known.
        score_captured: dtype name and number of dimensions of the program's captured tensors.
        captured_grad: of each captured tensor, whether a backward is asked for its gradient; or ().
        dropout: whether weights are dropped.
    """

    device: str
    dtype: str
    batch: int
    q_heads: int
    kv_heads: int
    q_length: int
    kv_length: int
    head_dim: int
    value_dim: int
    score: ScoreKind = ScoreKind.NONE
    mask: MaskKind = MaskKind.NONE
    block_size: tuple[int, int] = (0, 0)
    lse: bool = False
    max_scores: bool = False
    grad: bool = False
    unit_stride: bool = True
    deterministic: bool = False
    score_text: str = ""
    score_captured: tuple[tuple[str, int], ...] = ()
    captured_grad: tuple[bool, ...] = ()
    page_size: int = 0
    dropout: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "q_length", "kv_length"):
            object.__setattr__(self, name, _round_up(getattr(self, name)))

    def bucket(self) -> str:
        """Return the key under which the decision for this request is locked.

        Of a score_mod it holds the kind alone: a lock is about sizes, not about programs.
        """
        names = ("lse", "max_scores", "grad", "deterministic", "dropout")
        flags = [name for name in names if getattr(self, name)]
        if not self.unit_stride:
            flags.append("strided")
        if self.page_size:
            flags.append(f"pages={self.page_size}")
        return " ".join(
            [
                self.device,
                self.dtype,
                f"q{self.q_heads}x{self.q_length}x{self.head_dim}",
                f"kv{self.kv_heads}x{self.kv_length}x{self.value_dim}",
                f"score={self.score}",
                f"mask={self.mask}",
                *flags,
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class MaskBlocks:
    """A mask as data: which blocks of (queries x keys) are visible, wholly or in part.

    With Bm in {1, B}, Hm in {1, Hq}, BQ rows and BK keys per block, Qb = ceil(Sq / BQ) and
    Kb = ceil(Sk / BK). A block that is listed nowhere is hidden. A list has as many places per row
    as its longest row needs, or more: its width says nothing about Kb, and what stands in places
    beyond a row's count may be anything.

    Attributes:
        block_size: (BQ, BK).
        kv_num_blocks: int32 [Bm, Hm, Qb]: how many blocks of a row of blocks are visible in part.
        kv_indices: int32 [Bm, Hm, Qb, any width]: which, in the first kv_num_blocks places.
        full_kv_num_blocks: int32 [Bm, Hm, Qb]: how many are visible whole.
        full_kv_indices: int32 [Bm, Hm, Qb, any width]: which; as wide as kv_indices or not.
        bits: uint8 [N, BQ, ceil(BK / 8)]: one bit per (row, key) of each partial block: bit k % 8
            of byte k // 8. Rows beyond Sq and keys beyond Sk are 0.
        first_partial: int64 [Bm, Hm, Qb]: where in ``bits`` the row of blocks begins; its j-th
            partial block, in the order of kv_indices, is ``bits[first_partial + j]``.

    All tensors are contiguous and lie on the query's device.
    """

    block_size: tuple[int, int]
    kv_num_blocks: Tensor
    kv_indices: Tensor
    full_kv_num_blocks: Tensor
    full_kv_indices: Tensor
    bits: Tensor
    first_partial: Tensor


class ScoreMod(Protocol):
    """A score modification that was traced: a program and the tensors that it captured."""

    @property
    def text(self) -> str:
        """The program's canonical text: equal texts mean equal structure."""

    @property
    def captured(self) -> tuple[Tensor, ...]:
        """The captured tensors, in the program's order."""

    def apply(
        self, score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor, *captured: Tensor
    ) -> Tensor:
        """Return the modified scores of a tile; differentiable in score and captured tensors.

        Args:
            score: raw scores [B', H', Q', K'], float32 or float64.
            b, h, q, k: int64 [B'], [H'], [Q'], [K']: the tile's indices.
            captured: used in place of :attr:`captured` where given.
        """


@dataclass(frozen=True, slots=True, eq=False)
class AttentionCall:
    """The tensors of a call.

    Attributes:
        query: [B, Hq, Sq, D]. key: [B, Hkv, Sk, D]. value: [B, Hkv, Sk, V]. Any strides.
        score_mod: changes the scores; None leaves them.
        mask: hides keys; None hides none.
        scale: multiplies the raw scores.
        lse, max_scores: whether the result must hold them.
        options: the call's kernel_options that are named for a plugin, by name, such as
            ``("cpu.rows_per_item", 256)``. They change speed alone; pass over other plugins'.
        captured_grad: of each captured tensor of score_mod, whether a backward shall return its
            gradient; only floating point ones have one. Empty: of none.
        pages: where key and value lie in a cache, and what shapes they have then; None: as above.
            Only a forward that says that it reads pages is given any. dropout: None drops nothing.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    score_mod: ScoreMod | None
    mask: MaskBlocks | None
    scale: float
    lse: bool
    max_scores: bool
    options: tuple[tuple[str, int], ...] = ()
    captured_grad: tuple[bool, ...] = ()
    pages: KeyPages | None = None
    dropout: Dropout | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AttentionResult:
    """What a forward returns.

    Attributes:
        out: [B, Hq, Sq, V], contiguous, in query's dtype.
        lse: [B, Hq, Sq], natural logarithm, contiguous, float32 (float64 for float64 inputs); None
            where it was not asked for.
        max_scores: [B, Hq, Sq], as lse; None where it was not asked for.
    """

    out: Tensor
    lse: Tensor | None = None
    max_scores: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AttentionGradients:
    """What a backward returns: contiguous, each in its input's shape and dtype.

    Attributes:
        query, key, value: gradients of the inputs.
        captured: gradients of the score_mod's captured tensors, in their order; None for those that
            the call's captured_grad does not ask for. Empty where it asks for none.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    captured: tuple[Tensor | None, ...] = ()


class Forward(Protocol):
    """The callable that an implementation of ``attention/1`` loads.

    May have ``reads_pages`` and ``fast_path``: see this package's modules of those names.
    """

    def __call__(self, call: AttentionCall) -> AttentionResult:
        """Compute the outputs. Must not keep, alias or change the inputs."""


class Backward(Protocol):
    """The callable that an implementation of ``attention_backward/1`` loads."""

    def __call__(
        self,
        call: AttentionCall,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
    ) -> AttentionGradients:
        """Compute gradients from what any forward returned.

        Args:
            call: the forward's call.
            out, lse: the forward's outputs; out with any strides.
            grad_out: [B, Hq, Sq, V], query's dtype, any strides.
            grad_lse: [B, Hq, Sq] or None.
        """


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


def _round_up(size: int) -> int:
    return size if size <= 16 else 1 << (size - 1).bit_length()


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
