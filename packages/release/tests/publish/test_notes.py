"""Notes and counts: what git says, under the names that people chose, once each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from packages.release.tests.foreign import git, write
from packages.release.tests.prepared import add_candidate, pass_gates, train_toml
from torchyard import Feature, Stage
from torchyard_release._cut._fragments import Fragment
from torchyard_release._errors import ReleaseError
from torchyard_release._publish._notes import feature_lines, notes_of, sections_of
from torchyard_release._repository._git import Git
from torchyard_release._repository._history_range import since
from torchyard_release._repository._workspace import Workspace

_BOTS = ("*[bot]", "*@bots.example")


def _commit(root: Path, name: str, author: str, message: str = "") -> str:
    write(root, name, f"{name} {message}\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", f"--author={author}", f"--message={message or name}")
    return git(root, "rev-parse", "HEAD").strip()


@pytest.fixture
def grown(orchard: Path) -> Path:
    """Return a monorepo with a release v1.3.0, whose branch had picks, and seven commits since."""
    _commit(orchard, ".mailmap", "Pomona <pomona@orchard.example>", "Map names")
    write(orchard, ".mailmap", "Ann Elder <ann@orchard.example> <a@old.example>\n")
    git(orchard, "commit", "--quiet", "--all", "--message=Map Ann")
    git(orchard, "switch", "--quiet", "--create", "release/1.3")
    git(orchard, "switch", "--quiet", "main")
    clean = _commit(orchard, "clean.txt", "Bob <bob@orchard.example>")
    byhand = _commit(orchard, "hand.txt", "Bob <bob@orchard.example>")
    git(orchard, "switch", "--quiet", "release/1.3")
    _commit(orchard, "cut.txt", "Bob <bob@orchard.example>", "Cut 1.3.0")
    git(orchard, "cherry-pick", clean)
    _commit(
        orchard,
        "hand.txt",
        "Bob <bob@orchard.example>",
        f"hand, otherwise\n\n(cherry picked from commit {byhand})",
    )
    git(orchard, "tag", "--annotate", "--message=1.3.0", "v1.3.0")
    git(orchard, "switch", "--quiet", "main")
    _commit(orchard, "one.txt", "Ann <a@old.example>")
    _commit(
        orchard,
        "two.txt",
        "Ann Elder <ann@orchard.example>",
        "two\n\nCo-authored-by: Cy <cy@orchard.example>\nCo-Authored-By: Ann <a@old.example>",
    )
    _commit(orchard, "three.txt", "renew[bot] <1+renew[bot]@bots.example>")
    _commit(orchard, "four.txt", "sweeper <sweep@bots.example>")
    return orchard


def test_commits_and_contributors_are_counted_once_each(grown: Path) -> None:
    found = since(Git(grown), "v1.3.0", "HEAD", _BOTS)
    assert [commit.subject for commit in found.commits] == [
        *("one.txt", "two", "three.txt", "four.txt")
    ]
    assert [(person.name, count) for person, count in found.contributors] == [
        ("Ann Elder", 2),
        ("Cy", 1),
    ]
    assert [person.name for person in found.bots] == ["renew[bot]", "sweeper"]
    assert found.sentence() == "4 commits from 2 contributors since v1.3.0"


def test_what_the_last_release_had_picked_is_told_apart(grown: Path) -> None:
    found = since(Git(grown), "v1.3.0", "HEAD", _BOTS)
    assert [commit.subject for commit in found.shipped] == ["clean.txt", "hand.txt"]


def test_the_counts_are_gits_own(grown: Path) -> None:
    found = since(Git(grown), "v1.3.0", "HEAD", ())
    span = ("--no-merges", "v1.3.0..HEAD")
    assert len(found.commits) + len(found.shipped) == int(git(grown, "rev-list", "--count", *span))
    authors = {line.split("\t")[1] for line in git(grown, "shortlog", "-sn", *span).splitlines()}
    picked_only = {"Bob"}
    assert {person.name for person, _ in found.contributors} == (authors - picked_only) | {"Cy"}


def test_the_first_release_counts_from_the_beginning(orchard: Path) -> None:
    _commit(orchard, "one.txt", "Ann <ann@orchard.example>")
    found = since(Git(orchard), "", "HEAD", ())
    assert found.sentence() == "2 commits from 2 contributors since the beginning"


def test_nothing_new_is_no_release(orchard: Path) -> None:
    git(orchard, "tag", "v1.3.0")
    with pytest.raises(ReleaseError, match=r"nothing is new since v1\.3\.0"):
        since(Git(orchard), "v1.3.0", "HEAD", ())


def _feature(name: str, stage: Stage, api: str = "stable", device: str = "*") -> Feature:
    leaves = "2.0.0" if stage is Stage.DEPRECATED else ""
    return Feature(name, device, f"what {name} is", stage, api, "1.0.0", "docs/x.md", leaves)


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        (
            "beta",
            [
                ("c", "Stable", "was Beta"),
                ("b", "Beta", ""),
                ("a", "Prototype", "new"),
                ("d", "Deprecated (2.0.0)", "was Stable"),
            ],
        ),
        (
            "api",
            [
                ("b", "API-Stable", "was API-Unstable"),
                ("c", "API-Stable", ""),
                ("a", "API-Unstable", "new"),
                ("d", "Deprecated (2.0.0)", "was API-Stable"),
            ],
        ),
    ],
)
def test_features_are_told_in_either_vocabulary_with_what_changed(
    vocabulary: str, expected: list[tuple[str, str, str]]
) -> None:
    before = [
        _feature("b", Stage.BETA, "unstable"),
        _feature("c", Stage.BETA),
        _feature("d", Stage.STABLE),
    ]
    now = [
        _feature("a", Stage.PROTOTYPE, "unstable"),
        _feature("b", Stage.BETA),
        _feature("c", Stage.STABLE),
        _feature("d", Stage.DEPRECATED),
    ]
    lines = feature_lines(now, before, vocabulary)
    assert [(line.feature.id, line.stage, line.change) for line in lines] == expected


def test_fragments_stand_under_their_types_by_package() -> None:
    fragments = [
        Fragment("slug", "press", "added", "Press."),
        Fragment("7", "orchard", "added", "Grow."),
        Fragment("8", "orchard", "fixed", "Fix."),
    ]
    kinds = {"breaking": "Breaking", "fixed": "Bug fixes", "added": "New features"}
    assert sections_of(fragments, kinds) == (
        ("Bug fixes", ("**orchard**: Fix. (#8)",)),
        ("New features", ("**orchard**: Grow. (#7)", "**press**: Press.")),
    )


def test_notes_hold_fragments_counts_highlights_and_what_is_not_claimed(
    orchard: Path, release: Callable[..., Result]
) -> None:
    write(orchard, "highlights.md", "Apples **and** pears.\n")
    table = (
        '[[feature]]\nid = "orchard.apples"\ndevice = "*"\nsummary = "apples"\nstage = "beta"\n'
        'api = "stable"\nsince = "1.4.0"\ntracking = "README.md"\n'
    )
    write(orchard, "features.toml", table)
    git(orchard, "add", "--all")
    more = '\n[notes]\nbots = ["*[bot]"]\nhighlights = "highlights.md"\n'
    more += 'features = "features.toml"\n'
    train_toml(orchard, more=more, **{'version = "1.4.0.dev0"': 'version = "1.4.0"'})
    pass_gates(orchard, add_candidate(orchard), "check", "build")
    result = release("notes", "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["commits"] == int(git(orchard, "rev-list", "--count", "HEAD"))
    notes, blog = (Path(name).read_text() for name in data["files"])
    for text in (notes, blog):
        assert "Apples **and** pears." in text
        assert "Grow apples." in text
        assert "orchard.apples" in text
        assert data["sentence"] in text
    assert "inspect: unverified" in notes
    assert "| Beta | `orchard.apples` | every other | apples |" in notes


def test_notes_of_a_candidate_are_written_out_of_its_own_tree(
    orchard: Path, release: Callable[..., Result]
) -> None:
    train_toml(orchard, **{'version = "1.4.0.dev0"': 'version = "1.4.0"'})
    pass_gates(orchard, add_candidate(orchard), "check")
    before = json.loads(release("notes", "--json").stdout)
    # Main goes on: this one is the next release's.
    write(orchard, "changelog.d/9.orchard.added.md", "Grow plums.\n")
    _commit(orchard, "plums.txt", "Bob <bob@orchard.example>")
    after = json.loads(release("notes", "--json").stdout)
    assert after["commits"] == before["commits"]
    text = Path(after["files"][0]).read_text()
    assert "Grow apples." in text
    assert "plums" not in text


def test_without_fragments_there_are_no_notes(orchard: Path) -> None:
    for path in (orchard / "changelog.d").iterdir():
        path.unlink()
    with pytest.raises(ReleaseError, match="expected fragments of changes, found none"):
        notes_of(Workspace.find(orchard), None)
