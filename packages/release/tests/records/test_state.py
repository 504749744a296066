"""The state folder: one operator at a time, and every command in the journal."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from packages.release.tests import foreign
from torchyard_release._cli._group import COMMANDS, STEPS
from torchyard_release._errors import CandidateError, LockedError
from torchyard_release._records._candidate import Artifact, Candidate, read_candidate, verify_files
from torchyard_release._repository._git import Git
from torchyard_release._repository._workspace import Workspace

_CANDIDATE = Candidate(
    "1.4.0",
    "rc1",
    "c" * 40,
    "v1.4.0-rc1",
    (Artifact("a.whl", "orchard", "1.4.0", "wheel", "0" * 64, 3),),
)


def test_the_work_tree_stays_clean(workspace: Workspace, orchard: Path) -> None:
    with workspace.operation(["plan"]):
        assert workspace.state.folder == orchard.resolve() / ".train"
        Git(orchard).require_clean()


def test_a_second_operator_is_told_who_holds_the_train(workspace: Workspace) -> None:
    with workspace.operation(["build", "--again"]):
        again = Workspace.find(workspace.root)
        with pytest.raises(LockedError) as caught, again.operation(["cut"]):
            pass
    said = str(caught.value)
    assert "Pomona <pomona@orchard.example> on " in said
    assert "torchyard release build --again; wait until that command has ended" in said
    with workspace.operation(["cut"]):
        pass
    assert [entry.kind for entry in workspace.release.entries()] == ["command", "ended"] * 2


def test_many_operators_at_once_leave_one_chain(workspace: Workspace) -> None:
    program = """
import sys, time
from pathlib import Path
from torchyard_release._errors import LockedError
from torchyard_release._repository._workspace import Workspace
done = 0
while done < 3:
    try:
        with Workspace.find(Path(sys.argv[1])).operation(["work"]) as journal:
            journal.append("step", by=sys.argv[2])
        done += 1
    except LockedError:
        time.sleep(0.01)
"""
    operators = [
        subprocess.Popen([sys.executable, "-c", program, str(workspace.root), str(number)])
        for number in range(3)
    ]
    assert [operator.wait(300) for operator in operators] == [0, 0, 0]
    kinds = [entry.kind for entry in workspace.release.entries()]
    assert kinds == ["command", "step", "ended"] * 9


def test_threads_of_one_process_are_operators_too(workspace: Workspace) -> None:
    refused: list[LockedError] = []

    def second() -> None:
        try:
            with workspace.operation(["cut"]):
                pass
        except LockedError as error:
            refused.append(error)

    with workspace.operation(["build"]):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_how_a_command_ended_is_recorded(
    workspace: Workspace, release_json: Callable[..., Any]
) -> None:
    with workspace.operation(["plan"]) as journal:
        journal.append("step", answer=42)
    with pytest.raises(ValueError, match="bad"), workspace.operation(["cut"]):
        raise ValueError("bad luck")
    data = release_json("history")
    assert [run["outcome"] for run in data["runs"]] == ["done", "failed (1)"]
    assert data["runs"][0]["steps"][0]["data"] == {"answer": 42}
    assert data["runs"][1]["said"] == "bad luck"
    assert data["runs"][0]["commit"] == workspace.git.commit()


def test_a_command_that_was_killed_is_shown_as_such(
    workspace: Workspace, release: Callable[..., Result], release_json: Callable[..., Any]
) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from torchyard_release._repository._workspace import Workspace
with Workspace.find(Path(sys.argv[1])).operation(["build", "--json"]):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program, str(workspace.root)], check=False)
    document = release_json("status")
    assert (document["running"], document["interrupted"]) == ("", "build")
    assert document["next"] == "torchyard release build"
    with workspace.operation(["cut"]):
        document = release_json("status")
        assert "Pomona" in document["running"]
        assert (document["interrupted"], document["next"]) == ("", "")
    shown = release("history").output
    assert "torchyard release build" in shown
    assert "killed, or still running" in shown


def test_a_history_that_is_not_there_says_which_are(release: Callable[..., Result]) -> None:
    assert "nothing was run yet" in release("history").output
    result = release("history", "--version", "9.9.9")
    assert result.exit_code == 1
    assert "error: --version: expected one of (none), got '9.9.9'\ndo: name a" in result.output


def test_an_error_is_a_document_for_a_program(
    orchard: Path, release_json: Callable[..., Any]
) -> None:
    foreign.write(orchard, "train.toml", "schema = 3")
    data = release_json("history", code=1)
    assert data == {
        "error": "train.toml: schema: expected 1, got 3",
        "do": "use the torchyard-release that the file was written for",
    }


def test_help_has_the_steps_in_their_order_and_every_command_once(
    release: Callable[..., Result],
) -> None:
    lines = [line.split() for line in release("--help").stdout.splitlines()]
    named = [words[0] for words in lines if words and words[0] in COMMANDS]
    assert sorted(named) == sorted(COMMANDS)
    assert tuple(named[: len(STEPS)]) == STEPS


def test_a_candidate_is_read_as_it_was_written(tmp_path: Path) -> None:
    _CANDIDATE.write(tmp_path)
    assert read_candidate(tmp_path) == _CANDIDATE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"size": 3', '"size": "'),
        ("a.whl", "b.whl"),
        ('"commit"', '"comit"'),
        ('"schema": 1', '"schema": 2'),
    ],
)
def test_a_candidates_record_that_was_changed_is_refused(
    tmp_path: Path, old: str, new: str
) -> None:
    _CANDIDATE.write(tmp_path)
    path = tmp_path / "candidate.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(CandidateError, match="release build"):
        read_candidate(tmp_path)


def test_a_candidate_that_was_not_built_says_so(workspace: Workspace) -> None:
    with pytest.raises(CandidateError, match="has not been built; build it"):
        read_candidate(workspace.release.candidate(1))
    with pytest.raises(CandidateError, match="no candidate has been built; cut the train"):
        workspace.release.latest()


@pytest.mark.parametrize("fault", ["missing", "extra", "changed"])
def test_files_that_are_not_the_candidates_are_named(tmp_path: Path, fault: str) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    candidate = Candidate(
        "1.4.0", "rc1", "c" * 40, "t", (Artifact("a.whl", "o", "1.4.0", "wheel", digest, 3),)
    )
    verify_files(candidate, tmp_path)
    if fault == "missing":
        wheel.unlink()
    elif fault == "extra":
        (tmp_path / "b.whl").touch()
    else:
        wheel.write_bytes(b"abd")
    said = {"missing": "a.whl is missing", "extra": "b.whl was not", "changed": "a.whl has SHA"}
    with pytest.raises(CandidateError, match=said[fault]):
        verify_files(candidate, tmp_path)
