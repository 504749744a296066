"""docs/plugins/quickstart.md, command by command: both shapes, from copier to a certificate."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.template.newcomer import Newcomer
from tests.template.walkthrough import PAGE, Outcome, Step, Walk, steps

_WALKS = ("implementation", "device")

# Minutes: they make environments. The session `template` walks them with their times.
pytestmark = pytest.mark.sweep


@dataclass(frozen=True, slots=True)
class _Done:
    walk: Walk
    outcomes: list[Outcome]

    def project(self, name: str) -> str:
        return (self.walk.folder / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


@pytest.fixture(scope="module", params=_WALKS)
def done(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> _Done:
    """Return a walk after every command of it was run, up to the first that went wrong."""
    folder = tmp_path_factory.mktemp(request.param)
    # What the page takes to be there.
    (folder / "torchyard").symlink_to(ROOT)
    environment = Newcomer(folder / "environment").environment(MYPY_CACHE_DIR=str(cache))
    walk, outcomes = Walk(folder, environment), []
    for step in steps(PAGE.read_text(encoding="utf-8"), request.param):
        outcomes.append(walk.run(step))
        if not outcomes[-1].right:
            break
    return _Done(walk, outcomes)


def test_every_command_works_and_prints_what_the_page_shows(done: _Done) -> None:
    last = done.outcomes[-1]
    assert last.right, "\n".join(
        [last.step.command, last.output, f"exit status {last.code}", *last.missing]
    )
    commands = [outcome.step.command for outcome in done.outcomes]
    assert any(command.startswith("copier copy") for command in commands)
    assert commands[-1].startswith("torchyard certify")


def test_the_readme_and_the_ci_of_the_project_have_the_pages_commands(done: _Done) -> None:
    ours = [_essence(outcome.step.command) for outcome in done.outcomes]
    readme = [line[2:] for line in done.project("README.md").splitlines() if line[:2] == "$ "]
    ci = [
        line.partition("run: ")[2]
        for line in done.project(".github/workflows/ci.yml").splitlines()
        if "run: " in line
    ]
    assert len(readme) > 5
    for command in (*readme, *ci):
        essence = _essence(command)
        assert any(essence <= known for known in ours), command


def _essence(command: str) -> set[str]:
    """Return a command's words, without what a CI adds or a page leaves out to be short."""
    passed = {"--quiet", "--bundle", "certificate.tgz"}
    return {word for word in shlex.split(command) if word not in passed}


def test_what_is_installed_from_its_wheel_is_all_of_it(done: _Done) -> None:
    if not (done.walk.folder / "CMakeLists.txt").is_file():
        # The page installs an implementation editable, and a device, which takes longer, whole.
        command = "pip install --quiet --no-deps --force-reinstall ."
        assert done.walk.run(Step(command, ())).right
    name = done.walk.folder.name
    command = f"python -c \"from importlib.metadata import files; print(*files('{name}'))\""
    listed = done.walk.run(Step(command, ()))
    assert listed.right, listed.output
    module = name.replace("-", "_")
    installed = {path.removeprefix(f"{module}/") for path in listed.output.split()}
    sources = done.walk.folder / "src" / module
    expected = {path.name for path in sources.iterdir() if path.name != "__pycache__"}
    assert {"torchyard.toml", "py.typed", "attention.py"} <= expected <= installed
    assert not [path for path in installed if "test_" in path or "csrc" in path]
    assert any(path.endswith("/licenses/LICENSE") for path in installed)
