"""train.toml: what it says is what the train knows, and what is wrong in it is named."""

from __future__ import annotations

import datetime
import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packages.release.tests import foreign
from torchyard_release._declaration._calendar import later
from torchyard_release._declaration._graph import closure, in_order
from torchyard_release._declaration._parse import parse_train, read_train
from torchyard_release._errors import CycleError, TrainError, WorkspaceError
from torchyard_release._repository._workspace import Workspace

_TEXT = foreign.TRAIN


def test_the_declaration_is_read(workspace: Workspace) -> None:
    train = workspace.train
    assert (train.release, train.series, train.tag) == ("1.4.0", "1.4", "v1.4.0")
    assert (train.branch, train.candidate_tag(2)) == ("release/1.4", "v1.4.0-rc2")
    press = train.package("orchard-press")
    assert (press.stem, press.budget, press.requires) == ("orchard_press", 100_000, ("orchard",))
    assert [phase.name for phase in train.phases] == ["land", "cut", "final", "depart"]


def test_packages_come_after_what_they_require(workspace: Workspace) -> None:
    assert [package.name for package in workspace.packages] == [
        "orchard",
        "orchard-press",
        "orchard-shop",
    ]
    assert workspace.dependents("orchard-press") == ("orchard-press", "orchard-shop")
    assert workspace.requirements("orchard-press") == ("orchard", "orchard-press")


def test_a_workspace_is_found_from_a_folder_below(orchard: Path) -> None:
    assert Workspace.find(orchard / "packages" / "shop").root == orchard.resolve()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema = 1", "schema = 2", "schema: expected 1, got 2"),
        ("schema = 1", "schema = [", "expected TOML, got"),
        ('version = "1.4.0.dev0"', 'version = "1.4"', "[train] version: expected a version X.Y.Z"),
        ('version = "1.4.0.dev0"', 'version = "1.4.0rc1"', "expected a version X.Y.Z"),
        ('version = "1.4.0.dev0"', "version = 14", "[train] version: expected a string, got 14"),
        ('owner = "Pomona"\n', "", "[train] owner: expected a string, got nothing"),
        ("departs = 2027-02-03", 'departs = "soon"', "[train] departs: expected a date"),
        ("months = 2", "months = 0", "[train] months: expected at least 1, got 0"),
        ("months = 2", "months = true", "[train] months: expected a whole number, got True"),
        ("months = 2", "month = 2", "[train] months: expected a whole number, got nothing"),
        ("months = 2", "months = 2\nmood = 1", "[train] mood: unknown key; expected one of: dep"),
        ('pins = "compatible"', 'pins = "loose"', "expected 'exact' or 'compatible', got 'loose'"),
        ('["3.11"]', '["3.12", "3.11"]', "[train] python: expected versions in ascending order"),
        ('["3.11"]', "[]", "[train] python: expected Python versions"),
        ("days = -7", "days = -20", "[[phases]] number 3: days: expected more than -14"),
        ("days = 0", "days = 1", "phases: expected [[phases]], one of them with days = 0"),
        ('name = "check"', 'name = "Check"', "[[gates]] number 1: name: expected lower-case"),
        ('name = "build"', 'name = "check"', "check: expected each gate once"),
        ('name = "check"', 'name = "check"\nlevel = "high"', "expected 'blocking' or 'informing'"),
        (
            'name = "check"',
            'name = "check"\nsession = "a"\ncommand = ["b"]',
            "number 1: command: expected a session or a command, got both",
        ),
        ('"100 kB"', '"100 KiB"', "[packages.orchard] budget: expected a size"),
        ('"packages/press"', '"../press"', "folder: expected a folder inside the repository"),
        ('"packages/press"', '"packages/orchard"', "expected each folder of a package once"),
        ('requires = ["orchard"]', 'requires = ["melon"]', "expected siblings, got 'melon'"),
        ('["cpu", "cuda"]', '["abacus"]', "hardware: expected names of [hardware]: cpu, cuda"),
        (f'"py3-none-{foreign.PLATFORM}"', '"linux"', "wheels: expected tags such as py3-none-any"),
        (
            f'"py3-none-{foreign.PLATFORM}"',
            '"py3-none-beos"',
            "wheels: expected a platform such as any",
        ),
        ("reverse = true", 'reverse = "yes"', "reverse: expected true or false, got 'yes'"),
        ("reverse = true", 'module = "a-b"', "module: expected the name of a Python package"),
        ("reverse = true", "patch = -1", "patch: expected at least 0, got -1"),
        ("reverse = true", 'torch = "new"', 'torch: expected a specifier such as ">=2.11"'),
        ("[hardware]", "[signing.keys]\nann = 'ff'\n[hardware]", "an Ed25519 public key"),
        (
            "[hardware]",
            f"[signing]\nthreshold = 2\n[signing.keys]\nann = '{'0' * 64}'\n[hardware]",
            "[signing] threshold: expected at most 1, the number of keys",
        ),
        (
            "[hardware]",
            "[[waivers]]\ngate = 'x'\nowner = 'P'\nreason = 'r'\nexpires = 2027-02-01\n[hardware]",
            "[[waivers]] gate 'x', cell '': no gate has that row",
        ),
        ("[packages.orchard]", "[package.orchard]", "package: unknown key; expected one of"),
    ],
)
def test_a_wrong_key_is_named_with_what_was_expected(old: str, new: str, said: str) -> None:
    assert old in _TEXT
    with pytest.raises(TrainError, match=re.escape(said)) as caught:
        parse_train(_TEXT.replace(old, new, 1))
    assert caught.value.remedy


def test_a_folder_without_a_train_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"neither in .* nor in a folder above it; go to"):
        Workspace.find(tmp_path)
    with pytest.raises(TrainError, match="No such file"):
        read_train(tmp_path)


def test_a_folder_that_is_no_package_is_named(orchard: Path) -> None:
    (orchard / "packages/shop/pyproject.toml").unlink()
    with pytest.raises(WorkspaceError, match=r"orchard-shop\] folder: packages/shop has"):
        Workspace.find(orchard)


def test_a_circle_of_packages_is_shown(orchard: Path) -> None:
    text = (
        (orchard / "train.toml")
        .read_text()
        .replace(
            'folder = "packages/orchard"',
            'folder = "packages/orchard"\nrequires = ["orchard-shop"]',
        )
    )
    foreign.write(orchard, "train.toml", text)
    with pytest.raises(CycleError) as caught:
        Workspace.find(orchard)
    circle = caught.value.text.partition(": ")[2].split(" requires ")
    assert circle[0] == circle[-1]
    requires = {"orchard": {"orchard-shop"}, "orchard-press": {"orchard"}}
    requires["orchard-shop"] = {"orchard", "orchard-press"}
    assert all(b in requires[a] for a, b in itertools.pairwise(circle))


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] > e[1])
        ).map(lambda edges: (n, edges))
    )
)
def test_any_order_puts_requirements_first(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    requires = {str(n): [str(b) for a, b in edges if a == n] for n in range(count)}
    order = in_order(requires)
    assert sorted(order) == sorted(requires)
    assert all(order.index(str(b)) < order.index(str(a)) for a, b in edges)
    for name in requires:
        assert closure([name], requires) == {name}.union(
            *(closure([needed], requires) for needed in requires[name])
        )


def test_versions_are_the_series_and_a_packages_own_patch() -> None:
    text = _TEXT.replace('version = "1.4.0.dev0"', 'version = "1.4.2"').replace(
        "reverse = true", "patch = 7"
    )
    train = parse_train(text)
    versions = {package.name: train.version_of(package) for package in train.packages}
    assert versions == {"orchard": "1.4.2", "orchard-press": "1.4.2", "orchard-shop": "1.4.7"}
    assert train.pin_of(train.package("orchard-shop")) == "~=1.4.0"
    exact = parse_train(text.replace('"compatible"', '"exact"'))
    assert exact.pin_of(exact.package("orchard-shop")) == "==1.4.7"
    developing = parse_train(_TEXT)
    assert developing.pin_of(developing.package("orchard")) == "==1.4.0.dev0"


@given(st.dates(datetime.date(2020, 1, 1), datetime.date(2090, 1, 1)), st.integers(1, 30))
def test_a_later_train_leaves_on_the_same_weekday_of_its_month(
    departs: datetime.date, months: int
) -> None:
    following = later(departs, months)
    assert following.weekday() == departs.weekday()
    distance = (following.year - departs.year) * 12 + following.month - departs.month
    assert distance == months
    ordinal, fifth = (departs.day - 1) // 7, (following.day - 1) // 7
    assert fifth == ordinal or (ordinal == 4 and fifth == 3)


def test_the_phase_of_a_day_is_the_last_that_has_begun(workspace: Workspace) -> None:
    def named(day: str) -> str:
        phase = workspace.train.phase_on(datetime.date.fromisoformat(day))
        return phase.name if phase else ""

    assert [named(day) for day in ("2027-01-05", "2027-01-06", "2027-01-19", "2027-01-20")] == [
        *("", "land", "land", "cut")
    ]
    assert named("2027-03-01") == "depart"
