"""The short way to a forward's kernels: what an implementation of ``attention/1`` may offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from torchyard_attention.contract import AttentionCall, AttentionRequest, MaskBlocks

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DirectForward", "DirectMask", "DirectScore"]

# A call's score_mod: its program, the same object for the same text, and the tensors that it
# captures, in the program's order.
DirectScore: TypeAlias = "tuple[str, tuple[Tensor, ...]]"


class DirectMask(NamedTuple):
    """A call's mask, as a direct forward takes it.

    Attributes:
        blocks: the mask.
        lengths: (Sq, Sk) that it was made for; a call of other lengths is not to be served.
        causal: whether it is exactly ``q >= k``.
    """

    blocks: MaskBlocks
    lengths: tuple[int, int]
    causal: bool


class DirectForward(Protocol):
    """A short way to a forward's kernels, for calls whose decision is known.

    A short call's arithmetic takes less time than describing it does. So a :class:`Forward` may
    have a method ``direct()`` that returns such an object, or None where it cannot be had. It is
    asked for one object per set of settings, and told the requests that the registry decided in
    its favour under them; where any of the settings changes, the object is dropped.

    It is asked only where nothing but the kernel takes part in a call: nothing is compiled,
    traced, transformed or profiled, no mode is active, and algorithms need not be deterministic.
    ``flex_attention`` asks before torch sees the call, and the op's kernel, which graphs call,
    after all that takes part had its turn.
    """

    def admit(self, request: AttentionRequest, call: AttentionCall) -> None:
        """Serve calls that make this request from now on; or pass over the request.

        Args:
            request: what was decided; where its score is pointwise, the text is one that later
                calls pass as the same object.
            call: the call that made it, which is not to be kept.
        """

    def serve(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: DirectMask | None,
        scale: float | None,
        enable_gqa: bool,
        lse: bool,
        score: DirectScore | None,
        /,
    ) -> Tensor | tuple[Tensor, Tensor] | None:
        """Compute a call as the forward does, with the same bits; None where it is not served.

        Nothing was checked before: what does not fit is answered with None, without an effect, and
        ``flex_attention`` raises the error or finds another way. None too unless query, key and
        value are of torch.Tensor or torch.nn.Parameter itself, dense, on the device, neither lazily
        negated nor zeros that are not stored, not differentiated while gradients are recorded, and
        of one batch, and unless the request that they make was admitted. What a score captures is
        held to the same, but for the batch.

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
