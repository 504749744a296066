"""Pickles of plain containers are read; of others nothing is carried out."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.evidence import DocumentError
from torchyard.evidence.pickles import read_pickle

_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=9,
)


class _Runs:
    """Unpickled by pickle it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@settings(max_examples=40)
@given(value=_PLAIN, protocol=st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_plain_containers_come_back(value: object, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol), "dump") == value


@settings(max_examples=40)
@given(value=_PLAIN, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_a_call_anywhere_is_refused_and_not_made(value: object, protocol: int) -> None:
    path = Path("never/made")
    data = pickle.dumps([value, {"x": (_Runs(path), value)}], protocol)
    with pytest.raises(DocumentError, match=r"dump: .*nothing of it was carried out"):
        read_pickle(data, "dump")
    assert not path.exists()


def test_the_call_would_be_made_by_pickle(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(_Runs(tmp_path / "made")))
    assert (tmp_path / "made").is_dir()


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    said = "dump: "
    try:
        read_pickle(b"\x80\x04" + data, "dump")
    except DocumentError as refused:
        said = str(refused)
    assert said.startswith("dump: ")
