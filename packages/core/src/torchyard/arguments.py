"""One check for each kind of argument that public functions take.

Each function returns the argument as the caller should use it, or raises: a ``TypeError`` where it
is of another kind, a ``ValueError`` where it is of that kind and does not fit. The message reads
``function: argument: expected what, got what; what to do``.

numpy's integers are integers and its bools are bools. Nothing else that merely counts as one is: no
float for an int, no 1 for True, no tensor for a number. Sizes that torch.compile has made symbolic
are integers and stay as they are.

The first two parameters of each are the public function's name and the argument's; ``remedy`` says
what a caller can do, where that does not follow from the rest.
"""

from __future__ import annotations

import numbers
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

__all__ = [
    "boolean",
    "choice",
    "device",
    "dtype",
    "function",
    "instance",
    "integer",
    "mapping",
    "number",
    "path",
    "sequence",
    "tensor",
    "text",
    "wrong_kind",
    "wrong_value",
]

_T = TypeVar("_T")
# Compared with, since Dynamo traces no isfinite of a number that it left open.
_LARGEST = sys.float_info.max


def wrong_kind(of: str, name: str, expected: str, value: object, remedy: str = "") -> TypeError:
    """Return the error for an argument of another kind than expected."""
    return TypeError(_message(of, name, expected, _described(value), remedy))


def wrong_value(of: str, name: str, expected: str, value: object, remedy: str = "") -> ValueError:
    """Return the error for an argument of the expected kind that does not fit.

    Args:
        value: what came, or words that say it; shown as it is.
    """
    return ValueError(_message(of, name, expected, value, remedy))


def integer(
    of: str,
    name: str,
    value: object,
    *,
    least: int | None = None,
    most: int | None = None,
    remedy: str = "",
) -> int:
    """Return an int; bounds are inclusive."""
    if type(value) is int:
        found = value
    elif isinstance(value, bool) or not isinstance(value, numbers.Integral):
        if _is_symbolic(value, "SymInt"):
            return value  # type: ignore[return-value]
        raise wrong_kind(of, name, _range("an int", least, most), value, remedy)
    else:
        found = int(value)
    if (least is not None and found < least) or (most is not None and found > most):
        raise wrong_value(of, name, _range("an int", least, most), found, remedy)
    return found


def number(
    of: str,
    name: str,
    value: object,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    remedy: str = "",
) -> float:
    """Return a finite number as a float; ``least`` and ``most`` are inclusive, ``above`` is not."""
    expected = _range("a finite number", least, most, above)
    if type(value) is float:
        found = value
    elif isinstance(value, bool) or not isinstance(value, numbers.Real):
        if _is_symbolic(value, "SymInt", "SymFloat"):
            return value  # type: ignore[return-value]
        raise wrong_kind(of, name, expected, value, remedy)
    else:
        try:
            found = float(value)
        except OverflowError:
            raise wrong_value(of, name, expected, "more than a float holds", remedy) from None
    if (
        not -_LARGEST <= found <= _LARGEST
        or (least is not None and found < least)
        or (most is not None and found > most)
        or (above is not None and found <= above)
    ):
        raise wrong_value(of, name, expected, found, remedy)
    return found


def boolean(of: str, name: str, value: object, *, remedy: str = "") -> bool:
    """Return True or False."""
    if value is True or value is False:
        return value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.bool_):
        return bool(value)
    if _is_symbolic(value, "SymBool"):
        return value  # type: ignore[return-value]
    raise wrong_kind(of, name, "True or False", value, remedy)


def text(of: str, name: str, value: object, *, remedy: str = "") -> str:
    """Return a string that is not empty."""
    if not isinstance(value, str):
        raise wrong_kind(of, name, "a string", value, remedy)
    if not value:
        raise wrong_value(of, name, "a string that is not empty", "''", remedy)
    return value


def choice(of: str, name: str, value: object, choices: Iterable[_T], *, remedy: str = "") -> _T:
    """Return the one of ``choices`` that an argument equals; True is not 1."""
    known = tuple(choices)
    for one in known:
        if type(one) is type(value) and one == value:
            return one
    expected = " or ".join(repr(one) for one in known)
    if any(type(one) is type(value) for one in known if one is not None):
        raise wrong_value(of, name, expected, repr(value), remedy)
    raise wrong_kind(of, name, expected, value, remedy)


def function(of: str, name: str, value: Any, *, remedy: str = "") -> Callable[..., Any]:
    """Return what can be called."""
    if not callable(value):
        raise wrong_kind(of, name, "a function", value, remedy)
    return value  # type: ignore[no-any-return]


def instance(
    of: str,
    name: str,
    value: object,
    kinds: type[_T] | tuple[type[_T], ...],
    expected: str = "",
    *,
    remedy: str = "",
) -> _T:
    """Return an object of one of some classes; ``expected`` says what that is, if not by names."""
    if isinstance(value, kinds):
        return value
    several = kinds if isinstance(kinds, tuple) else (kinds,)
    raise wrong_kind(
        of, name, expected or " or ".join(kind.__name__ for kind in several), value, remedy
    )


def sequence(
    of: str,
    name: str,
    value: object,
    item: Callable[[str, str, Any], _T] | None = None,
    *,
    expected: str = "a list or a tuple",
    length: int | None = None,
    least: int = 0,
    sets: bool = False,
    remedy: str = "",
) -> tuple[_T, ...]:
    """Return the items of a list, a tuple or a range, each by the check ``item``.

    Args:
        item: called with the function's name, the item's name, such as ``inputs[0]``, and the item;
            None: whatever they are.
        expected: what the whole is called.
        length: exactly so many.
        least: at least so many.
        sets: whether it may be a set as well, where the order says nothing.
    """
    if not isinstance(value, (list, tuple, range, AbstractSet) if sets else (list, tuple, range)):
        raise wrong_kind(of, name, expected, value, remedy)
    if length is not None and len(value) != length:
        raise wrong_value(of, name, f"{expected} of {length}", f"{len(value)}", remedy)
    if len(value) < least:
        raise wrong_value(of, name, f"{expected} of at least {least}", f"{len(value)}", remedy)
    if item is None:
        return tuple(value)
    return tuple([item(of, f"{name}[{i}]", each) for i, each in enumerate(value)])


def mapping(
    of: str, name: str, value: object, expected: str = "a mapping", *, remedy: str = ""
) -> Mapping[Any, Any]:
    """Return a mapping, such as a dict; ``expected`` says from what to what."""
    return instance(of, name, value, Mapping, expected, remedy=remedy)


def path(of: str, name: str, value: object, *, remedy: str = "") -> Path:
    """Return the path that a string or a path says."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise wrong_kind(of, name, "a path", value, remedy)
    if not value or "\0" in value:
        raise wrong_value(of, name, "a path", repr(value), remedy)
    return Path(value)


def dtype(
    of: str,
    name: str,
    value: object,
    allowed: Sequence[torch.dtype] | None = None,
    *,
    remedy: str = "",
) -> torch.dtype:
    """Return a torch.dtype, one of ``allowed`` where that is given."""
    import torch

    expected = "a torch.dtype" if allowed is None else _dtypes(allowed)
    if not isinstance(value, torch.dtype):
        raise wrong_kind(of, name, expected, value, remedy)
    if allowed is not None and value not in allowed:
        raise wrong_value(of, name, expected, value, remedy)
    return value


def device(of: str, name: str, value: object, *, remedy: str = "") -> torch.device:
    """Return a torch.device of one, or of a string that torch can read, such as ``cpu``."""
    import torch

    if isinstance(value, torch.device):
        return value
    if not isinstance(value, str):
        raise wrong_kind(of, name, "a torch.device or its name", value, remedy)
    try:
        return torch.device(value)
    except RuntimeError:
        raise wrong_value(
            of, name, "a torch.device or its name, such as 'cpu'", repr(value), remedy
        ) from None


def tensor(
    of: str,
    name: str,
    value: object,
    *,
    dims: int | Sequence[int] | None = None,
    dtypes: Sequence[torch.dtype] | None = None,
    shape: str = "",
    remedy: str = "",
) -> torch.Tensor:
    """Return a dense tensor whose storage holds its elements.

    Args:
        dims: how many dimensions it has, or may have; None: any number.
        dtypes: which dtypes it may have; None: any.
        shape: what its dimensions are, such as ``[B, H, S, D]``.

    Raises:
        TypeError: no tensor; a nested, sparse or quantized one; or of another dtype.
        ValueError: another number of dimensions; or storage that was freed or made smaller.
    """
    import torch

    expected = f"a dense tensor{' ' if shape else ''}{shape}"
    if not isinstance(value, torch.Tensor):
        raise wrong_kind(of, name, expected, value, remedy)
    if value.is_nested:
        raise wrong_kind(
            of,
            name,
            expected,
            value,
            remedy or "convert it with torch.nested.to_padded_tensor, and hide the padding",
        )
    if value.layout is not torch.strided or value.is_quantized:
        how = "dequantize()" if value.is_quantized else "to_dense()"
        raise wrong_kind(of, name, expected, value, remedy or f"call {how} first")
    if dtypes is not None and value.dtype not in dtypes:
        raise TypeError(_message(of, name, _dtypes(dtypes), value.dtype, remedy))
    counts = (dims,) if isinstance(dims, int) else dims
    if counts is not None and value.dim() not in counts:
        many = " or ".join(str(count) for count in counts)
        raise ValueError(
            _message(
                of,
                name,
                shape or f"{many} dimension{'s' if many != '1' else ''}",
                f"shape {list(value.shape)}",
                remedy,
            )
        )
    if not torch.compiler.is_compiling():
        _check_storage(of, name, value)
    return value


def _check_storage(of: str, name: str, value: torch.Tensor) -> None:
    """Raise where a tensor's storage is smaller than its sizes, strides and offset reach."""
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.is_meta:
        return
    try:
        found = value.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):
        # A wrapper of torch.func has no storage of its own, and what it wraps is checked later.
        return
    expected = 0
    if value.numel():
        layout = zip(value.shape, value.stride(), strict=True)
        steps = sum((size - 1) * step for size, step in layout)
        expected = (int(value.storage_offset()) + steps + 1) * value.element_size()
    if found < expected:
        raise ValueError(
            _message(
                of,
                name,
                f"{expected} bytes of storage",
                found,
                "its memory was freed or made smaller; give it memory again before the call",
            )
        )


def _message(of: str, name: str, expected: str, got: object, remedy: str) -> str:
    return f"{of}: {name}: expected {expected}, got {got}{f'; {remedy}' if remedy else ''}"


def _described(value: object) -> str:
    """Say what came, in few words: small values by their repr, others by their class."""
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        shown = repr(value)
        return shown if len(shown) <= 60 else f"{shown[:57]}..."
    kind = type(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.is_nested:
            return "a nested tensor"
        form = "" if value.layout is torch.strided else f" of layout {value.layout}"
        return f"a tensor of {value.dtype} of shape {list(value.shape)}{form}"
    if isinstance(value, (list, tuple, dict, set, frozenset)) and not value:
        return f"an empty {kind.__name__}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, Mapping):
        return f"a {kind.__name__}"
    home = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return f"a {home}{kind.__qualname__}"


def _range(what: str, least: float | None, most: float | None, above: float | None = None) -> str:
    if above is not None:
        return f"{what} above {above}" + (f" and at most {most}" if most is not None else "")
    if least is not None and most is not None:
        return f"{what} of {least} to {most}"
    if least is not None:
        return f"{what} of at least {least}"
    return f"{what} of at most {most}" if most is not None else what


def _dtypes(allowed: Sequence[torch.dtype]) -> str:
    names = [str(one).removeprefix("torch.") for one in allowed]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _is_symbolic(value: object, *kinds: str) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(value, getattr(torch, kind)) for kind in kinds)
