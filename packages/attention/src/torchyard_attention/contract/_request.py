"""What a call asks for, without its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from torchyard import ReasonCode, Verdict, round_size

__all__ = [
    "AttentionRequest",
    "MaskKind",
    "ScoreKind",
    "lacking_of_score",
    "refused_programs",
    "refused_sizes",
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
        mask_text: the program of a block mask where it is pointwise, ``MaskSource.text``; empty
            where there is none, or none is known.
        mask_captured: dtype name and number of dimensions of the mask program's captured tensors.
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
    mask_text: str = ""
    mask_captured: tuple[tuple[str, int], ...] = ()
    page_size: int = 0
    dropout: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "q_length", "kv_length"):
            object.__setattr__(self, name, round_size(getattr(self, name)))

    def bucket(self) -> str:
        """Return the key under which the decision for this request is locked.

        Of a score_mod and a mask it holds the kind alone: a lock is about sizes, not about
        programs.
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


def refused_sizes(
    request: AttentionRequest, dtypes: Sequence[str], max_head_dim: int
) -> Verdict | None:
    """Refuse other dtypes, heads that are too large, and dropout; None where there is none of it.

    Args:
        request: the call.
        dtypes: names of those that are computed, two or more.
        max_head_dim: of queries and keys, and of values.
    """
    if request.dtype not in dtypes:
        known = f"{', '.join(dtypes[:-1])} and {dtypes[-1]}"
        return Verdict.no(ReasonCode.DTYPE, f"computes {known}; got {request.dtype}")
    for field in ("head_dim", "value_dim"):
        size = getattr(request, field)
        if not 1 <= size <= max_head_dim:
            return Verdict.no(
                ReasonCode.HEAD_DIM, f"{field}: expected 1 to {max_head_dim}, got {size}"
            )
    if request.dropout:
        return Verdict.no(
            ReasonCode.DROPOUT, "computes with all weights, got dropout", "use attention.tiled"
        )
    return None


def refused_programs(request: AttentionRequest, others: str) -> Verdict | None:
    """Refuse what kernels without programs lack: dropout of ours, score_mods, masks but the causal.

    Pages, max_scores and empty sizes too; None where there is none of it.

    Args:
        request: the call.
        others: who computes it, for the hint.
    """
    if request.dropout:
        return Verdict.no(
            ReasonCode.DROPOUT, "drops weights by a mask of its own, or none", "use attention.tiled"
        )
    if request.score is not ScoreKind.NONE:
        return Verdict.no(
            ReasonCode.SCORE_MOD,
            f"computes unmodified scores, got a {request.score} score_mod",
            others,
        )
    if request.mask is MaskKind.BLOCKS:
        return Verdict.no(
            ReasonCode.MASK,
            "knows no mask but the causal one, and would compute every block of another",
            others,
        )
    if request.page_size:
        return Verdict.no(
            ReasonCode.LAYOUT, "reads contiguous keys, got the pages of a cache", others
        )
    if request.max_scores:
        return Verdict.no(ReasonCode.OUTPUT, "does not return max_scores", others)
    for name in ("batch", "q_length", "kv_length", "head_dim", "value_dim"):
        if getattr(request, name) == 0:
            return Verdict.no(ReasonCode.SHAPE, f"needs sizes above 0, got {name} 0", others)
    return None


def lacking_of_score(request: AttentionRequest, lacking_of_program: Callable[[], str]) -> str:
    """Return what a request's score_mod needs and kernels lack; empty where they compute it.

    Args:
        request: the call.
        lacking_of_program: the same of ``request.score_text``, asked for where there is one.
    """
    if request.score is ScoreKind.NONE:
        return ""
    if request.score is not ScoreKind.POINTWISE:
        return f"expected a pointwise score_mod, got a {request.score} one"
    if not request.score_text:
        return "judges a score_mod by its program, and the request has no score_text"
    return lacking_of_program()
