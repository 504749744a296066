"""What of an API broke is found, and is allowed where version and fragments say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from packages.release.tests import foreign
from torchyard_release._cut._fragments import Fragment
from torchyard_release._declaration._parse import parse_train
from torchyard_release._errors import WorkspaceError
from torchyard_release._gates._api import ApiChange, compare_api

_PACKAGE = parse_train(foreign.TRAIN).package("orchard")
_OLD = '''"""Trees."""

from orchard._seeds import Seed, old_seed

__all__ = ["Seed", "grow", "old_seed", "prune"]


def grow(kind: str, count: int = 1) -> list[str]:
    """Grow fruit."""
    return [kind] * count


def prune(tree: str) -> str:
    """Prune a tree.

    .. deprecated:: 1.3
    """
    return tree


def _water() -> None: ...
'''
_SEEDS = '''class Seed:
    """A seed."""

    def plant(self, depth: int) -> None:
        """Plant it."""


def old_seed() -> Seed:
    """Return a seed."""
    return Seed()
'''


def _tree(root: Path, text: str = _OLD, seeds: str = _SEEDS) -> Path:
    foreign.write(root, "packages/orchard/src/orchard/__init__.py", text)
    foreign.write(root, "packages/orchard/src/orchard/_seeds.py", seeds)
    foreign.write(root, "packages/orchard/src/orchard/_version.py", f"__version__ = '{root}'\n")
    return root


def _compared(
    tmp_path: Path, text: str, now: str, before: str, *kinds: str, seeds: str = _SEEDS
) -> ApiChange:
    fragments = [Fragment("1", "orchard", kind, "Say so.") for kind in kinds]
    trees = _tree(tmp_path / "now", text, seeds), _tree(tmp_path / "before")
    return compare_api(_PACKAGE, *trees, (Version(now), Version(before)), fragments)


def test_the_same_api_breaks_nothing(tmp_path: Path) -> None:
    change = _compared(tmp_path, _OLD, "1.4.1", "1.4.0")
    assert change == ApiChange("orchard", 5, (), (), (), ())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("count: int = 1", "*, count: int = 1", "orchard.grow"),
        ("kind: str, count: int = 1", "kind: str", "orchard.grow"),
        ("kind: str, count: int = 1", "kind: str, place: str, count: int = 1", "orchard.grow"),
        ('"grow", ', "", "orchard.grow: removed"),
        (', "prune"', "", "orchard.prune: removed"),
    ],
)
def test_what_breaks_needs_a_fragment_and_a_new_series(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in _OLD
    text = _OLD.replace(old, new, 1)
    change = _compared(tmp_path, text, "0.5.0", "0.4.0")
    assert change.broken
    assert change.broken[0].startswith(said)
    assert "no fragment says so; add changelog.d/<change>.orchard.breaking.md" in change.faults[0]
    assert _compared(tmp_path, text, "0.5.0", "0.4.0", "breaking").faults == ()


@pytest.mark.parametrize(
    ("now", "before", "allowed"),
    [
        *(("0.4.1", "0.4.0", False), ("0.5.0", "0.4.3", True), ("1.0.0", "0.9.0", True)),
        *(("1.5.0", "1.4.0", False), ("1.4.1", "1.4.0", False), ("2.0.0", "1.9.0", True)),
    ],
)
def test_only_a_new_major_breaks_or_before_the_first_a_new_minor(
    tmp_path: Path, now: str, before: str, allowed: bool
) -> None:
    text = _OLD.replace(', "prune"', "")
    change = _compared(tmp_path, text, now, before, "breaking")
    assert change.faults == () if allowed else "may not break" in change.faults[0]


def test_a_member_of_a_class_that_comes_from_a_private_module_counts(tmp_path: Path) -> None:
    seeds = _SEEDS.replace("depth: int", "depth: int, row: int")
    change = _compared(tmp_path, _OLD, "0.5.0", "0.4.0", "breaking", seeds=seeds)
    assert any("plant" in line for line in change.broken)


def test_what_goes_was_deprecated_a_release_before(tmp_path: Path) -> None:
    text = _OLD.replace('"grow", ', "").replace(', "prune"', "")
    change = _compared(tmp_path, text, "2.0.0", "1.9.0", "breaking")
    assert change.unannounced == ("orchard.grow",)
    [fault] = change.faults
    assert fault.startswith("orchard: orchard.grow is gone and was not deprecated in 1.9.0; deprec")


@pytest.mark.parametrize(
    "text",
    [
        _OLD.replace("def grow", '@deprecated("use plant")\ndef grow'),
        _OLD.replace("Grow fruit.", "Deprecated: use plant."),
    ],
)
def test_what_is_deprecated_needs_a_fragment(tmp_path: Path, text: str) -> None:
    change = _compared(tmp_path, text, "1.5.0", "1.4.0")
    assert change.deprecated == ("orchard.grow",)
    assert "orchard.grow is deprecated and no fragment says so" in change.faults[0]
    assert _compared(tmp_path, text, "1.5.0", "1.4.0", "deprecated").faults == ()


def test_a_first_release_is_compared_with_nothing(tmp_path: Path) -> None:
    change = compare_api(_PACKAGE, _tree(tmp_path), None, (Version("1.0.0"), None), [])
    assert (change.names, change.faults) == (5, ())


def test_what_no_all_lists_is_not_public(tmp_path: Path) -> None:
    text = '"""Empty."""\n\n__all__: list[str] = []\n\n\ndef grow(): ...\n'
    change = compare_api(_PACKAGE, _tree(tmp_path, text), None, (Version("1.0.0"), None), [])
    assert change.names == 0


def test_a_package_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="packages/orchard: orchard cannot be read"):
        compare_api(_PACKAGE, tmp_path, None, (Version("1.0.0"), None), [])
