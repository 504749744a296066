"""A call and its results, and the callables that compute one from the other."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from torchyard_attention.dropout import Dropout

__all__ = [
    "AttentionCall",
    "AttentionGradients",
    "AttentionResult",
    "Backward",
    "Forward",
    "KeyPages",
    "MaskBlocks",
    "MaskSource",
    "ScoreMod",
]


@dataclass(frozen=True, slots=True, eq=False)
class MaskSource:
    """The program that the bits of a mask were evaluated from.

    An implementation may evaluate it within the blocks that are listed as partially visible, in
    place of reading their bits: for each query and key that there is, both say the same. Of other
    blocks the lists decide, whatever the program says. The op evaluates the bits again where a
    captured tensor was changed in place since, so that a call's bits are up to date.

    Attributes:
        text: the program of the mask_mod, over the indices b, h, q and k of the whole call.
        captured: the tensors that it captures, in the program's order, with any strides.
        versions: their version counters when the bits were evaluated; -1 for a tensor that has
            none. Empty where they are not followed, as inside a compiled graph.
    """

    text: str
    captured: tuple[Tensor, ...]
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MaskBlocks:
    """A mask as data: which blocks of (queries x keys) are visible, fully or in part.

    With Bm in {1, B}, Hm in {1, Hq}, BQ rows and BK keys per block, Qb = ceil(Sq / BQ) and
    Kb = ceil(Sk / BK). A block in no list is hidden. A list has at least as many entries per row as
    its longest row needs; its width does not imply Kb, and entries beyond a row's count are
    undefined.

    Attributes:
        block_size: (BQ, BK).
        kv_num_blocks: int32 [Bm, Hm, Qb]: the number of partially visible blocks per row of blocks.
        kv_indices: int32 [Bm, Hm, Qb, any width]: their indices, in the first kv_num_blocks
            entries.
        full_kv_num_blocks: int32 [Bm, Hm, Qb]: the number of fully visible blocks.
        full_kv_indices: int32 [Bm, Hm, Qb, any width]: their indices; as wide as kv_indices or not.
        bits: uint8 [N, BQ, ceil(BK / 8)]: one bit per (row, key) of each partial block: bit k % 8
            of byte k // 8. Rows beyond Sq and keys beyond Sk are 0.
        first_partial: int64 [Bm, Hm, Qb]: the offset in ``bits`` of the row of blocks; its j-th
            partial block, in the order of kv_indices, is ``bits[first_partial + j]``.
        causal: whether the mask is exactly ``q >= k``.
        source: what the bits were evaluated from; None where that is not known, as of a part of a
            mask, whose indices are not the program's, and of one that a compiled graph is given
            and that captures no tensor.

    All tensors are contiguous and on the query's device.
    """

    block_size: tuple[int, int]
    kv_num_blocks: Tensor
    kv_indices: Tensor
    full_kv_num_blocks: Tensor
    full_kv_indices: Tensor
    bits: Tensor
    first_partial: Tensor
    _: KW_ONLY
    causal: bool = False
    source: MaskSource | None = None

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The mask's own six tensors, in the order of the fields."""
        return (
            self.kv_num_blocks,
            self.kv_indices,
            self.full_kv_num_blocks,
            self.full_kv_indices,
            self.bits,
            self.first_partial,
        )


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
class KeyPages:
    """The pages of each sequence's keys and values in a cache.

    The call's key is then [pages, Hkv, page size, D] and its value [pages, Hkv, page size, V]; key
    k of batch b is ``key[table[b, k // page size], :, k % page size]``. Masks and score_mods
    do not depend on pages: their key indices are k.

    Attributes:
        table: int32 [B, N]: each sequence's pages, in order. The entries after its last page
            may be any page of the cache.
        lengths: int32 [B]: each sequence's keys, at most N times the page size. A mask, where there
            is one, shows no key beyond them; without one, every row sees all keys of its sequence.

    Both are contiguous and on the query's device.
    """

    table: Tensor
    lengths: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class AttentionCall:
    """One call: what ``flex_attention`` makes of its arguments and an implementation computes.

    The op takes it apart into torch's argument types and puts it together again; the request that
    decides for an implementation follows from it.

    Attributes:
        query: [B, Hq, Sq, D]. key: [B, Hkv, Sk, D]. value: [B, Hkv, Sk, V]. Any strides.
        score_mod: changes the scores; None leaves them.
        mask: hides keys; None hides none.
        scale: multiplies the raw scores.
        lse, max_scores: whether the result must hold them.
        options: the call's kernel_options that are named for a plugin, by name, such as
            ``("cpu.rows_per_item", 256)``. They change speed alone; ignore those of other plugins.
        captured_grad: for each captured tensor of score_mod, whether a backward returns its
            gradient; only floating point ones have one. Empty: no gradients.
        pages: where key and value are the pages of a cache, and their shapes; None: as above. Only
            a forward that declares that it reads pages gets any.
        dropout: which weights are dropped; None: none.
        grad: whether gradients will be asked for; ``lse`` is then True.
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
    grad: bool = False


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
