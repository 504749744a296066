"""Weights that are packed for an implementation once, for many calls."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_kernels.recurrent._validation import cells, listed_weights
from torchyard_kernels.recurrent.contract import Forward, RecurrentKind

__all__ = ["PackedRecurrent"]


class PackedRecurrent:
    """A recurrent layer's weights, packed once for the implementation that is chosen.

    Give it to ``lstm``, ``gru`` or ``rnn`` in place of the list of weights. A call with few steps
    would else spend its time on laying out the weights. Calls that record gradients, and compiled
    and exported programs, use the weights as they are.

    A change of a weight in place is noticed by its version counter, and the weights are packed
    again. Changes through ``.data`` are not noticed: call :meth:`repack` after them.

    Args:
        kind: ``lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``.
        weights: as torch's modules hold them in ``_flat_weights``; kept, not copied.
        num_layers, bidirectional: as torch's.

    Raises:
        TypeError: the weights are no tensors.
        ValueError: the kind is none of these.
    """

    def __init__(
        self,
        kind: str,
        weights: Sequence[Tensor],
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
    ) -> None:
        of = "PackedRecurrent"
        known = [one.value for one in RecurrentKind]
        self.kind = RecurrentKind(arguments.choice(of, "kind", str(kind), known))
        self.weights = listed_weights(of, weights)
        self.num_layers = arguments.integer(of, "num_layers", num_layers, least=1)
        self.bidirectional = arguments.boolean(of, "bidirectional", bidirectional)
        # Tensors of inference mode keep no counter.
        self._unversioned = any(weight.is_inference() for weight in self.weights)
        self._made: list[tuple[weakref.ref[Any], tuple[int, ...], object]] = []

    def repack(self) -> None:
        """Forget what was packed; the next call packs again."""
        self._made.clear()

    def of(self, forward: Forward) -> object | None:
        """Return what the implementation's ``pack`` made; None where it has no ``pack``."""
        pack = getattr(forward, "pack", None)
        if pack is None:
            return None
        versions = self._versions()
        for known, at, made in self._made:
            if known() is forward and at == versions:
                return made
        with torch.no_grad():
            weights = cells(self.weights, self.num_layers, self.bidirectional)
            fresh: object = pack(self.kind, weights, self.num_layers, self.bidirectional)
        kept = [entry for entry in self._made if entry[0]() not in (None, forward)]
        self._made = [(weakref.ref(forward), versions, fresh), *kept]
        return fresh

    def latest(self) -> object | None:
        """Return what was packed last; None where the weights have changed since."""
        if not self._made:
            return None
        _, at, made = self._made[0]
        return made if at == self._versions() else None

    def _versions(self) -> tuple[int, ...]:
        if self._unversioned:
            return ()
        return tuple([weight._version for weight in self.weights])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": []}
