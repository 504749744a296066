"""What decides is committed and unchanged: keys, gates and waivers, the files, the evidence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from packages.release.tests import foreign
from packages.release.tests.prepared import VERSION, add_candidate, pass_gates, people, train_toml
from torchyard_release._publish._promote import manifest_of
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._keys import make_key, read_private_key
from torchyard_release._signing._manifest import sign_manifest
from torchyard_release._signing._trust import judged

_GATES: Final = ("check", "build", "inspect")
_WAIVER: Final = (
    '\n[[waivers]]\ngate = "inspect"\nowner = "mallory"\nreason = "later"\nexpires = 2099-01-01\n'
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a monorepo whose candidate passes its gates, with keys of ann and mallory beside it.

    The candidate's commit lists ann's key alone.
    """
    folder = tmp_path_factory.mktemp("trust")
    root = foreign.make(folder / "orchard")
    more = '\n[indexes.release]\nrepository = "http://127.0.0.1:9/"\n'
    train_toml(root, more=more, **{'version = "1.4.0.dev0"': f'version = "{VERSION}"'})
    people(root, folder, "ann", threshold=1)
    make_key(folder / "mallory.pem")
    pass_gates(root, add_candidate(root), *_GATES)
    return folder


@pytest.fixture
def yard(made: Path, tmp_path: Path) -> Path:
    """Return a copy of it, and its folder of keys, that a test may spoil."""
    shutil.copytree(made, tmp_path / "yard")
    return tmp_path / "yard" / "orchard"


def _key(root: Path, name: str) -> Path:
    return root.parent / f"{name}.pem"


def _change(root: Path, old: str, new: str) -> None:
    """Change train.toml in the work tree; nothing is committed."""
    path = root / "train.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _list_mallory(root: Path) -> None:
    public = read_private_key(_key(root, "mallory")).public.hex
    _change(root, "[signing.keys]\n", f'[signing.keys]\nmallory = "{public}"\n')


def _status(root: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(foreign.release(root, "status", "--json").stdout)
    return document


def _card(root: Path) -> tuple[int, dict[str, Any]]:
    result = foreign.release(root, "scorecard", "--json")
    return result.exit_code, json.loads(result.stdout)


def test_a_key_that_the_work_tree_alone_names_approves_nothing(yard: Path) -> None:
    _list_mallory(yard)
    result = foreign.release(yard, "approve", "--key", str(_key(yard, "mallory")))
    assert result.exit_code == 1
    assert "is none of [signing.keys] in the train.toml of v1.4.0-rc1" in result.output
    # Not even a key that the commit has, while the tree says otherwise.
    result = foreign.release(yard, "approve", "--key", str(_key(yard, "ann")))
    assert result.exit_code == 1
    assert "[signing] keys.mallory: the work tree alone has it" in result.output
    assert "git switch --detach v1.4.0-rc1" in result.output


def test_a_key_that_a_later_commit_names_waits_for_a_candidate(yard: Path) -> None:
    _list_mallory(yard)
    foreign.git(yard, "commit", "--quiet", "--all", "--message=Let Mallory sign")
    result = foreign.release(yard, "approve", "--key", str(_key(yard, "mallory")))
    assert result.exit_code == 1
    assert "`torchyard release cut --candidate`" in result.output
    pass_gates(yard, add_candidate(yard, 2), *_GATES)
    result = foreign.release(yard, "approve", "--key", str(_key(yard, "mallory")))
    assert result.exit_code == 0, result.output


def test_a_manifest_that_an_uncommitted_key_signed_is_not_promoted(yard: Path) -> None:
    _list_mallory(yard)
    found = judged(Workspace.find(yard), 1)
    manifest = yard / ".train" / VERSION / "rc1" / "manifest.json"
    sign_manifest(manifest, manifest_of(found), read_private_key(_key(yard, "mallory")))
    for words in (["promote"], ["publish"]):
        assert foreign.release(yard, *words).exit_code == 1
    assert not Workspace.find(yard).git.has_tag(f"v{VERSION}")
    document = _status(yard)
    assert not document["ready"]
    assert "expected 1 valid signature(s)" in document["damage"][0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda root: _change(root, "threshold = 1\n", ""), ""),
        (lambda root: _change(root, '[[gates]]\nname = "inspect"\n', ""), "[gates] inspect"),
        (
            lambda root: _change(
                root, 'name = "inspect"\n', 'name = "inspect"\nlevel = "informing"\n'
            ),
            "[gates] inspect: the work tree has another",
        ),
        (
            lambda root: _change(root, "[hardware]\n", f"{_WAIVER}\n[hardware]\n"),
            "[waivers] inspect: the work tree alone has it",
        ),
    ],
    ids=["nothing that decides", "gate gone", "gate informing", "waiver"],
)
def test_gates_and_waivers_of_the_work_tree_decide_nothing(
    yard: Path, change: Callable[[Path], object], named: str
) -> None:
    (yard / ".train" / VERSION / "rc1" / "evidence" / "inspect.json").unlink()
    before = _card(yard)
    assert (before[0], before[1]["ready"]) == (3, False)
    change(yard)
    code, card = _card(yard)
    assert (code, card["rows"]) == (before[0], before[1]["rows"])
    assert any(named in note for note in card["notes"]) == bool(named)
    result = foreign.release(yard, "approve", "--key", str(_key(yard, "ann")))
    assert result.exit_code == 1
    assert (named or "not green") in result.output


def test_a_threshold_of_the_work_tree_promotes_nothing(yard: Path) -> None:
    assert foreign.release(yard, "approve", "--key", str(_key(yard, "ann"))).exit_code == 0
    _list_mallory(yard)
    _change(yard, "threshold = 1", "threshold = 2")
    result = foreign.release(yard, "promote")
    assert result.exit_code == 1
    assert "[signing] keys.mallory: the work tree alone has it and 1 more" in result.output
    foreign.git(yard, "checkout", "--quiet", "train.toml")
    assert foreign.release(yard, "promote").exit_code == 0


def test_an_address_of_the_work_tree_is_published_to_by_nobody(yard: Path) -> None:
    for words in (["approve", "--key", str(_key(yard, "ann"))], ["promote"]):
        assert foreign.release(yard, *words).exit_code == 0
    _change(yard, "http://127.0.0.1:9/", "http://127.0.0.1:8/")
    for words in (["publish"], ["publish", "--for-real"], ["audit"]):
        result = foreign.release(yard, *words)
        assert result.exit_code == 1
        assert "[indexes.release] of the work tree differs" in result.output


def test_a_record_of_another_commit_than_its_tags_is_refused(yard: Path) -> None:
    path = yard / ".train" / VERSION / "rc1" / "candidate.json"
    commit = Workspace.find(yard).git.commit("HEAD~1")
    path.write_text(path.read_text().replace(Workspace.find(yard).git.commit(), commit))
    for words in (["status"], ["scorecard"], ["promote"]):
        result = foreign.release(yard, *words)
        assert result.exit_code == 1
        assert "expected the record of v1.4.0-rc1" in result.output


def _dist(root: Path) -> Path:
    return root / ".train" / VERSION / "rc1" / "dist"


def _wheel(root: Path) -> Path:
    return sorted(_dist(root).iterdir())[0]


def _append(root: Path) -> None:
    _wheel(root).write_bytes(_wheel(root).read_bytes() + b"x")


def _link(root: Path) -> None:
    wheel = _wheel(root)
    moved = wheel.rename(root.parent / wheel.name)
    wheel.symlink_to(moved)


def _folder(root: Path) -> None:
    wheel = _wheel(root)
    wheel.unlink()
    wheel.mkdir()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_append, "has SHA-256"),
        (lambda root: _wheel(root).unlink(), "is missing"),
        (lambda root: (_dist(root) / "stray.whl").touch(), "stray.whl was not built with it"),
        (_link, "was replaced by a link"),
        (_folder, "is no file any more"),
        (lambda root: shutil.rmtree(_dist(root)), "dist cannot be read"),
    ],
    ids=["changed", "deleted", "added", "linked", "a folder", "no dist"],
)
def test_a_candidate_whose_files_were_touched_is_ready_nowhere(
    yard: Path, spoil: Callable[[Path], object], said: str
) -> None:
    assert (_status(yard)["ready"], _card(yard)[0]) == (True, 0)
    spoil(yard)
    document = _status(yard)
    assert (document["ready"], document["next"]) == (False, "torchyard release build --again")
    assert said in document["damage"][0]
    code, card = _card(yard)
    assert (code, card["ready"], card["damage"]) == (3, False, document["damage"])
    assert "not ready" in foreign.release(yard, "status").output
    assert f"damaged: {card['damage'][0]}" in foreign.release(yard, "scorecard").output
    page = (_dist(yard).parent / "scorecard.html").read_text()
    assert "Not ready." in page
    assert said in page
    for words in (["approve", "--key", str(_key(yard, "ann"))], ["promote"], ["verify"]):
        assert foreign.release(yard, *words).exit_code == 1


def test_a_manifest_that_was_edited_is_ready_nowhere(yard: Path) -> None:
    assert foreign.release(yard, "approve", "--key", str(_key(yard, "ann"))).exit_code == 0
    assert _status(yard)["next"] == "torchyard release promote"
    manifest = _dist(yard).parent / "manifest.json"
    text = manifest.read_text()
    at = text.index('"payload": "') + 40
    manifest.write_text(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])
    document = _status(yard)
    assert not document["ready"]
    assert "manifest.json: expected" in document["damage"][0]
    assert _card(yard)[0] == 3
    assert foreign.release(yard, "promote").exit_code == 1


def test_a_release_whose_files_were_touched_is_restored_and_not_built(yard: Path) -> None:
    for words in (["approve", "--key", str(_key(yard, "ann"))], ["promote"]):
        assert foreign.release(yard, *words).exit_code == 0
    _append(yard)
    assert _status(yard)["next"] == ""
    assert "restore the files of the release" in foreign.release(yard, "status").output


def test_evidence_that_was_edited_counts_for_nothing(yard: Path) -> None:
    path = _dist(yard).parent / "evidence" / "inspect.json"
    path.write_text(path.read_text().replace('"fine"', '"very fine"'))
    code, card = _card(yard)
    assert code == 3
    rows = {row["gate"]: row["status"] for row in card["rows"]}
    assert rows == {"check": "pass", "build": "pass", "inspect": "unverified"}
    assert any("inspect.json is not what was recorded" in note for note in card["notes"])
    assert card["next"] == "torchyard release inspect"
    assert _status(yard)["next"] == "torchyard release inspect"


def test_the_scorecard_names_the_next_step(yard: Path) -> None:
    def following() -> str:
        output = foreign.release(yard, "scorecard").output
        assert f"next: `{_card(yard)[1]['next']}`" in output
        return str(_card(yard)[1]["next"]).removeprefix("torchyard release ")

    assert following() == "approve --key KEY.pem"
    assert foreign.release(yard, "approve", "--key", str(_key(yard, "ann"))).exit_code == 0
    assert following() == "promote"
    for gate, step in (("inspect", "inspect"), ("build", "build --again")):
        (_dist(yard).parent / "evidence" / f"{gate}.json").unlink()
        assert following() == step
