"""Dataclasses from data, by ``cattrs``, without its conversions.

It fills the dataclasses and finds every fault with the path that leads to it. It would turn ``"3"``
into 3 where an integer is expected; here a value has the type that its field says, or is refused.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from torchyard.evidence._errors import DocumentError, MissingLibraryError
from torchyard.evidence.documents import AtMost, Between

try:
    import cattrs
    from cattrs.errors import (
        ClassValidationError,
        ForbiddenExtraKeysError,
        IterableValidationError,
        IterableValidationNote,
    )
    from cattrs.gen import make_dict_structure_fn, override
except ImportError as error:
    raise MissingLibraryError(
        "documents: expected the package 'cattrs', found none; pip install 'torchyard[evidence]'"
    ) from error

_Kind = TypeVar("_Kind")
_Hook = Callable[[Any, Any], Any]

# Faults that an error lists; a document that is another one altogether has hundreds.
_TOLD: Final = 3
_WORDS: Final[Mapping[Any, str]] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}
# Python has integers of any length, and what reads on may not: file formats have 64 bits.
_LARGEST: Final = 1 << 63


def structured(data: object, kind: type[_Kind], source: str, ignore_unknown: bool) -> _Kind:
    """Return data as a dataclass; see :func:`torchyard.evidence.documents.structure`."""
    try:
        return _converter(ignore_unknown).structure(data, kind)
    except (cattrs.BaseValidationError, _Misfit, RecursionError) as error:
        faults = [
            f"{path.removeprefix('.') or 'data'}: {text}" for path, text in _faults(error, source)
        ]
        more = f"; and {len(faults) - _TOLD} more" if len(faults) > _TOLD else ""
        raise DocumentError("; ".join(faults[:_TOLD]) + more) from error


class _Misfit(ValueError):
    """A value is not of its field's type."""

    def __init__(self, expected: str, got: object) -> None:
        super().__init__(f"expected {expected}, got {reprlib.repr(got)}")


_FAULTS: Final = (cattrs.BaseValidationError, _Misfit)


def _faults(error: BaseException, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(error, ClassValidationError):
        named, others = error.group_exceptions()
        for inner, note in named:
            where = f"{path}.{note.name}"
            if isinstance(inner, KeyError):
                yield where, f"expected {_words(note.type)}, got nothing"
            else:
                yield from _faults(inner, where)
        for inner in others:
            yield from _faults(inner, path)
    elif isinstance(error, IterableValidationError):
        for inner, place in error.group_exceptions()[0]:
            yield from _faults(inner, f"{path}[{reprlib.repr(place.index)}]")
    elif isinstance(error, ForbiddenExtraKeysError):
        names = reprlib.repr(sorted(error.extra_fields))
        yield path, f"expected no other keys, got {names}"
    elif isinstance(error, RecursionError):
        yield path, "expected a document, got one that is nested too deep"
    else:
        yield path, str(error)


@cache
def _converter(ignore_unknown: bool) -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=not ignore_unknown)

    def register(
        predicate: Callable[[Any], bool], factory: Callable[[Any, cattrs.Converter], _Hook]
    ) -> None:
        def made(kind: Any) -> _Hook:
            return factory(kind, converter)

        converter.register_structure_hook_factory(predicate, made)

    for kind in _WORDS:
        converter.register_structure_hook(kind, _plain(kind))
    register(is_dataclass, _object)
    register(lambda kind: get_origin(kind) in {tuple, list}, _list)
    register(lambda kind: get_origin(kind) in {Mapping, dict}, _mapping)
    register(lambda kind: get_origin(kind) in {Union, UnionType}, _union)
    register(lambda kind: get_origin(kind) is Annotated, _annotated)
    return converter


def _hook(converter: cattrs.Converter, kind: Any) -> _Hook:
    # cattrs finds hooks by a class's bases, and an enum of strings is a str.
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _enum(kind)
    return converter.get_structure_hook(kind)


def _plain(kind: Any) -> _Hook:
    if kind is int:
        return _integer(Between(-_LARGEST, 2 * _LARGEST - 1), "an integer of at most 64 bits")
    # Exactly: True is an int to isinstance, and JSON makes no classes of its own.
    types = (float, int) if kind is float else (kind,)

    def hook(value: Any, _: Any) -> Any:
        if type(value) not in types:
            raise _Misfit(_WORDS[kind], value)
        return value

    return hook


def _integer(bounds: Between, words: str) -> _Hook:
    low, high = bounds.low, bounds.high

    def hook(value: Any, _: Any) -> Any:
        if type(value) is not int:
            raise _Misfit(_WORDS[int], value)
        if not low <= value <= high:
            raise _Misfit(words, value)
        return value

    return hook


def _enum(kind: type[StrEnum]) -> _Hook:
    members: dict[str, StrEnum] = {item.value: item for item in kind}

    def hook(value: Any, _: Any) -> Any:
        if type(value) is not str or value not in members:
            raise _Misfit(_words(kind), value)
        return members[value]

    return hook


def _object(kind: Any, converter: cattrs.Converter) -> _Hook:
    # By hand, since cattrs itself drops what Annotated says where annotations are strings.
    hints = get_type_hints(kind, include_extras=True)
    hooks: Any = {
        item.name: override(struct_hook=_hook(converter, hints[item.name])) for item in fields(kind)
    }
    fill = make_dict_structure_fn(kind, converter, **hooks)

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit("an object", value)
        return fill(value, kind)

    return hook


def _list(kind: Any, converter: cattrs.Converter) -> _Hook:
    origin, items = get_origin(kind), get_args(kind)
    fixed = origin is tuple and items[-1:] != (...,)
    kinds = items if fixed else items[:1]
    hooks = [(_hook(converter, item), item) for item in kinds]

    def hook(value: Any, _: Any) -> Any:
        # JSON has lists alone; pickles have both.
        if not isinstance(value, list | tuple):
            raise _Misfit("a list", value)
        if fixed and len(value) != len(hooks):
            raise _Misfit(f"a list of {len(hooks)}", value)
        try:
            if fixed:
                return origin(
                    [inner(part, item) for part, (inner, item) in zip(value, hooks, strict=True)]
                )
            inner, item = hooks[0]
            return origin([inner(part, item) for part in value])
        except _FAULTS:
            each = hooks if fixed else hooks * len(value)
            raise _collected(enumerate(value), each, kind) from None

    return hook


def _mapping(kind: Any, converter: cattrs.Converter) -> _Hook:
    item = get_args(kind)[1]
    inner = _hook(converter, item)

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise _Misfit("an object", value)
        try:
            return {name: inner(part, item) for name, part in value.items()}
        except _FAULTS:
            raise _collected(value.items(), [(inner, item)] * len(value), kind) from None

    return hook


def _collected(pairs: Any, hooks: list[tuple[_Hook, Any]], kind: Any) -> IterableValidationError:
    """Return the faults of items, each with its place; slower than reading what has none."""
    faults: list[Exception] = []
    for (place, value), (hook, item) in zip(pairs, hooks, strict=True):
        try:
            hook(value, item)
        except _FAULTS as error:
            error.add_note(IterableValidationNote("", place, item))
            faults.append(error)
            if len(faults) > _TOLD:
                break
    return IterableValidationError("items", faults, kind)


def _union(kind: Any, converter: cattrs.Converter) -> _Hook:
    members = get_args(kind)
    hooks = [(_hook(converter, item), item) for item in members]
    rich = [pair for pair in hooks if pair[1] not in _WORDS]

    def hook(value: Any, _: Any) -> Any:
        for inner, item in hooks:
            try:
                return inner(value, item)
            except _FAULTS:
                # Of one member that is no plain value, what is wrong inside says more.
                if value is not None and [(inner, item)] == rich:
                    raise
        raise _Misfit(_words(kind), value)

    return hook


def _annotated(kind: Any, converter: cattrs.Converter) -> _Hook:
    item, *bounds = get_args(kind)
    for bound in bounds:
        if isinstance(bound, Between):
            return _integer(bound, _words(kind))
    inner = _hook(converter, item)
    most = [bound.characters for bound in bounds if isinstance(bound, AtMost)]

    def hook(value: Any, _: Any) -> Any:
        found = inner(value, item)
        if most and len(found) > most[0]:
            raise _Misfit(_words(kind), value)
        return found

    return hook


def _words(kind: Any) -> str:
    """Return what a value of a type is called in an error."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bound = arguments[1]
        if isinstance(bound, Between):
            return f"an integer from {bound.low} to {bound.high}"
        return f"a string of at most {bound.characters} characters"
    if origin in {Union, UnionType}:
        return " or ".join(map(_words, arguments))
    if origin in {tuple, list}:
        return "a list"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"one of {', '.join(str(item.value) for item in kind)}"
    return _WORDS.get(kind, "an object")
