"""A whole train on a monorepo that is not ours: real builds, a real index, real environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from packages.release.tests import foreign
from packages.release.tests.trains.clone import Rehearsal
from packages.release.tests.trains.rehearsal import commands_run, faults_planted, rehearse

# It builds and installs for half a minute; `nox -s rehearsal` runs it, before our own train.
pytestmark = pytest.mark.sweep

_GATES: Final = """
[[gates]]
name = "alone"
cells = ["*"]

[[gates]]
name = "together"

[[gates]]
name = "dependencies"
cells = ["lowest"]

[[gates]]
name = "reverse"
cells = ["*"]

[[gates]]
name = "hardware"
cells = ["cuda"]
session = "hardware"
level = "informing"

"""


def _fix(root: Path) -> None:
    path = root / "packages" / "shop" / "src" / "orchard_shop" / "__init__.py"
    path.write_text(path.read_text().replace('"apple", 2', '"apple", 3'))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rehearsal, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("rehearsal")
    root = foreign.make(folder / "orchard", agreed=True)
    path = root / "train.toml"
    text = path.read_text().replace("[hardware]\n", f"{_GATES}[hardware]\n")
    path.write_text(text.replace('"docs"]', '"docs", "release-only"]'))
    foreign.git(root, "commit", "--quiet", "--all", "--message=More gates")
    train = Rehearsal(root, folder)
    return train, rehearse(train, fix=_fix, build=("--no-isolation",))


def _rows(card: dict[str, Any], status: str) -> set[str]:
    return {f"{r['gate']} {r['cell']}".strip() for r in card["rows"] if r["status"] == status}


def test_the_train_arrives(ended: tuple[Rehearsal, dict[str, Any]]) -> None:
    train, end = ended
    assert end["card"]["ready"]
    assert not _rows(end["card"], "fail")
    assert {"alone orchard", "alone orchard-press", "alone orchard-shop", "together"} <= _rows(
        end["card"], "pass"
    )
    tags = ("v1.4.0^{commit}", "v1.4.0-rc2^{commit}")
    assert len({train.git("rev-parse", tag) for tag in tags}) == 1
    assert all(row["fine"] for row in end["audit"])
    assert {row["step"] for row in end["again"]["files"]} == {"done"}


def test_each_file_was_published_once(ended: tuple[Rehearsal, dict[str, Any]]) -> None:
    train, end = ended
    dist = {path.name for path in train.root.glob(".train/1.4.0/rc2/dist/*")}
    assert sorted(end["uploads"]) == sorted(dist)
    order = [name.partition("-1.4.0")[0] for name in end["uploads"]]
    assert list(dict.fromkeys(order)) == ["orchard", "orchard_press", "orchard_shop"]


def test_a_new_candidate_makes_stale_what_it_changed(
    ended: tuple[Rehearsal, dict[str, Any]],
) -> None:
    _, end = ended
    alone = [row for row in end["second"]["rows"] if row["gate"] == "alone"]
    assert {row["cell"] for row in alone if row["stale"]} == {"orchard-shop"}


def test_what_this_machine_has_not_got_is_unverified_or_waived_by_name(
    ended: tuple[Rehearsal, dict[str, Any]],
) -> None:
    _, end = ended
    rows = {f"{row['gate']} {row['cell']}".strip(): row for row in end["card"]["rows"]}
    assert rows["hardware cuda"]["status"] == "unverified"
    assert "there is no such device here" in rows["hardware cuda"]["text"]
    assert rows["reverse orchard-shop"]["status"] == "waived"
    assert rows["reverse orchard-shop"]["text"].startswith("ann, until ")


def test_an_outsider_verified_it_by_two_public_keys(
    ended: tuple[Rehearsal, dict[str, Any]],
) -> None:
    train, end = ended
    assert end["outsider"]["signatures"] == 2
    assert end["outsider"]["files"] == len(list(train.root.glob(".train/1.4.0/rc2/dist/*")))


def _command(run: dict[str, Any]) -> str:
    """Return a command's name; those that are killed are told their root before it."""
    words: list[str] = run["argv"]
    return words[2] if words[0] == "--root" else words[0]


def test_the_history_has_every_command_and_how_it_ended(
    ended: tuple[Rehearsal, dict[str, Any]],
) -> None:
    _, end = ended
    runs = end["history"]["runs"]
    words = [_command(run) for run in runs]
    assert list(dict.fromkeys(words)) == [
        *("cut", "build", "inspect", "verify", "pick"),
        *("approve", "promote", "publish", "audit"),
    ]
    assert {_command(run) for run in runs if run["outcome"] != "done"} == {
        *("cut", "approve", "promote", "publish")
    }


def test_what_was_touched_was_approved_by_nobody(
    ended: tuple[Rehearsal, dict[str, Any]],
) -> None:
    _, end = ended
    words = ("has SHA-256", "is missing", "link to", "not what was recorded")
    said = list(end["refused"].values())
    assert [word in text for word, text in zip(words, said, strict=False)] == [True] * 4
    assert "is none of [signing.keys]" in said[4]
    assert "the work tree alone has it" in said[5]
    assert "has SHA-256" in said[6]
    assert "threshold" in said[7]
    assert len(said) == 8


def test_what_was_killed_came_to_the_same_end(ended: tuple[Rehearsal, dict[str, Any]]) -> None:
    train, end = ended
    assert len(end["killed"]) == 3
    assert [ran.code for ran in train.ran if ran.code < 0] == [-9] * 3


def test_the_pages_name_every_command_package_and_fault(
    ended: tuple[Rehearsal, dict[str, Any]],
) -> None:
    train, end = ended
    page = commands_run(train, end)
    assert page.count("\n| ") > len(train.ran)
    unchanged = end["built"][1]["unchanged"]
    assert unchanged
    for name in end["built"][0]["seconds"]:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
        assert row.endswith("once more |" if name in unchanged else "twice |")
    faults = faults_planted(end)
    assert faults.count("refused: ") == len(end["refused"])
    assert faults.count("resumed: ") == len(end["killed"])
