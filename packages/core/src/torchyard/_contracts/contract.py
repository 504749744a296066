"""Contracts: a component's versioned promise of what one op means."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from torchyard import arguments

_CONTRACT: Final = re.compile(
    r"(?P<op>[a-z][a-z0-9_]*)/(?P<version>[1-9][0-9]{0,5})(\.(?P<minor>0|[1-9][0-9]{0,5}))?"
)
_VERSION_MARK: Final = re.compile(r"_v[0-9]+$")


@dataclass(frozen=True, slots=True, order=True)
class ContractId:
    """The name of a contract: an op and the version of its promise, written ``op/version``.

    The version is the major one. Minors, which only add, are no part of the name: see
    :func:`parse_contract`.
    """

    op: str
    version: int

    def __post_init__(self) -> None:
        arguments.text("ContractId", "op", self.op)
        version = arguments.integer("ContractId", "version", self.version, least=1)
        object.__setattr__(self, "version", version)

    @classmethod
    def parse(cls, text: str) -> ContractId:
        """Read ``op/version``; raise ValueError that shows the expected form.

        An op does not end in ``_v`` and digits: ``torchyard.use`` writes a version that way.
        """
        match = _match(arguments.instance("ContractId", "contract", text, str))
        if match is None or match["minor"] is not None:
            raise ValueError(f"contract: expected 'op/version' such as 'attention/1', got {text!r}")
        return cls(match["op"], int(match["version"]))

    def __str__(self) -> str:
        return f"{self.op}/{self.version}"


def _field(of: str, name: str, value: object) -> RequestField:
    return arguments.instance(of, name, value, RequestField)


def parse_contract(text: str) -> tuple[ContractId, int]:
    """Read ``op/version`` or ``op/version.minor``: a contract, and a minor of it (or else 0).

    Raises:
        ValueError: shows the expected form.
    """
    match = _match(text)
    if match is None:
        raise ValueError(
            f"contract: expected 'op/version' or 'op/version.minor' such as 'attention/1' or "
            f"'attention/1.2', got {text!r}"
        )
    return ContractId(match["op"], int(match["version"])), int(match["minor"] or 0)


def _match(text: str) -> re.Match[str] | None:
    match = _CONTRACT.fullmatch(text)
    return None if match is None or _VERSION_MARK.search(match["op"]) else match


@runtime_checkable
class Request(Hashable, Protocol):
    """What the registry needs to know of a request: a frozen, hashable description, no tensors.

    A request may have an attribute ``contract_minor`` besides: the minor of the contract that first
    had what this request asks for; without it, 0.
    """

    @property
    def device(self) -> str:
        """The torch device type that the op's tensors lie on, such as ``cpu``."""

    def bucket(self) -> str:
        """Return the key under which decisions are locked.

        It is coarse in sizes and exact in features, the device among them.
        """


@dataclass(frozen=True, slots=True)
class RequestField:
    """One field that a person may give to ``torchyard explain``."""

    name: str
    help: str
    default: str

    def __post_init__(self) -> None:
        arguments.text("RequestField", "name", self.name)
        for field in ("help", "default"):
            arguments.instance("RequestField", field, getattr(self, field), str, "a string")


@dataclass(frozen=True, slots=True)
class ContractDefinition:
    """A component's definition of one contract, as the registry and the command line need it.

    Attributes:
        contract: ``op/version``.
        summary: one line for a person.
        fields: what a request is described by, with defaults.
        parse: builds a request from the text of every field; raises ValueError naming the field.
        cases: representative requests for a device type, for dumps of decisions. Their buckets
            name the device, since a dump holds those of several.
    """

    contract: str
    summary: str
    fields: tuple[RequestField, ...]
    parse: Callable[[Mapping[str, str]], Request]
    cases: Callable[[str], Iterable[Request]]

    def __post_init__(self) -> None:
        of = "ContractDefinition"
        ContractId.parse(self.contract)
        arguments.instance(of, "summary", self.summary, str, "a string")
        arguments.sequence(of, "fields", self.fields, _field)
        for field in ("parse", "cases"):
            arguments.function(of, field, getattr(self, field))

    def request(self, fields: Mapping[str, str]) -> Request:
        """Build a request from the text of some fields; the others have their defaults.

        Raises:
            ValueError: names the field that there is none of, or that ``parse`` cannot read.
        """
        known = {field.name: field for field in self.fields}
        unknown = sorted(set(fields) - set(known))
        if unknown:
            listing = "".join(
                f"\n  {field.name}: {field.help} (default {field.default})"
                for field in known.values()
            )
            raise ValueError(
                f"{self.contract} has no field {', '.join(unknown)}; its fields:{listing}"
            )
        return self.parse({name: fields.get(name, known[name].default) for name in known})
