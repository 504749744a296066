"""A document has the types that its dataclass says, or the error names the field and the value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.evidence import DocumentError
from torchyard.evidence.documents import AtMost, Between, parse_json, structure


class Colour(StrEnum):
    """A word of two."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a document."""

    rank: Annotated[int, Between(0, 7)]
    colour: Colour
    share: float = 0.5
    note: Annotated[str, AtMost(5)] = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A document."""

    name: str
    flag: bool
    rows: tuple[Row, ...]
    figures: Mapping[str, float | str]
    best: Row | None
    spec: tuple[tuple[int, ...], str]
    more: Any = None
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.name == "reserved":
            raise ValueError("expected a name that is free")


_ROW = {"rank": 3, "colour": "blue", "share": 1, "note": "five5"}
_GOOD: dict[str, Any] = {
    "name": "x",
    "flag": True,
    "rows": [_ROW, {"rank": 0, "colour": "red"}],
    "figures": {"a": 1, "b": "c", "d": 0.5},
    "best": None,
    "spec": [[1, 2], "float32"],
    "more": {"any": [None]},
    "words": ["w"],
}


def _changed(*path: str | int, to: object) -> Any:
    data = json.loads(json.dumps(_GOOD))
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return data


def test_a_sound_document_is_read_with_its_values_as_they_are() -> None:
    found = structure(_GOOD, Document, "doc")
    assert found.rows == (Row(3, Colour.BLUE, 1, "five5"), Row(0, Colour.RED))
    # Written again it is the same text: 1 does not become 1.0.
    assert type(found.rows[0].share) is int
    assert json.loads(json.dumps(asdict(found)))["figures"] == _GOOD["figures"]
    assert found.rows[0].colour is Colour.BLUE
    assert found.spec == ((1, 2), "float32")
    assert (found.more, found.words) == (_GOOD["more"], ["w"])
    assert structure(_changed("best", to=_ROW), Document, "doc").best == found.rows[0]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("name",), 3, "doc.name: expected a string, got 3"),
        (("flag",), 1, "doc.flag: expected true or false, got 1"),
        (("rows",), {}, "doc.rows: expected a list, got {}"),
        (("rows",), "red", "doc.rows: expected a list, got 'red'"),
        (("rows", 1), 3, "doc.rows[1]: expected an object, got 3"),
        (("rows", 1, "rank"), "3", "doc.rows[1].rank: expected an integer, got '3'"),
        (("rows", 1, "rank"), 3.0, "doc.rows[1].rank: expected an integer, got 3.0"),
        (("rows", 1, "rank"), True, "doc.rows[1].rank: expected an integer, got True"),
        (("rows", 1, "rank"), 8, "doc.rows[1].rank: expected an integer from 0 to 7, got 8"),
        (("spec", 0, 0), 10**40, "doc.spec[0][0]: expected an integer of at most 64 bits, got 1"),
        (("rows", 0, "share"), "1", "doc.rows[0].share: expected a number, got '1'"),
        (("rows", 0, "note"), "sixsix", "doc.rows[0].note: expected a string of at most 5 char"),
        (
            ("rows", 1, "colour"),
            "pink",
            "doc.rows[1].colour: expected one of red, blue, got 'p",
        ),
        (("rows", 1, "colour"), None, "doc.rows[1].colour: expected one of red, blue, got None"),
        (("figures",), [], "doc.figures: expected an object, got []"),
        (("figures", "e"), [], "doc.figures['e']: expected a number or a string, got []"),
        (("best",), 3, "doc.best: expected an object, got 3"),
        (("best",), {"rank": 1}, "doc.best.colour: expected one of red, blue, got nothing"),
        (("spec",), [[1]], "doc.spec: expected a list of 2, got [[1]]"),
        (("spec", 0, 1), 1.5, "doc.spec[0][1]: expected an integer, got 1.5"),
        (("words", 0), None, "doc.words[0]: expected a string, got None"),
        (("extra",), 3, "doc: expected no other keys, got ['extra']"),
        (("name",), "reserved", "doc: expected a name that is free"),
    ],
)
def test_an_error_names_the_field_what_was_expected_and_what_came(
    path: tuple[str | int, ...], value: object, said: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        structure(_changed(*path, to=value), Document, "doc")
    assert str(caught.value).startswith(said)


def test_the_first_faults_are_told_and_the_others_counted() -> None:
    data = {**_GOOD, "name": 1, "flag": 2, "rows": 3, "figures": 4, "best": 5}
    with pytest.raises(DocumentError) as caught:
        structure(data, Document, "doc")
    assert str(caught.value).count("expected") == 3
    assert str(caught.value).endswith("; and 2 more")
    many = _changed("rows", to=[3] * 100_000)
    with pytest.raises(DocumentError) as caught:
        structure(many, Document, "doc")
    assert len(str(caught.value)) < 300


def test_unknown_keys_are_left_out_where_that_is_asked_for() -> None:
    found = structure({**_GOOD, "extra": 3}, Document, "", ignore_unknown=True)
    assert found == structure(_GOOD, Document, "")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
_PLACES: list[tuple[str | int, ...]] = [
    *((name,) for name in _GOOD),
    *(("rows", 0), ("rows", 0, "rank"), ("figures", "a"), ("spec", 0), ("spec", 0, 0)),
]


@given(place=st.sampled_from(_PLACES), value=_VALUES)
def test_any_value_is_of_the_fields_type_or_refused_in_a_short_line(
    place: tuple[str | int, ...], value: object
) -> None:
    data = {**_GOOD, "rows": [dict(_ROW)], "figures": {"a": 1}, "spec": [[1, 2], "x"]}
    inner: Any = data
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    try:
        found = structure(data, Document, "doc")
    except DocumentError as refused:
        said = str(refused)
    else:
        said = "doc"
        _check(found)
    assert said.startswith("doc")
    assert len(said) < 500


def _check(found: Document) -> None:
    assert type(found.name) is str
    assert type(found.flag) is bool
    assert all(type(row) is Row and 0 <= row.rank <= 7 for row in found.rows)
    assert all(type(size) is int for size in found.spec[0])


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff", b"9" * 10_000])
def test_what_is_no_json_is_refused_with_the_files_name(data: bytes) -> None:
    with pytest.raises(DocumentError, match=r"^doc: expected JSON, got a damaged file: "):
        parse_json(data, "doc")
