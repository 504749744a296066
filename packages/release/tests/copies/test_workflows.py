"""Workflows follow from the declaration, run what exists, and reach nothing that they need not."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result
from ruamel.yaml import YAML

from packages.release.tests import foreign
from torchyard import child_environ
from torchyard_release._cli import command
from torchyard_release._declaration._parse import parse_train, read_train
from torchyard_release._errors import TrainError
from torchyard_release._workflows._write import workflow_texts

_ROOT = Path(__file__).parents[4]
_SHA = "0123456789abcdef0123456789abcdef01234567"
_ACTIONS = "".join(
    f'"{name}" = "{_SHA} v1.2.3"\n'
    for name in (
        *("actions/attest-build-provenance", "actions/checkout", "actions/download-artifact"),
        *("actions/setup-python", "actions/upload-artifact", "pypa/gh-action-pypi-publish"),
    )
)
_DECLARED = f"""
[[gates]]
name = "tests"
session = "tests({{cell}})"
cells = ["press", "shop"]

[[gates]]
name = "accelerators"
session = "hardware({{cell}})"
cells = ["cuda"]

[[gates]]
name = "certify"
session = "certify"

[workflows]
prepare = ["pip install nox"]
check = ["nox -s lint"]
evidence = "nox -s {{cell}} -- --evidence=evidence"

installed = ["pip install --find-links dist orchard-press"]

[workflows.relay]
minutes = 300
run = ["python -m pip wheel --wheel-dir torch-wheel ./pytorch", "nox -s certify"]
environment = {{ USE_CUDA = "0" }}

[workflows.site]
build = "mkdir -p site/dev && cp page.html site/dev/index.html"
branch = "gh-pages"

[workflows.platforms]
macosx_11_0_arm64 = ["macos-15"]
manylinux_2_28_aarch64 = ["ubuntu-24.04-arm"]

[workflows.runners]
cpu = ["ubuntu-24.04"]
cuda = ["self-hosted", "linux", "nvidia"]

[workflows.actions]
{_ACTIONS}
[[workflows.registries]]
name = "testpypi"
upload = "https://test.pypi.org/legacy/"
simple = "https://test.pypi.org/simple/"

[[workflows.registries]]
name = "pypi"
upload = "https://upload.pypi.org/legacy/"
simple = "https://pypi.org/simple/"
"""


def _declare(root: Path, declared: str = _DECLARED) -> None:
    text = (root / "train.toml").read_text(encoding="utf-8")
    foreign.write(root, "train.toml", text + declared)


def _read(text: str) -> Any:
    return YAML(typ="safe").load(text)


def _workflows(root: Path) -> dict[str, Any]:
    texts = workflow_texts(read_train(root)).items()
    return {Path(path).stem: _read(text) for path, text in texts if path.endswith(".yml")}


def _steps(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, job in data["jobs"].items():
        for step in job["steps"]:
            yield name, step


def test_a_repository_without_the_table_has_none(
    orchard: Path, release: Callable[..., Result]
) -> None:
    assert workflow_texts(read_train(orchard)) == {}
    result = release("workflows")
    assert result.exit_code != 0
    assert "no [workflows]" in result.output


def test_they_are_written_compared_and_written_again(
    orchard: Path, release_json: Callable[..., Any]
) -> None:
    _declare(orchard)
    missing = release_json("check", "--no-nox", code=3)["drifts"]
    names = {".github/workflows/tests.yml", ".github/workflows/hardware.yml"}
    names |= {".github/workflows/release.yml", ".github/workflows/relay.yml"}
    names |= {".github/actionlint.yaml", ".github/workflows/docs.yml"}
    assert names <= {drift["path"] for drift in missing if drift["found"] == "none"}
    assert set(release_json("workflows")["written"]) == names
    assert release_json("workflows")["written"] == []
    file = orchard / ".github" / "workflows" / "tests.yml"
    file.write_text(file.read_text() + "# by hand\n")
    found = [d for d in release_json("check", "--no-nox", code=3)["drifts"] if "yml" in d["path"]]
    assert [drift["found"] for drift in found] == ["another text"]
    assert release_json("check", "--write", "--no-nox")["drifts"] == []
    assert "by hand" not in file.read_text()


def test_each_gate_has_its_machines(orchard: Path) -> None:
    _declare(orchard)
    found = _workflows(orchard)
    tests, hardware = found["tests"]["jobs"], found["hardware"]["jobs"]
    assert set(tests) == {"check", "tests", "certify"}
    assert tests["tests"]["strategy"]["matrix"] == {"python": ["3.11"], "cell": ["press", "shop"]}
    assert "cell" not in tests["certify"]["strategy"]["matrix"]
    assert set(hardware) == {"cuda", "joined"}
    assert hardware["cuda"]["runs-on"] == ["self-hosted", "linux", "nvidia"]
    assert hardware["joined"]["needs"] == ["cuda"]
    runs = [step.get("run") for _, step in _steps(found["hardware"])]
    # The command takes one bundle.
    each = 'for bundle in evidence/*.tgz; do torchyard certify verify "$bundle"; done'
    assert each in runs
    assert "nox -s 'hardware(cuda)'" in runs
    assert "nox -s cuda -- --evidence=evidence" in runs


def test_actionlint_knows_the_labels_that_the_owner_gave(orchard: Path) -> None:
    _declare(orchard)
    path = ".github/actionlint.yaml"
    given = {"self-hosted-runner": {"labels": ["nvidia"]}}
    assert _read(workflow_texts(read_train(orchard))[path]) == given
    without = _DECLARED.replace('["self-hosted", "linux", "nvidia"]', '["gpu"]')
    train = (orchard / "train.toml").read_text(encoding="utf-8").replace(_DECLARED, without)
    assert path not in workflow_texts(parse_train(train))


def test_a_strangers_change_reaches_no_machine_of_the_owner(orchard: Path) -> None:
    _declare(orchard)
    for data in _workflows(orchard).values():
        own = [job for job in data["jobs"].values() if "self-hosted" in job["runs-on"]]
        assert not own or not {"pull_request", "repository_dispatch"} & set(data["on"])


def test_jobs_may_do_what_they_need_and_no_more(orchard: Path) -> None:
    _declare(orchard)
    for name, data in _workflows(orchard).items():
        assert data["permissions"] == {}, name
        for job in data["jobs"].values():
            written = {key for key, value in job["permissions"].items() if value == "write"}
            assert not written or name in {"release", "docs"}
            assert job["timeout-minutes"] > 0
        for _, step in _steps(data):
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
            # What GitHub puts in place of an expression is run as it is.
            assert "${{" not in step.get("run", "")
    [text] = [t for p, t in workflow_texts(read_train(orchard)).items() if "tests" in p]
    assert f"actions/checkout@{_SHA} # v1.2.3" in text


def test_the_site_is_added_to_the_versions_that_are_published(
    orchard: Path, tmp_path: Path
) -> None:
    _declare(orchard)
    jobs = _workflows(orchard)["docs"]["jobs"]
    assert jobs["publish"]["permissions"] == {"contents": "write"}
    steps = [step for step in jobs["publish"]["steps"] if "run" in step][1:]
    assert [step.get("env") for step in steps][:-1] == [None] * (len(steps) - 1)
    remote = tmp_path / "remote.git"

    def git(*words: str, folder: Path = orchard) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout

    def publish(page: str) -> str:
        """Do what the job does, in a checkout; return the published files."""
        checkout = tmp_path / page
        git("clone", "--quiet", str(remote), str(checkout))
        (checkout / "page.html").write_text(page, encoding="utf-8")
        environ = {"TOKEN": "t", "GITHUB_SHA": page, "GIT_TERMINAL_PROMPT": "0"}
        for step in steps:
            subprocess.run(
                ["bash", "-e", "-c", step["run"]],
                cwd=checkout,
                env=child_environ(environ),
                check=True,
            )
        return git("ls-tree", "-r", "--name-only", "gh-pages", folder=remote)

    git("init", "--quiet", "--bare", str(remote))
    git("push", "--quiet", str(remote), "HEAD:refs/heads/main")
    git("symbolic-ref", "HEAD", "refs/heads/main", folder=remote)
    assert publish("first").splitlines() == [".nojekyll", "dev/index.html"]
    # A version that another run left.
    other = tmp_path / "other"
    git("clone", "--quiet", "--branch", "gh-pages", str(remote), str(other))
    foreign.write(other, "1.4.0/index.html", "1.4.0")
    git("add", ".", folder=other)
    git("commit", "--quiet", "--message", "1.4.0", folder=other)
    git("push", "--quiet", "origin", "HEAD:gh-pages", folder=other)
    assert publish("second").splitlines() == [".nojekyll", "1.4.0/index.html", "dev/index.html"]
    assert git("show", "gh-pages:dev/index.html", folder=remote) == "second"
    assert git("log", "--format=%s", "gh-pages", folder=remote).split() == [
        *("second", "1.4.0", "first"),
    ]


def test_a_branch_that_is_none_is_refused(orchard: Path) -> None:
    text = (orchard / "train.toml").read_text(encoding="utf-8") + _DECLARED
    with pytest.raises(TrainError, match="expected a branch's name"):
        parse_train(text.replace('"gh-pages"', '"$(id)"'))


def test_a_release_goes_to_one_index_after_the_other_and_is_compared_there(orchard: Path) -> None:
    _declare(orchard)
    jobs = _workflows(orchard)["release"]["jobs"]
    indexes = ["testpypi", "testpypi-has-it", "pypi", "pypi-has-it"]
    assert list(jobs) == ["build", "installed", *indexes]
    assert [jobs[name].get("needs") for name in jobs] == [None, *list(jobs)[:-1]]
    for name in ("testpypi", "pypi"):
        assert jobs[name]["environment"] == name
        assert jobs[name]["permissions"] == {"id-token": "write"}
        upload = jobs[name]["steps"][-1]["with"]
        assert upload["attestations"] is True
        assert "password" not in upload
    download = jobs["testpypi-has-it"]["steps"][2]["run"]
    assert {"orchard==1.4.0", "orchard-press==1.4.0", "orchard-shop==1.4.0"} <= set(
        shlex.split(download)
    )
    for name, job in jobs.items():
        assert (name in {"build", "installed"}) == ("if" not in job)


def test_wheels_are_installed_on_their_platforms_before_they_are_uploaded(orchard: Path) -> None:
    _declare(orchard)
    job = _workflows(orchard)["release"]["jobs"]["installed"]
    assert job["runs-on"] == "${{ matrix.labels }}"
    assert job["strategy"]["matrix"]["include"] == [
        {"platform": "macosx_11_0_arm64", "labels": ["macos-15"]},
        {"platform": "manylinux_2_28_aarch64", "labels": ["ubuntu-24.04-arm"]},
    ]
    assert job["steps"][-1] == {"run": "pip install --find-links dist orchard-press"}
    assert job["permissions"] == {"contents": "read"}


def test_without_machines_of_platforms_nothing_waits_for_them(orchard: Path) -> None:
    start, end = _DECLARED.index("[workflows.platforms]"), _DECLARED.index("[workflows.runners]")
    declared = _DECLARED[:start] + _DECLARED[end:]
    _declare(orchard, re.sub(r"(?m)^installed = .*\n", "", declared))
    jobs = _workflows(orchard)["release"]["jobs"]
    assert "installed" not in jobs
    assert jobs["testpypi"]["needs"] == "build"


def test_a_commit_of_pytorch_is_built_and_tried(orchard: Path) -> None:
    _declare(orchard)
    data = _workflows(orchard)["relay"]
    # The names of docs/source/accelerator/ci.md in PyTorch's repository.
    assert data["on"] == {"repository_dispatch": {"types": ["pull_request", "push"]}}
    event = "github.event.client_payload.payload"
    job = data["jobs"]["pytorch"]
    assert job["if"] == f"${{{{ {event}.action != 'closed' }}}}"
    assert (job["timeout-minutes"], job["env"]) == (300, {"USE_CUDA": "0"})
    mine, theirs = (step for step in job["steps"] if "checkout" in step.get("uses", ""))
    assert "repository" not in mine["with"]
    assert theirs["with"]["repository"] == "pytorch/pytorch"
    assert theirs["with"]["ref"] == f"${{{{ {event}.pull_request.head.sha || {event}.after }}}}"
    assert theirs["with"]["path"] == "pytorch"
    assert [step["run"] for step in job["steps"][-2:]] == [
        "python -m pip wheel --wheel-dir torch-wheel ./pytorch",
        "nox -s certify",
    ]
    # The end of a pull request starts a run that does nothing, and ends the one before.
    assert f"{event}.pull_request.number" in data["concurrency"]["group"]
    assert data["concurrency"]["cancel-in-progress"] is True


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (f"{_SHA} v1.2.3", "v1.2.3", "attest-build-provenance: expected a commit of 40 digits"),
        ('cuda = ["self-hosted', 'tpu = ["self-hosted', "tpu: expected names of [hardware]"),
        ('cpu = ["ubuntu-24.04"]', "cpu = []", "cpu: expected at least one label"),
        ('simple = "https', 'simple = "http', "simple: expected an address that begins"),
        ("[workflows]\n", '[workflows]\nfolder = "../x"\n', "folder: expected a folder inside"),
        ("[workflows]\n", "[workflows]\nminutes = 0\n", "minutes: expected 1 to 360"),
        ("macosx_11_0_arm64 =", "beos =", "beos: expected a platform such as any"),
        ("macosx_11_0_arm64 =", "linux_x86_64 =", "expected a platform that an index takes"),
        ('["macos-15"]', "[]", "macosx_11_0_arm64: expected at least one label"),
        ("installed = [", "installed = []\ncheck2 = [", "installed: expected commands where"),
        ("[workflows]\n", "[workflows]\nhours = 2\n", "hours: unknown key"),
        ("minutes = 300", "minutes = 400", "minutes: expected 1 to 360"),
        (
            'run = ["python -m pip wheel --wheel-dir torch-wheel ./pytorch", "nox -s certify"]',
            "run = []",
            "run: expected at least one command",
        ),
    ],
)
def test_a_wrong_declaration_is_named(orchard: Path, old: str, new: str, said: str) -> None:
    text = (orchard / "train.toml").read_text(encoding="utf-8") + _DECLARED
    assert old in text
    with pytest.raises(TrainError, match=re.escape(said)):
        parse_train(text.replace(old, new, 1))


def test_every_command_of_this_repositorys_jobs_exists() -> None:
    listing = ("-m", "nox", "--list", "--json", "-k", "not nothing_is_called_this")
    listed = subprocess.run(
        (sys.executable, *listing),
        cwd=_ROOT,
        env=child_environ({}),
        capture_output=True,
        text=True,
        check=True,
    )
    sessions = {row[key] for row in json.loads(listed.stdout) for key in ("session", "name")}
    context, seen = click.Context(command), 0
    for data in _workflows(_ROOT).values():
        for name, step in _steps(data):
            words = shlex.split(step.get("run", ""))
            if words[:2] == ["torchyard", "release"]:
                assert command.get_command(context, words[2]) is not None, words
            elif words[:2] == ["nox", "-s"]:
                matrix = data["jobs"][name].get("strategy", {}).get("matrix", {})
                for cell in matrix.get("cell", [""]):
                    ends = words.index("--") if "--" in words else len(words)
                    for word in words[2:ends]:
                        assert word.replace("$CELL", cell) in sessions, word
            else:
                continue
            seen += 1
    assert seen > 10
