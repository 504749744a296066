"""Recurrent layers as modules, with the parameters, names and results of torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from torchyard import arguments
from torchyard_kernels.nn._settings import checked_settings
from torchyard_kernels.nn._taken_over import refuse_own_code, take_over
from torchyard_kernels.recurrent._api import gru, lstm, rnn
from torchyard_kernels.recurrent._packed import PackedRecurrent
from torchyard_kernels.recurrent.contract import RecurrentKind

__all__ = ["GRU", "LSTM", "RNN", "from_torch"]

# Taken once: code may put the twins in their place in torch.nn.
_TORCH_LSTM, _TORCH_GRU, _TORCH_RNN = torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN

# What torch's modules say of themselves; all of it is taken over.
_SETTINGS = (
    *("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first"),
    *("dropout", "bidirectional", "proj_size"),
)


class _Recurrent(torch.nn.Module):
    """Layers with the parameters of one of torch's modules.

    Not a subclass of torch's: torch.compile refuses to look into those.
    """

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int

    def __init__(self, like: torch.nn.RNNBase) -> None:
        super().__init__()
        for name in _SETTINGS:
            setattr(self, name, getattr(like, name))
        self._weight_names = tuple(like._flat_weights_names)
        take_over(like, self)
        self.training = like.training
        self._packed: PackedRecurrent | None = None

    @classmethod
    def from_torch(cls, module: torch.nn.RNNBase) -> Self:
        """Return layers that share what a torch module has; see :func:`from_torch`."""
        theirs = next(theirs for theirs, ours in _TWINS if issubclass(cls, ours))
        if not isinstance(module, theirs):
            raise TypeError(
                f"module: expected a torch.nn.{theirs.__name__}, got {type(module).__name__}"
            )
        refuse_own_code(module, theirs)
        made = cls.__new__(cls)
        _Recurrent.__init__(made, module)
        return made

    @property
    def _kind(self) -> RecurrentKind:
        return RecurrentKind(self.mode.lower())

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The weights of each layer and direction, as torch's modules have them."""
        weights = self._weights()
        size = len(weights) // (self.num_layers * (2 if self.bidirectional else 1))
        return [weights[start : start + size] for start in range(0, len(weights), size)]

    def flatten_parameters(self) -> None:
        """Do nothing, as torch's modules on a CPU: no kernel wants the weights in one piece."""

    def reset_parameters(self) -> None:
        """Draw every parameter from -1 to 1 over the root of hidden_size, as torch's modules do."""
        bound = self.hidden_size**-0.5 if self.hidden_size > 0 else 0.0
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -bound, bound)

    def __getattr__(self, name: str) -> Any:
        # A parametrised weight is computed, as the property of a parametrised module of torch does.
        made = self.__dict__.get("_modules", {}).get("parametrizations")
        if made is not None and name in made:
            return made[name]()
        return super().__getattr__(name)

    def __prepare_scriptable__(self) -> Self:
        raise TypeError(
            f"torch.jit.script: expected modules that it can read, got torchyard_kernels.nn."
            f"{type(self).__name__}; use torch.export or torch.compile, or script torch.nn."
            f"{type(self).__name__} with the same state_dict"
        )

    def prepack(self) -> Self:
        """Pack the weights once for calls that record no gradients; return the module.

        See :class:`torchyard_kernels.PackedRecurrent` for what is noticed of later changes.
        """
        self._packed = PackedRecurrent(
            str(self._kind),
            self._weights(),
            num_layers=self.num_layers,
            bidirectional=self.bidirectional,
        )
        return self

    def _weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._weight_names]

    def _arguments(self) -> dict[str, Any]:
        return {
            "num_layers": self.num_layers,
            "bidirectional": self.bidirectional,
            "dropout": self.dropout,
            "training": self.training,
        }

    def _weights_or_packed(self) -> list[Tensor] | PackedRecurrent:
        packed = self._packed
        if packed is None or torch.compiler.is_compiling():
            return self._weights()
        own = self._parameters.get
        for name, weight in zip(self._weight_names, packed.weights, strict=True):
            if own(name) is not weight:
                return self._repacked()
        return packed

    def _repacked(self) -> PackedRecurrent:
        # A parametrised weight is computed at each access, so this is packed at each access too.
        self.prepack()
        assert self._packed is not None
        return self._packed

    def _through(self, function: Callable[..., Any], input: Any, state: Any) -> tuple[Any, Any]:
        if state is not None and not isinstance(state, Tensor | tuple):
            self._check_state(state)
        try:
            return self._computed(function, input, state)
        except Exception:
            # Checked late, since a repeated call takes less time than the check.
            self._check_state(state)
            raise

    def _check_state(self, state: Any) -> None:
        of = f"nn.{type(self).__name__}"
        if isinstance(state, tuple):
            for place, part in enumerate(state):
                arguments.tensor(of, f"hx[{place}]", part)
        elif state is not None:
            arguments.tensor(of, "hx", state)

    def _computed(self, function: Callable[..., Any], input: Any, state: Any) -> tuple[Any, Any]:
        settings = self._arguments()
        weights = self._weights_or_packed()
        if not isinstance(input, PackedSequence):
            output, state = function(
                input, state, weights, batch_first=self.batch_first, **settings
            )
            return output, state
        padded, lengths = pad_packed_sequence(input)
        output, state = function(padded, state, weights, lengths=lengths, **settings)
        order = input.sorted_indices
        if order is not None:
            output, lengths = output.index_select(1, order), lengths[order.cpu()]
        packed = pack_padded_sequence(output, lengths)
        return input._replace(data=packed.data), state

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        packed, self._packed = self._packed, None
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied if packed is None else applied.prepack()

    def extra_repr(self) -> str:
        """Return the settings that differ from torch's defaults."""
        shown = [f"{self.input_size}", f"{self.hidden_size}"]
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        defaults |= {"bidirectional": False, "proj_size": 0}
        for name, default in defaults.items():
            if getattr(self, name) != default:
                shown.append(f"{name}={getattr(self, name)}")
        return ", ".join(shown)


class LSTM(_Recurrent):
    """``torch.nn.LSTM`` on :func:`torchyard_kernels.lstm`: arguments and state_dict are torch's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(_TORCH_LSTM(**checked_settings("nn.LSTM", args, kwargs)))

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, Any]:
        """Return the output and (hidden, cell) at the end; a PackedSequence gives one."""
        return self._through(lstm, input, hx)


class GRU(_Recurrent):
    """``torch.nn.GRU`` on :func:`torchyard_kernels.gru`: arguments and state_dict are torch's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(_TORCH_GRU(**checked_settings("nn.GRU", args, kwargs)))

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Any]:
        """Return the output and the hidden state at the end; a PackedSequence gives one."""
        return self._through(gru, input, hx)


class RNN(_Recurrent):
    """``torch.nn.RNN`` on :func:`torchyard_kernels.rnn`: arguments and state_dict are torch's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(_TORCH_RNN(**checked_settings("nn.RNN", args, kwargs, plain=True)))

    @property
    def nonlinearity(self) -> str:
        """``tanh`` or ``relu``."""
        return "tanh" if self._kind is RecurrentKind.RNN_TANH else "relu"

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "nonlinearity": self.nonlinearity}

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Any]:
        """Return the output and the hidden state at the end; a PackedSequence gives one."""
        return self._through(rnn, input, hx)


_TWINS: tuple[tuple[type[torch.nn.RNNBase], type[_Recurrent]], ...] = (
    (_TORCH_LSTM, LSTM),
    (_TORCH_GRU, GRU),
    (_TORCH_RNN, RNN),
)


def from_torch(module: torch.nn.Module) -> LSTM | GRU | RNN:
    """Return the twin of a ``torch.nn.LSTM``, ``GRU`` or ``RNN``, sharing its parameters.

    Its buffers, submodules and hooks are shared too, so weight_norm, pruning and parametrizations
    of the weights keep their effect; hooks are called with the twin.

    Raises:
        TypeError: it is none of these, or is of a subclass, or has a forward, with code of its own.
    """
    for theirs, ours in _TWINS:
        if isinstance(module, theirs):
            twin = ours.from_torch(module)
            assert isinstance(twin, LSTM | GRU | RNN)
            return twin
    raise TypeError(f"module: expected a torch.nn.LSTM, GRU or RNN, got {type(module).__name__}")
