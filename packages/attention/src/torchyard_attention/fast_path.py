"""The fast path of ``attention/1``: what a forward that offers one takes.

A :class:`~torchyard_attention.contract.Forward` may have a method ``fast_path``, see
``torchyard.dispatch.OffersFastPath``. ``flex_attention`` tries the path before torch's dispatcher
sees a call, and the op's kernel, which graphs call, tries it after everything above has had its
turn. Neither does while algorithms have to be deterministic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from torchyard_attention.contract import AttentionCall, AttentionRequest, MaskBlocks

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AttentionPath", "PathMask", "PathScore"]

# A call's score_mod: its program, the same object for the same text, and the tensors that it
# captures, in the program's order.
PathScore: TypeAlias = "tuple[str, tuple[Tensor, ...]]"


class PathMask(NamedTuple):
    """A call's mask, as a path takes it.

    Attributes:
        blocks: the mask.
        lengths: (Sq, Sk) that it was made for; a path does not compute calls of other lengths.
        causal: whether it is exactly ``q >= k``.
    """

    blocks: MaskBlocks
    lengths: tuple[int, int]
    causal: bool


class AttentionPath(Protocol):
    """``torchyard.dispatch.KernelPath`` of a forward."""

    def try_call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: PathMask | None,
        scale: float | None,
        enable_gqa: bool,
        lse: bool,
        score: PathScore | None,
        /,
    ) -> Tensor | tuple[Tensor, Tensor] | None:
        """Compute a call; None where it cannot, as also where keys and queries have other batches.

        Args:
            query, key, value: whatever was passed as such.
            mask: its tensors are as the contract says; None hides no key.
            scale: None: 1 / sqrt(D).
            enable_gqa: whether Hkv may be smaller than Hq.
            lse: whether to return (out, lse) instead of out.
            score: None leaves the scores.

        Raises:
            IndexError: as the forward does.
        """

    def enable(self, request: AttentionRequest, call: AttentionCall, /) -> bool:
        """Compute calls that make this request from now on, where the path can.

        Args:
            request: what was decided; where its score is pointwise, the text is one that later
                calls pass as the same object.
            call: the call that made it, which is not to be kept.
        """

    def clear(self) -> None:
        """Forget every request."""
