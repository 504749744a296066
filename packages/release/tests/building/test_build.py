"""A candidate is built from its tag, twice, and what differs is explained by its members."""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from packages.release.tests import foreign
from torchyard_release._artifacts._members import explain, members_of
from torchyard_release._build import _build
from torchyard_release._records._candidate import read_candidate, verify_files
from torchyard_release._records._evidence import read_evidence
from torchyard_release._repository._workspace import Workspace


@pytest.fixture
def orchard(tmp_path: Path) -> Path:
    """Return a monorepo of one pure package, with a candidate that is not built yet."""
    root = foreign.make(tmp_path / "orchard", agreed=True, only="orchard")
    assert foreign.release(root, "cut").exit_code == 0
    return root


@pytest.fixture
def quick(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have building copy what building gives, where only the order of things is tried."""
    dist = whole.parent / "state" / "1.4.0" / "rc1" / "dist"

    def copied(source: Path, package: object, out: Path, *rest: object, **more: object) -> object:
        shutil.copytree(dist, out)
        return tuple(sorted(out.iterdir()))

    monkeypatch.setattr(_build, "build_package", copied)


def test_a_foreign_monorepo_is_built_twice_to_the_same_bytes(built: Path) -> None:
    workspace = Workspace.find(built)
    number, candidate = workspace.release.latest()
    assert number == 1
    assert [item.file for item in candidate.artifacts] == [
        "orchard-1.4.0-py3-none-any.whl",
        "orchard-1.4.0.tar.gz",
        f"orchard_press-1.4.0-py3-none-{foreign.PLATFORM}.whl",
        "orchard_press-1.4.0.tar.gz",
        "orchard_shop-1.4.0-py3-none-any.whl",
        "orchard_shop-1.4.0.tar.gz",
    ]
    assert candidate.commit == foreign.git(built, "rev-parse", "v1.4.0-rc1^{commit}").strip()
    verify_files(candidate, workspace.release.candidate(1) / "dist")
    evidence = read_evidence(workspace.release.candidate(1) / "evidence").values()
    outcomes = {item.gate: str(item.outcome) for item in evidence}
    assert outcomes == {"build": "pass", "check": "pass"}
    assert all(item.fresh(candidate.sums) for item in evidence)
    kinds = [entry.kind for entry in workspace.release.entries()]
    assert kinds.count("build.package") == 3


def test_the_checkout_does_not_reach_an_artifact(
    orchard: Path, release_json: Callable[..., Any]
) -> None:
    # Neither what is not committed nor what is committed since.
    foreign.write(orchard, "packages/orchard/src/orchard/stray.py", "left = 'lying about'\n")
    release_json("build", "--no-isolation")
    dist = orchard / ".train/1.4.0/rc1/dist"
    for path in dist.iterdir():
        assert not [name for name in members_of(path) if "stray" in name]


@pytest.mark.usefixtures("quick")
def test_what_was_built_is_not_built_again_unasked(
    orchard: Path, release: Callable[..., Result], release_json: Callable[..., Any]
) -> None:
    first = release_json("build", "--no-isolation")["candidate"]["artifacts"]
    result = release("build", "--no-isolation")
    assert result.exit_code == 1
    assert "rc1 was built before, and its 2 files are what they were" in result.output
    (orchard / ".train/1.4.0/rc1/dist/orchard-1.4.0.tar.gz").write_bytes(b"tampered")
    assert "orchard-1.4.0.tar.gz has SHA-256" in release("build", "--no-isolation").output
    again = release_json("build", "--no-isolation", "--again")["candidate"]["artifacts"]
    assert again == first


def test_a_build_that_differs_is_explained_and_refused(
    orchard: Path, release: Callable[..., Result]
) -> None:
    hook = (
        "import os, pathlib\n"
        "from hatchling.builders.hooks.plugin.interface import BuildHookInterface\n\n\n"
        "class Stamp(BuildHookInterface):\n"
        "    def initialize(self, version, build_data):\n"
        "        path = pathlib.Path(self.root, 'src/orchard/stamp.py')\n"
        "        path.write_text(f'zone = {os.environ[\"TZ\"]!r}\\n')\n"
    )
    foreign.git(orchard, "switch", "--quiet", "release/1.4")
    foreign.write(orchard, "packages/orchard/hatch_build.py", hook)
    project = orchard / "packages/orchard/pyproject.toml"
    project.write_text(project.read_text() + "\n[tool.hatch.build.hooks.custom]\n")
    foreign.git(orchard, "add", "--all")
    foreign.git(orchard, "commit", "--quiet", "--message=Stamp")
    foreign.git(orchard, "switch", "--quiet", "main")
    assert release("cut", "--candidate").exit_code == 0
    result = release("build", "--no-isolation")
    assert result.exit_code == 3, result.output
    wheel = "orchard-1.4.0-py3-none-any.whl"
    assert f"{wheel}: orchard/stamp.py: 13 bytes in the first, 28 in the second" in result.output
    folder = orchard / ".train/1.4.0/rc2"
    evidence = read_evidence(folder / "evidence")[folder / "evidence" / "build.json"]
    assert str(evidence.outcome) == "fail"
    assert any("orchard/stamp.py" in line for line in evidence.details)


def _pick(root: Path, name: str, text: str) -> None:
    """Have the branch another commit, and another candidate."""
    foreign.git(root, "switch", "--quiet", "release/1.4")
    foreign.write(root, name, text)
    foreign.git(root, "add", "--all")
    foreign.git(root, "commit", "--quiet", "--message=Pick")
    foreign.git(root, "switch", "--quiet", "main")
    assert foreign.release(root, "cut", "--candidate").exit_code == 0


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is built from now on: a round's name for each time."""
    seen: list[str] = []
    real = _build.build_package

    def counted(*args: Any, **more: Any) -> tuple[Path, ...]:
        seen.append(args[4].name)
        return real(*args, **more)

    monkeypatch.setattr(_build, "build_package", counted)
    return seen


@pytest.mark.sweep
@pytest.mark.parametrize("again", [False, True], ids=["once more", "again"])
def test_what_a_pick_left_alone_is_built_once_more(
    orchard: Path, release_json: Callable[..., Any], rounds: list[str], again: bool
) -> None:
    first = release_json("build", "--no-isolation")
    assert (first["unchanged"], sorted(rounds)) == ([], ["first", "second"])
    rounds.clear()
    _pick(orchard, "docs/page.md", "A page.\n")
    second = release_json("build", "--no-isolation", *(["--again"] if again else []))
    assert second["candidate"]["artifacts"] == first["candidate"]["artifacts"]
    assert second["unchanged"] == ([] if again else ["orchard"])
    assert sorted(rounds) == (["first", "second"] if again else ["second"])
    folder = orchard / ".train/1.4.0/rc2"
    said = read_evidence(folder / "evidence")[folder / "evidence" / "build.json"].summary
    assert ("2 of them once for rc1 and once more" in said) is not again


def test_what_a_pick_changed_is_built_twice(
    orchard: Path, release_json: Callable[..., Any], rounds: list[str]
) -> None:
    first = release_json("build", "--no-isolation")
    rounds.clear()
    _pick(orchard, "packages/orchard/src/orchard/more.py", "MORE = 1\n")
    second = release_json("build", "--no-isolation")
    assert (second["unchanged"], sorted(rounds)) == ([], ["first", "second"])
    assert second["candidate"]["artifacts"] != first["candidate"]["artifacts"]


@pytest.mark.sweep
def test_a_build_that_reads_outside_its_folder_is_found_and_built_twice(
    orchard: Path, release_json: Callable[..., Any], rounds: list[str]
) -> None:
    project = (orchard / "packages/orchard/pyproject.toml").read_text()
    project = project.replace('version = "1.4.0.dev0"', 'version = "1.4.0"')
    outside = '\n[tool.hatch.build.targets.sdist.force-include]\n"../../NOTICE" = "NOTICE"\n'
    _pick(orchard, "NOTICE", "One.\n")
    _pick(orchard, "packages/orchard/pyproject.toml", project + outside)
    first = release_json("build", "--no-isolation")
    rounds.clear()
    _pick(orchard, "NOTICE", "Another.\n")
    second = release_json("build", "--no-isolation")
    assert (second["unchanged"], rounds) == ([], ["second", "first"])
    assert not second["differences"]
    assert second["candidate"]["artifacts"] != first["candidate"]["artifacts"]


@pytest.mark.sweep
def test_a_last_candidate_without_its_files_is_not_needed(
    orchard: Path, release: Callable[..., Result], rounds: list[str]
) -> None:
    assert release("build", "--no-isolation").exit_code == 0
    shutil.rmtree(orchard / ".train/1.4.0/rc1/dist")
    rounds.clear()
    _pick(orchard, "docs/page.md", "A page.\n")
    result = release("build", "--no-isolation")
    assert result.exit_code == 0, result.output
    assert "rc1 has not got its files any more: all is built twice" in result.stderr
    assert sorted(rounds) == ["first", "second"]


def test_a_package_that_cannot_be_built_shows_the_end_of_its_log(
    orchard: Path, release: Callable[..., Result]
) -> None:
    foreign.git(orchard, "switch", "--quiet", "release/1.4")
    (orchard / "packages/orchard/README.md").unlink()
    foreign.git(orchard, "commit", "--quiet", "--all", "--message=Lose the readme")
    foreign.git(orchard, "switch", "--quiet", "main")
    assert release("cut", "--candidate").exit_code == 0
    result = release("build", "--no-isolation")
    assert result.exit_code == 1
    assert "error: orchard: building it ended with 1:" in result.output
    assert "Readme file does not exist: README.md" in result.output
    assert "orchard-first.txt; fix it on the branch" in result.output
    assert "no candidate has been built" in _latest_error(orchard)


def _latest_error(root: Path) -> str:
    try:
        Workspace.find(root).release.latest()
    except Exception as error:
        return str(error)
    return ""


def test_a_flat_package_whose_builder_reads_the_version_goes_the_same_way(tmp_path: Path) -> None:
    root = foreign.make(tmp_path / "orchard", agreed=True, only="orchard")
    folder = root / "packages" / "orchard"
    (folder / "src" / "orchard").rename(folder / "trees")
    (folder / "src").rmdir()
    init = folder / "trees" / "__init__.py"
    init.write_text(init.read_text().replace("orchard._version", "trees._version"))
    train = (root / "train.toml").read_text()
    train = train.replace('["src/orchard/_version.py"]', '["trees/_version.py"]\nmodule = "trees"')
    foreign.write(root, "train.toml", train)
    project = (folder / "pyproject.toml").read_text()
    project = project.replace('version = "1.4.0.dev0"', 'dynamic = ["version"]')
    project = project.replace("src/orchard", "trees")
    project += '\n[tool.hatch.version]\npath = "trees/_version.py"\n'
    foreign.write(root, "packages/orchard/pyproject.toml", project)
    foreign.git(root, "add", "--all")
    foreign.git(root, "commit", "--quiet", "--message=Flatten")
    for words in (["check"], ["cut"], ["build", "--no-isolation"], ["inspect"]):
        result = foreign.release(root, *words)
        assert result.exit_code == 0, result.output
    wheel = root / ".train/1.4.0/rc1/dist/orchard-1.4.0-py3-none-any.whl"
    assert members_of(wheel)["trees/_version.py"] == b'__version__ = "1.4.0"\n'


def test_nothing_to_build_is_an_error(tmp_path: Path) -> None:
    root = foreign.make(tmp_path / "uncut", agreed=True, only="orchard")
    result = foreign.release(root, "build")
    assert result.exit_code == 1
    assert "v1.4.0-rc1: no such tag: there is no candidate to build\ndo: cut" in result.output


@pytest.mark.usefixtures("quick")
def test_a_full_disk_stops_with_a_remedy_and_the_same_command_goes_on(
    orchard: Path, release: Callable[..., Result]
) -> None:
    program = """
import resource, sys
from torchyard_release._cli import command
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
command(["--root", sys.argv[1], "build", "--no-isolation"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(orchard)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "do: " in done.stderr
    before = [entry.kind for entry in Workspace.find(orchard).release.entries()]
    assert release("build", "--no-isolation").exit_code == 0
    after = [entry.kind for entry in Workspace.find(orchard).release.entries()]
    assert after[: len(before)] == before
    assert after.count("build.done") == 1


_DYING = """
import os, shutil, signal, sys
from pathlib import Path
from torchyard_release._build import _build
from torchyard_release._records import _journal
from torchyard_release._cli import command
# What building gives is known here, so that only the order of things is tried.
def copied(source, package, out, *rest, **more):
    shutil.copytree(sys.argv[3], out)
    return tuple(sorted(out.iterdir()))
_build.build_package = copied
write, count = _journal._write, 0
def dying(descriptor, line):
    global count
    count += 1
    if count == int(sys.argv[2]):
        os.write(descriptor, line[: len(line) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    write(descriptor, line)
_journal._write = dying
command(["--root", sys.argv[1], "build"])
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a monorepo of one package, built, with its state folder beside it."""
    root = foreign.make(tmp_path_factory.mktemp("whole") / "orchard", agreed=True, only="orchard")
    state = ["--state", str(root.parent / "state")]
    assert foreign.release(root, "cut").exit_code == 0
    assert foreign.release(root, *state, "build", "--no-isolation").exit_code == 0
    return root


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(1, 8))
def test_killed_in_any_line_of_the_journal_it_ends_in_the_same_bytes(
    whole: Path, tmp_path: Path, number: int
) -> None:
    # command, build.begin, build.package, evidence, evidence, build.done, ended
    root = Path(shutil.copytree(whole, tmp_path / "orchard", symlinks=True))
    wanted = read_candidate(whole.parent / "state" / "1.4.0" / "rc1")
    dist = whole.parent / "state" / "1.4.0" / "rc1" / "dist"
    words = [sys.executable, "-c", _DYING, str(root), str(number), str(dist)]
    killed = subprocess.run(words, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    words[4] = "0"
    again = subprocess.run(words, capture_output=True, text=True)
    state = Workspace.find(root).release
    assert again.returncode == (0 if number < 6 else 1), again.stderr
    assert ("rc1 was built before" in again.stderr) == (number >= 6)
    gates = {item.gate for item in read_evidence(state.candidate(1) / "evidence").values()}
    assert gates == {"build", "check"}
    assert read_candidate(state.candidate(1)) == wanted
    verify_files(wanted, state.candidate(1) / "dist")
    kinds = [entry.kind for entry in state.entries()]
    assert kinds.count("recovered") == 1
    assert kinds.count("build.done") == 1


def _wheel(path: Path, members: dict[str, bytes], *, year: int = 2020) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (year, 2, 2, 0, 0, 0)), content)
    return path


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"a": b"1", "b": b"2"}, ()),
        ({"a": b"1", "b": b"3"}, ("b: 1 of 1 bytes differ, the first at 0; sha256 d4735e3a265e",)),
        ({"a": b"1", "b": b"22"}, ("b: 1 bytes in the first, 2 in the second",)),
        ({"a": b"1"}, ("b: only in the first",)),
        ({"a": b"1", "b": b"2", "c": b""}, ("c: only in the second",)),
        ({"b": b"2", "a": b"1"}, ("the members are in another order",)),
    ],
)
def test_what_differs_between_two_wheels_is_said_by_member(
    tmp_path: Path, second: dict[str, bytes], said: tuple[str, ...]
) -> None:
    left = _wheel(tmp_path / "a.whl", {"a": b"1", "b": b"2"})
    lines = explain(left, _wheel(tmp_path / "b.whl", second))
    assert len(lines) == len(said)
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=True))


def test_times_modes_and_containers_are_told_apart(tmp_path: Path) -> None:
    left = _wheel(tmp_path / "a.whl", {"a": b"1"})
    later = _wheel(tmp_path / "b.whl", {"a": b"1"}, year=2021)
    assert explain(left, later) == (
        "a: time 2020-02-02-00-00-00 in the first, 2021-02-02-00-00-00 in the second",
    )
    longer = tmp_path / "c.whl"
    longer.write_bytes(left.read_bytes())
    with zipfile.ZipFile(longer, "a") as archive:
        archive.comment = b"made elsewhere"
    assert explain(left, longer) == ("every member is the same: the container around them differs",)


def test_sdists_are_compared_by_member_too(tmp_path: Path) -> None:
    def sdist(name: str, mode: int) -> Path:
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            item = tarfile.TarInfo("o-1/PKG-INFO")
            item.size, item.mode = 1, mode
            archive.addfile(item, io.BytesIO(b"x"))
        return tmp_path / name

    assert explain(sdist("a.tar.gz", 0o644), sdist("b.tar.gz", 0o600)) == (
        "o-1/PKG-INFO: mode 0o644 in the first, 0o600 in the second",
    )
