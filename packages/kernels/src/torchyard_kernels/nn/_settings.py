"""Checks of what a recurrent module is made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torchyard import arguments

__all__ = ["checked_settings"]

_NAMES: Final = (
    *("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout"),
    *("bidirectional", "proj_size", "device", "dtype"),
)
_FLAGS: Final = ("bias", "batch_first", "bidirectional")
_SIZES: Final = {"input_size": 1, "hidden_size": 1, "num_layers": 1, "proj_size": 0}
# Beyond these no machine has the memory for the weights, and torch tries.
_MOST_SIZE: Final = 1 << 20
_MOST_LAYERS: Final = 1 << 12


def checked_settings(
    of: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, plain: bool = False
) -> dict[str, Any]:
    """Return a module's settings by name.

    Args:
        of: the class, for messages.
        args, kwargs: as the module was given them, in the order of torch's.
        plain: whether there is a nonlinearity, the argument after num_layers.

    Raises:
        TypeError: one is of another kind than torch's documentation says, is given twice, is one
            too many, or is missing.
        ValueError: a size is out of its range.
    """
    names = (*_NAMES[:3], "nonlinearity", *_NAMES[3:]) if plain else _NAMES
    if len(args) > len(names):
        raise TypeError(f"{of}: expected at most {len(names)} arguments, got {len(args)}")
    found = dict(zip(names, args, strict=False))
    for name in kwargs:
        if name in found or name not in names:
            why = "one value" if name in found else f"one of {', '.join(names)}"
            raise TypeError(f"{of}: {name}: expected {why}, got {'two' if name in found else name}")
    found.update(kwargs)
    for name in ("input_size", "hidden_size"):
        if name not in found:
            raise TypeError(f"{of}: {name}: expected an int, got nothing")
    for name, least in _SIZES.items():
        if name in found:
            most = _MOST_LAYERS if name == "num_layers" else _MOST_SIZE
            found[name] = arguments.integer(of, name, found[name], least=least, most=most)
    for name in _FLAGS:
        if name in found:
            found[name] = arguments.boolean(of, name, found[name])
    if "dropout" in found:
        found["dropout"] = arguments.number(of, "dropout", found["dropout"], least=0, most=1)
    if "nonlinearity" in found:
        choices = ("tanh", "relu")
        found["nonlinearity"] = arguments.choice(of, "nonlinearity", found["nonlinearity"], choices)
    if found.get("proj_size"):
        if of != "nn.LSTM":
            raise ValueError(
                f"{of}: proj_size: expected 0, got {found['proj_size']}; LSTM alone projects"
            )
        if found["proj_size"] >= found["hidden_size"]:
            raise arguments.wrong_value(
                of, "proj_size", "less than hidden_size", found["proj_size"]
            )
    elif of != "nn.LSTM":
        found.pop("proj_size", None)
    if found.get("device") is not None:
        found["device"] = arguments.device(of, "device", found["device"])
    if found.get("dtype") is not None:
        found["dtype"] = arguments.dtype(of, "dtype", found["dtype"])
    return found
