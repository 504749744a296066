"""Verification: a cell passes where it was tried on the candidate's bytes, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from packages.release.tests.foreign import git, write
from packages.release.tests.prepared import add_candidate, train_toml
from packages.release.tests.wheels import write_wheel
from torchyard_release._declaration._train import Gate
from torchyard_release._errors import ReleaseError
from torchyard_release._gates import _comparisons
from torchyard_release._gates._attempts import attempt, can_try
from torchyard_release._gates._verification import Bench, Finding, cells_of, try_cell
from torchyard_release._records._candidate import Artifact, Candidate
from torchyard_release._records._evidence import Outcome
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._trust import judged

_ALONE = Gate("alone", True, "ann", ("*",), "", ())


@pytest.fixture
def orchard(orchard: Path) -> Path:
    train_toml(orchard, **{'version = "1.4.0.dev0"': 'version = "1.4.0"'})
    return orchard


def _open(root: Path, candidate: Candidate) -> Iterator[Bench]:
    workspace = Workspace.find(root)
    with Bench.open(judged(workspace, int(candidate.candidate.removeprefix("rc")))) as bench:
        yield bench


@pytest.fixture
def bench(orchard: Path) -> Iterator[Bench]:
    yield from _open(orchard, add_candidate(orchard))


def _gate(*command: str, session: str = "") -> Gate:
    return Gate("any", True, "ann", ("",), session, command)


def test_the_cells_follow_from_the_train(bench: Bench) -> None:
    packages = ("orchard", "orchard-press", "orchard-shop")
    assert cells_of(bench.workspace, bench.candidate, _ALONE) == packages
    reverse = replace(_ALONE, name="reverse")
    assert cells_of(bench.workspace, bench.candidate, reverse) == ("orchard-shop",)
    shop = replace(bench.candidate, artifacts=bench.candidate.artifacts[-1:])
    assert cells_of(bench.workspace, shop, _ALONE) == ("orchard-shop",)
    assert cells_of(bench.workspace, shop, replace(_ALONE, cells=("x", "*"))) == (
        "x",
        *packages[2:],
    )


def test_a_package_is_installed_from_the_candidate_and_its_evidence_names_what_it_needs(
    bench: Bench,
) -> None:
    evidence = try_cell(_ALONE, "orchard-press", bench, attempt)
    assert evidence.outcome is Outcome.PASS, evidence.details
    assert {name.partition("-")[0] for name in evidence.artifacts} == {"orchard", "orchard_press"}
    assert evidence.artifacts.items() <= bench.candidate.sums.items()
    assert not evidence.whole


def test_a_package_that_does_not_say_what_it_imports_fails_alone(orchard: Path) -> None:
    texts = {"orchard-shop": "import zz_not_declared\n"}
    for bench in _open(orchard, add_candidate(orchard, texts=texts)):
        evidence = try_cell(_ALONE, "orchard-shop", bench, attempt)
        assert evidence.outcome is Outcome.FAIL
        assert "zz_not_declared" in evidence.summary


def test_a_candidate_whose_files_changed_is_not_tried(orchard: Path) -> None:
    candidate = add_candidate(orchard)
    wheel = next((orchard / ".train" / "1.4.0" / "rc1" / "dist").iterdir())
    wheel.write_bytes(b"other")
    with pytest.raises(ReleaseError, match="was built with"):
        next(_open(orchard, candidate))


@pytest.mark.parametrize(
    ("program", "outcome", "said"),
    [
        ("print('fine')", Outcome.PASS, "ended well"),
        ("raise SystemExit(2)", Outcome.FAIL, "ended with 2"),
        ("raise SystemExit('UNVERIFIED: rocm: no device')", Outcome.UNVERIFIED, "rocm: no device"),
        # Only a command that failed may say so: a green one was tried.
        ("print('UNVERIFIED')", Outcome.PASS, "ended well"),
    ],
)
def test_a_command_says_by_its_end_what_it_found(
    bench: Bench, program: str, outcome: Outcome, said: str
) -> None:
    evidence = try_cell(_gate(sys.executable, "-c", program), "", bench, attempt)
    assert (evidence.outcome, said in evidence.summary) == (outcome, True), evidence.summary
    assert evidence.whole


def test_a_command_reads_the_candidates_commit_whatever_the_checkout_holds(bench: Bench) -> None:
    write(bench.workspace.root, "README.md", "# of the work tree\n")
    program = (
        "import pathlib; raise SystemExit('work tree' in pathlib.Path('README.md').read_text())"
    )
    evidence = try_cell(_gate(sys.executable, "-c", program), "", bench, attempt)
    assert evidence.outcome is Outcome.PASS, evidence.details


def test_benchmarks_are_those_of_the_candidates_commit(bench: Bench) -> None:
    write(bench.workspace.root, "benchmarks/release.py", "print('{}')\n")
    gate = replace(_ALONE, name="benchmark", cells=("",))
    evidence = try_cell(gate, "", bench, attempt)
    assert (evidence.outcome, evidence.summary.partition(";")[0]) == (
        Outcome.UNVERIFIED,
        "there is no benchmarks/release.py",
    )


def test_a_session_counts_only_where_the_checkout_is_the_candidate(bench: Bench) -> None:
    write(bench.workspace.root, "dirt.txt", "x")
    evidence = try_cell(_gate(session="tests"), "", bench, attempt)
    assert evidence.outcome is Outcome.UNVERIFIED
    assert "the checkout is not" in evidence.summary


def test_a_gate_that_nobody_can_try_is_left_to_who_records_it(bench: Bench) -> None:
    gate = replace(_ALONE, name="inspect")
    assert not can_try(gate)
    assert try_cell(gate, "", bench, attempt).outcome is Outcome.UNVERIFIED


def test_a_requirement_without_a_lower_bound_promises_nothing(orchard: Path) -> None:
    candidate = add_candidate(orchard)
    folder = orchard / ".train" / "1.4.0" / "rc1"
    name, digest = write_wheel(folder / "dist", "orchard", "1.4.0", requires=["click", "rich>=13"])
    rows = [
        Artifact(name, "orchard", "1.4.0", "wheel", digest, 1) if item.file == name else item
        for item in candidate.artifacts
    ]
    candidate = replace(candidate, artifacts=tuple(sorted(rows)))
    candidate.write(folder)
    for bench in _open(orchard, candidate):
        evidence = try_cell(replace(_ALONE, name="dependencies"), "lowest", bench, attempt)
        assert evidence.outcome is Outcome.FAIL
        assert evidence.details == ("orchard: click",)


def _with_torches(root: Path, **ranges: str) -> None:
    """Declare ranges of torch, by the packages' folders, and the two ends of the train's."""
    path = root / "train.toml"
    text = path.read_text()
    for name, torch in ranges.items():
        folder = f'folder = "packages/{name}"\n'
        assert folder in text
        text = text.replace(folder, f'{folder}torch = "{torch}"\n')
    path.write_text(f'{text}\n[torch]\nminimum = "2.13.0"\nmaximum = "2.14.1"\n')
    git(root, "commit", "--quiet", "--all", "--message=Promise two torches")


def test_a_torch_that_every_package_refuses_is_a_promise_broken(orchard: Path) -> None:
    _with_torches(orchard, press=">=2.13,<2.14", shop="<2.14")
    for bench in _open(orchard, add_candidate(orchard)):
        gate = replace(_ALONE, name="torch")
        assert cells_of(bench.workspace, bench.candidate, gate) == ("2.13.0", "2.14.1")
        evidence = try_cell(gate, "2.14.1", bench, attempt)
        assert evidence.outcome is Outcome.FAIL
        assert "every package refuses torch 2.14.1" in evidence.summary


def test_a_package_for_fewer_torches_is_left_out_by_name(
    orchard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_torches(orchard, orchard=">=2.11", press=">=2.11", shop=">=2.13,<2.14")
    # A room that has a torch already; the packages are installed into one of their own.
    monkeypatch.setattr(Bench, "_base", lambda bench, torch: None)
    for bench in _open(orchard, add_candidate(orchard)):
        evidence = try_cell(replace(_ALONE, name="torch"), "2.14.1", bench, attempt)
        assert evidence.outcome is Outcome.PASS, evidence.details
        assert "2 of the train" in evidence.summary
        assert evidence.summary.endswith("; without orchard-shop (>=2.13,<2.14)")
        assert {name.partition("-")[0] for name in evidence.artifacts} == {
            "orchard",
            "orchard_press",
        }


@dataclass
class _Room:
    """A room in which the registry has decided already."""

    folder: Path
    decisions: dict[str, dict[str, str]]

    def run(self, *words: str, isolated: bool) -> subprocess.CompletedProcess[str]:
        if "dump" in words:
            Path(words[-1]).write_text(json.dumps({"decisions": self.decisions}))
            return subprocess.CompletedProcess(words, 0, "", "")
        old, new = (json.loads(Path(name).read_text()) for name in words[-2:])
        return subprocess.CompletedProcess(words, int(old != new), "attention/1 changed\n", "")


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (None, {"a/1": {"x": "cpu"}}, Outcome.UNVERIFIED),
        ({"a/1": {"x": "cpu"}}, {"a/1": {"x": "cpu"}}, Outcome.PASS),
        ({"a/1": {"x": "cpu"}}, {"a/1": {"x": "ref"}}, Outcome.FAIL),
        (None, {}, Outcome.FAIL),
    ],
    ids=["first", "same", "other", "none"],
)
def test_decisions_are_compared_with_the_last_release(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    before: dict[str, dict[str, str]] | None,
    after: dict[str, dict[str, str]],
    outcome: Outcome,
) -> None:
    monkeypatch.setattr(_comparisons, "_room_of", lambda bench: _Room(tmp_path, after))
    if before is not None:
        kept = tmp_path / "last" / "kept" / "decisions.json"
        kept.parent.mkdir(parents=True)
        kept.write_text(json.dumps({"decisions": before}))
        monkeypatch.setattr(_comparisons, "_last_release", lambda bench: tmp_path / "last")
    evidence = try_cell(replace(_ALONE, name="decisions"), "", bench, attempt)
    assert evidence.outcome is outcome
    assert (bench.folder / "kept" / "decisions.json").is_file() is bool(after)


@pytest.mark.parametrize(
    ("after", "outcome"),
    [([1.0, 1.1, 1.05], Outcome.PASS), ([1.3, 1.3, 0.9], Outcome.FAIL), ([], Outcome.FAIL)],
    ids=["as fast", "slower", "nothing to compare"],
)
def test_speed_is_judged_by_the_median_of_ratios(after: Sequence[float], outcome: Outcome) -> None:
    sides = {"before": [1.0, 1.0, 1.0], **({"after": list(after)} if after else {})}
    found: Finding = _comparisons._compared({"forward": sides})
    assert found.outcome is outcome


@pytest.mark.sweep
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "broken"])
def test_a_released_plugin_is_tried_by_the_tests_of_its_tag(orchard: Path, kept: bool) -> None:
    test = "from orchard import NAME\n\n\ndef test_name():\n    assert NAME == 'orchard'\n"
    write(orchard, "packages/shop/tests/test_shop.py", test)
    git(orchard, "add", "--all")
    train_toml(orchard, **{'previous = ""': 'previous = "v1.3.0"'})
    git(orchard, "tag", "v1.3.0")
    # What is tried is what the tag has, not what the tree has now.
    write(orchard, "packages/shop/tests/test_shop.py", "raise SystemExit\n")
    workspace = Workspace.find(orchard)
    old = workspace.state.release("1.3.0")
    with workspace.state.operation("1.3.0", ["promote"], workspace.git.commit(), "ann") as journal:
        file, digest = write_wheel(
            old.candidate(1) / "dist", "orchard-shop", "1.3.0", requires=["orchard>=1.3,<2"]
        )
        wheel = Artifact(file, "orchard-shop", "1.3.0", "wheel", digest, 1)
        Candidate("1.3.0", "rc1", "c" * 40, "v1.3.0-rc1", (wheel,)).write(old.candidate(1))
        journal.append("promote", candidate="rc1")
    texts = {} if kept else {"orchard": "NAME = 'renamed'\n"}
    for bench in _open(orchard, add_candidate(orchard, texts=texts)):
        evidence = try_cell(replace(_ALONE, name="reverse"), "orchard-shop", bench, attempt)
        assert evidence.outcome is (Outcome.PASS if kept else Outcome.FAIL), evidence.details
        assert "orchard_shop-1.3.0" in evidence.summary
        assert not any("shop" in name for name in evidence.artifacts) or not kept


def test_without_an_earlier_release_no_plugin_is_tried(bench: Bench) -> None:
    evidence = try_cell(replace(_ALONE, name="reverse"), "orchard-shop", bench, attempt)
    assert evidence.outcome is Outcome.UNVERIFIED
