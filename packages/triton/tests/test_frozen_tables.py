"""What kernels are compiled with is in tables, each with its date and reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import torchyard_triton
from torchyard_triton._frozen_tables import frozen_table
from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.recurrent._tiles import StepTiles, step_tiles

_ROOT = Path(str(torchyard_triton.__file__)).parent
# Budgets have a reason for each row, and the version of Triton instead of a date.
_TABLES = [
    file.relative_to(_ROOT).as_posix()
    for file in sorted(_ROOT.rglob("*.json"))
    if file.name != "budgets.json"
]


def _parts(table: Any) -> Iterator[dict[str, Any]]:
    """Yield a table, and those of its parts that are frozen by themselves."""
    yield table
    yield from (part for part in table.values() if isinstance(part, dict) and "sizes" in part)


def _architectures(table: Any) -> set[str]:
    """Return the names that a table has rows for."""
    by_size = table.get("heads", {}).get("sizes", {})
    return set(table.get("architectures", {})).union(*by_size.values())


def test_each_op_has_a_table() -> None:
    folders = {Path(name).parent.name for name in _TABLES}
    assert folders == {"", "linear", "pointwise", "recurrent", "topk"}


@pytest.mark.parametrize("name", _TABLES)
def test_a_table_has_a_date_and_a_reason(name: str) -> None:
    for part in _parts(frozen_table(name)):
        assert date.fromisoformat(part["frozen"]) >= date(2026, 11, 26)
        assert re.fullmatch(r"\d+\.\d+", part["triton"])
        assert len(part["reason"].split()) > 10


@pytest.mark.parametrize("name", _TABLES)
def test_a_table_names_known_architectures(name: str) -> None:
    assert _architectures(frozen_table(name)) <= set(ARCHITECTURES)


@pytest.mark.parametrize("name", _TABLES)
def test_a_table_says_nothing_twice(name: str) -> None:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(pairs) == len(dict(pairs))
        return dict(pairs)

    json.loads((_ROOT / name).read_text(encoding="utf-8"), object_pairs_hook=once)


def test_steps_have_the_tables_tiles() -> None:
    assert step_tiles("step") == StepTiles(64, 32, 64, 4, 2)
    # With 32 units an LSTM's gradients take all registers of sm_80, and spill.
    assert step_tiles("step_gradient").columns == 16
