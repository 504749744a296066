"""The fault matrix of promoting and publishing: killed at every line, resumed to one end."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from packages.release.tests import foreign
from packages.release.tests.index.faulty_index import FaultyIndex
from packages.release.tests.killing import HOW, WHEN, die, ended, finish, kill_at, start
from packages.release.tests.prepared import VERSION, add_candidate, pass_gates, people, train_toml
from torchyard_release._index._server import HANG_UP, Answer
from torchyard_release._records._journal import read_journal
from torchyard_release._repository._workspace import Workspace

_PUBLISH = ("publish", "--for-real")
_GATES = ("check", "build", "inspect")


@dataclass
class Scene:
    """A monorepo whose candidate is approved, the index that it is published to, and a copy."""

    root: Path
    index: FaultyIndex

    @property
    def journal(self) -> Path:
        return _journal(self.root)

    def lines(self) -> int:
        return len(read_journal(self.journal))


def _journal(root: Path) -> Path:
    return root / ".train" / VERSION / "journal.jsonl"


@pytest.fixture(scope="module")
def approved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a monorepo whose rc1 two of three people approved."""
    folder = tmp_path_factory.mktemp("approved")
    root = foreign.make(folder / "orchard")
    train_toml(root, **{'version = "1.4.0.dev0"': f'version = "{VERSION}"'})
    keys = people(root, folder, "ann", "bob", "cy", threshold=2)
    train_toml(root, more='\n[indexes.release]\nrepository = "ADDRESS"\nsimple = "SIMPLE"\n')
    pass_gates(root, add_candidate(root), *_GATES)
    for key in keys[:2]:
        assert finish(root, ("approve", "--key", str(key))) == 0
    return root


@pytest.fixture(scope="module")
def promoted(approved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy in which rc1 is the release."""
    root = tmp_path_factory.mktemp("promoted") / "orchard"
    shutil.copytree(approved, root)
    assert finish(root, ("promote",)) == 0
    return root


@pytest.fixture
def scene(approved: Path, tmp_path: Path) -> Iterator[Scene]:
    with FaultyIndex(tmp_path / "index") as index:
        yield _scene(approved, tmp_path / "orchard", index)


def _scene(approved: Path, root: Path, index: FaultyIndex) -> Scene:
    shutil.copytree(approved, root)
    path = root / "train.toml"
    text = path.read_text().replace('"ADDRESS"', f'"{index.legacy}"')
    path.write_text(text.replace('"SIMPLE"', f'"{index.simple}"'))
    foreign.git(root, "commit", "--quiet", "--all", "--message=Name the index")
    return Scene(root, index)


def _check_end(scene: Scene) -> None:
    """Assert what every story must end with: the same bytes, once each, and every line kept."""
    dist = scene.root / ".train" / VERSION / "rc1" / "dist"
    there = scene.index.folder / "files"
    assert {p.name: p.read_bytes() for p in there.glob("*.whl")} == {
        p.name: p.read_bytes() for p in dist.iterdir()
    }
    assert sorted(scene.index.uploads) == sorted(p.name for p in dist.iterdir())
    kinds = [entry.kind for entry in read_journal(scene.journal)]
    assert kinds.count("promote") == 1
    assert kinds.count("published") >= 1


# `nox -s rehearsal` runs it.
@pytest.mark.sweep
@pytest.mark.parametrize("how", HOW)
def test_killed_at_any_line_of_publishing_it_resumes_to_the_same_bytes(
    promoted: Path, tmp_path: Path, how: str
) -> None:
    at = 0
    while True:
        at += 1
        with FaultyIndex(tmp_path / f"index{at}") as index:
            scene = _scene(promoted, tmp_path / f"orchard{at}", index)
            before = read_journal(scene.journal)
            code = die(scene.root, _PUBLISH, at=at, how=how)
            after = read_journal(scene.journal)
            assert after[: len(before)] == before
            if code == 0:
                break
            # "full" ends by itself, with a message; the others are killed.
            assert code == (1 if how == "full" else -9)
            assert finish(scene.root, _PUBLISH) == 0
            assert read_journal(scene.journal)[: len(after)] == after
            _check_end(scene)
    # command, publish, three of sending, answer and done, published, ended.
    assert at - 1 == 13


@pytest.mark.parametrize("how", HOW)
def test_killed_at_any_line_of_promoting_it_promotes_once(
    approved: Path, tmp_path: Path, how: str
) -> None:
    for at in (1, 2, 3):
        with FaultyIndex(tmp_path / f"index{at}") as index:
            scene = _scene(approved, tmp_path / f"orchard{at}", index)
            assert die(scene.root, ("promote",), at=at, how=how) != 0
            assert finish(scene.root, ("promote",)) == 0
            kinds = [entry.kind for entry in read_journal(scene.journal)]
            assert kinds.count("promote") == 1
            workspace = Workspace.find(scene.root)
            assert workspace.git.commit(f"v{VERSION}") == workspace.git.commit(f"v{VERSION}-rc1")


@pytest.mark.parametrize("when", WHEN)
def test_killed_from_outside_at_any_point_of_promoting_it_promotes_once(
    approved: Path, tmp_path: Path, when: str
) -> None:
    at = 0
    while True:
        at += 1
        root = tmp_path / f"orchard{at}"
        shutil.copytree(approved, root)
        code = kill_at(root, ("promote",), at=at, when=when)
        if code == 0:
            break
        assert code == -9
        assert finish(root, ("promote",)) == 0
        kinds = [entry.kind for entry in read_journal(_journal(root))]
        assert kinds.count("promote") == 1
        git = Workspace.find(root).git
        assert git.commit(f"v{VERSION}") == git.commit(f"v{VERSION}-rc1")
    # command, promote, ended.
    assert at - 1 == 3


class KillingIndex(FaultyIndex):
    """An index that kills its uploader while an upload is on its way.

    Attributes:
        victim: who uploads.
        at: the number of the upload that is its last, from 1.
        takes: whether the file is taken nevertheless.
        status: the uploader's exit status, once it is killed. Two threads that wait for one process
            would take it from each other.
    """

    victim: BaseProcess | None = None
    at = 0
    takes = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.status: Future[int] = Future()

    def take(self, name: str, content: bytes, said: str) -> Answer:
        """Kill the uploader at its time; nobody hears the answer."""
        if self.victim is None or len(self.asked) + 1 != self.at:
            return super().take(name, content, said)
        victim, self.victim = self.victim, None
        if self.takes:
            super().take(name, content, said)
        victim.kill()
        self.status.set_result(ended(victim))
        return HANG_UP


@pytest.mark.parametrize("takes", [True, False], ids=["taken", "lost"])
@pytest.mark.parametrize("at", [1, *(pytest.param(n, marks=pytest.mark.sweep) for n in (2, 3))])
def test_killed_in_the_middle_of_an_upload_it_resumes_to_the_same_bytes(
    promoted: Path, tmp_path: Path, at: int, takes: bool
) -> None:
    with KillingIndex(tmp_path / "index") as index:
        scene = _scene(promoted, tmp_path / "orchard", index)
        index.at, index.takes = at, takes
        # Held until the index knows whom it is to kill.
        here, there = multiprocessing.Pipe()
        index.victim = start(scene.root, _PUBLISH, at=1, how="wait", pipe=there)
        here.send("go")
        assert index.status.result(300) == -9
        journal = read_journal(scene.journal)
        assert [entry.kind for entry in journal][-1] == "publish.sending"
        status = json.loads(foreign.release(scene.root, "status", "--json").stdout)
        assert status["next"].endswith(" publish --for-real")
        assert finish(scene.root, _PUBLISH) == 0
        assert read_journal(scene.journal)[: len(journal)] == journal
        _check_end(scene)


def test_status_names_the_next_step_from_the_signatures_to_the_audit(scene: Scene) -> None:
    def following() -> str:
        document = json.loads(foreign.release(scene.root, "status", "--json").stdout)
        return str(document["next"]).removeprefix("torchyard release ")

    assert following() == "promote"
    assert finish(scene.root, ("promote",)) == 0
    assert following() == "publish"
    assert finish(scene.root, _PUBLISH) == 0
    assert following() == "audit"


def test_a_second_operator_is_turned_away_and_told_who_works(scene: Scene) -> None:
    from torchyard_release._errors import LockedError

    workspace = Workspace.find(scene.root)
    with workspace.operation(["promote"]):
        assert finish(scene.root, ("promote",)) == 1
        with pytest.raises(LockedError, match="Pomona"), workspace.operation(["publish"]):
            pass
    assert finish(scene.root, ("promote",)) == 0


def test_a_tag_that_somebody_else_made_stops_the_promotion(scene: Scene) -> None:
    (scene.root / "more").write_text("x")
    foreign.git(scene.root, "add", "--all")
    foreign.git(scene.root, "commit", "--quiet", "--message=Another")
    foreign.git(scene.root, "tag", f"v{VERSION}")
    assert finish(scene.root, ("promote",)) == 1
    assert not [e for e in read_journal(scene.journal) if e.kind == "promote"]


@pytest.mark.parametrize("spoil", ["missing", "extra", "changed"])
def test_a_candidate_whose_files_changed_is_neither_promoted_nor_published(
    scene: Scene, spoil: str
) -> None:
    dist = scene.root / ".train" / VERSION / "rc1" / "dist"
    wheel = sorted(dist.iterdir())[0]
    original = wheel.read_bytes()
    if spoil == "missing":
        wheel.unlink()
    elif spoil == "extra":
        (dist / "stray-1.0-py3-none-any.whl").write_bytes(original)
    else:
        wheel.write_bytes(original[:-1] + b"x")
    assert finish(scene.root, ("promote",)) == 1
    assert not Workspace.find(scene.root).git.has_tag(f"v{VERSION}")
    assert finish(scene.root, _PUBLISH) == 1
    assert not scene.index.asked


def test_publishing_before_promotion_is_refused(scene: Scene) -> None:
    assert finish(scene.root, _PUBLISH) == 1
    assert not scene.index.asked


def test_a_dry_run_leaves_no_trace(scene: Scene) -> None:
    assert finish(scene.root, ("promote",)) == 0
    lines = scene.lines()
    assert finish(scene.root, ("publish",)) == 0
    assert scene.lines() == lines
    assert not scene.index.asked
