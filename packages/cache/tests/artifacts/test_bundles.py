"""Bundles are saved, merged, pruned and read as their docstrings say."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from packages.cache.tests.artifacts.made import bundle, snapshot, written
from torchyard import child_environ
from torchyard_cache import BundleError, artifacts
from torchyard_cache._cli import command
from torchyard_cache.artifacts._bundle import parse_bundle
from torchyard_cache.artifacts._keys import own_key
from torchyard_cache.artifacts._kinds import folder_kinds
from torchyard_cache.artifacts._manifest import this_machine


def test_equal_artifacts_make_equal_files_but_for_the_serial() -> None:
    part = ("tuned", "a", b"x")
    one, two = (bundle(part, serial=5).to_bytes(own_key()) for _ in range(2))
    assert one == two


def test_the_users_key_is_made_once_and_is_theirs_alone(home: Path) -> None:
    assert own_key().public == own_key().public
    path = home / "config" / "torchyard" / "cache.key"
    assert path.stat().st_mode & 0o077 == 0


def test_what_was_loaded_is_saved_again(tmp_path: Path) -> None:
    written(tmp_path / "one.bundle", ("inductor", "fabc", b"x"), ("tuned", "t", b"y"))
    artifacts.load(tmp_path / "one.bundle", kinds=["tuned"])
    manifest = artifacts.save(tmp_path / "two.bundle", kinds=["tuned"])
    assert [(item.kind, item.key) for item in manifest.artifacts] == [("tuned", "t")]
    again = parse_bundle((tmp_path / "two.bundle").read_bytes(), [own_key().public])
    assert list(again.contents.values()) == [b"y"]


def test_a_file_that_another_process_removes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_kinds()["tuned"]
    folder.mkdir(parents=True)
    for name in ("gone", "stays"):
        (folder / name).write_bytes(b"x")
    read = Path.read_bytes

    def removed_before(path: Path) -> bytes:
        if path.name == "gone":
            path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", removed_before)
    manifest = artifacts.save(tmp_path / "made.bundle", kinds=["tuned"])
    assert [item.key for item in manifest.artifacts] == ["stays"]


def test_bundles_merge_and_conflicts_are_named(tmp_path: Path) -> None:
    paths = []
    for rank in range(4):
        part = (
            ("tuned", f"of-{rank}", b"own"),
            ("tuned", "shared", b"same"),
            (
                "tuned",
                "differs",
                b"%d" % rank,
            ),
        )
        made = bundle(*part)
        items = tuple(
            dataclasses.replace(item, used=float(rank)) for item in made.manifest.artifacts
        )
        made = dataclasses.replace(
            made, manifest=dataclasses.replace(made.manifest, artifacts=items)
        )
        path = tmp_path / f"{rank}.bundle"
        path.write_bytes(made.to_bytes(own_key()))
        paths.append(path)
    found = artifacts.merge(paths, tmp_path / "all.bundle")
    assert found.conflicts == ("tuned differs",)
    assert len(found.manifest.artifacts) == 6
    kept = parse_bundle((tmp_path / "all.bundle").read_bytes(), [own_key().public])
    (differs,) = (item for item in found.manifest.artifacts if item.key == "differs")
    assert kept.contents[differs.sha256] == b"3"


def test_bundles_of_two_machines_do_not_merge(tmp_path: Path) -> None:
    other = dataclasses.replace(this_machine(), torch="2.99.0")
    one = written(tmp_path / "one.bundle", ("tuned", "a", b"x"))
    two = written(tmp_path / "two.bundle", ("tuned", "b", b"x"), machine=other)
    with pytest.raises(BundleError, match=r"two\.bundle is of another machine: torch 2\.99\.0"):
        artifacts.merge([one, two], tmp_path / "all.bundle")


def test_artifacts_of_another_torch_are_left_out_with_the_reason(tmp_path: Path) -> None:
    other = dataclasses.replace(this_machine(), torch="2.99.0", instructions="NEON")
    path = written(tmp_path / "x.bundle", ("inductor", "fabc", b"x"), machine=other)
    found = artifacts.load(path)
    assert found.loaded == 0
    (why,) = found.skipped
    assert why.startswith("inductor fabc: made with torch 2.99.0, here ")
    assert "instructions NEON" in why


def test_pruning_drops_the_old_and_then_the_least_recently_used(tmp_path: Path) -> None:
    now = time.time()
    made = bundle(("tuned", "old", b"o" * 10), ("tuned", "mid", b"m" * 10), ("tuned", "new", b"n"))
    used = {"old": now - 40 * 86400, "mid": now - 5 * 86400, "new": now}
    items = tuple(
        dataclasses.replace(item, used=used[item.key]) for item in made.manifest.artifacts
    )
    made = dataclasses.replace(made, manifest=dataclasses.replace(made.manifest, artifacts=items))
    path = tmp_path / "x.bundle"
    path.write_bytes(made.to_bytes(own_key()))
    assert {i.key for i in artifacts.prune(path, max_days=30).artifacts} == {"mid", "new"}
    assert {i.key for i in artifacts.prune(path, max_bytes=5).artifacts} == {"new"}
    assert artifacts.inspect(path).manifest.size == 1
    with pytest.raises(ValueError, match="prune: max_bytes"):
        artifacts.prune(path)


def test_a_registered_folders_files_travel(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.bin").write_bytes(b"a")
    (folder / "b.lock").write_bytes(b"")
    (folder / "link").symlink_to("/etc/passwd")
    artifacts.register("mine", folder)
    manifest = artifacts.save(tmp_path / "x.bundle", kinds=["mine"])
    assert [item.key for item in manifest.artifacts] == ["sub/a.bin"]
    (folder / "sub" / "a.bin").unlink()
    assert artifacts.load(tmp_path / "x.bundle").loaded == 1
    assert (folder / "sub" / "a.bin").read_bytes() == b"a"
    with pytest.raises(ValueError, match="register: kind: expected a kind that torch has not"):
        artifacts.register("inductor", folder)


def test_a_folder_and_a_url_hold_bundles(tmp_path: Path) -> None:
    artifacts.save(tmp_path, name="x", kinds=["tuned"])
    assert artifacts.inspect(tmp_path).manifest.name == "x"
    url = f"file://{tmp_path}/by-url.bundle"
    artifacts.save(url, kinds=["tuned"])
    assert artifacts.inspect(url).signer == own_key().public.hex
    memory = "memory://bundles/x.bundle"
    artifacts.save(memory, kinds=["tuned"])
    assert artifacts.load(memory).loaded == 0
    with pytest.raises(BundleError, match="memory://none cannot be read"):
        artifacts.load("memory://none")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: artifacts.load(path), "expected a bundle, found no file"),
        (lambda path: artifacts.load(path, trust_unsigned="yes"), "load: trust_unsigned"),
        (lambda path: artifacts.load(path, newer_than=-1), "load: newer_than"),
        (lambda path: artifacts.load(3), "load: path"),
        (lambda path: artifacts.save(path, kinds=["none"]), r"save: kinds\[0\]"),
        (lambda path: artifacts.save(path, key="none.key"), "none.key"),
        (lambda path: artifacts.merge([], path), "merge: paths"),
    ],
)
def test_bad_arguments_are_named(call: object, message: str, tmp_path: Path) -> None:
    assert callable(call)
    with pytest.raises((TypeError, ValueError), match=message):
        call(tmp_path / "absent.bundle")


_KILLED = """
import os, sys
from pathlib import Path
from torchyard_cache.artifacts import _stores
calls = [0]
def counted(function):
    def call(*args, **kwargs):
        calls[0] += 1
        if calls[0] == int(sys.argv[2]):
            os.kill(os.getpid(), 9)
        return function(*args, **kwargs)
    return call
for name in ("fsync", "replace", "open"):
    setattr(os, name, counted(getattr(os, name)))
_stores.replace_file(Path(sys.argv[1]), b"new" * 100_000)
print("written")
"""


@pytest.mark.sweep
def test_a_process_that_is_killed_at_any_write_leaves_the_old_or_the_new_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.bundle"
    path.write_bytes(b"old")
    outcomes = []
    for step in range(1, 20):
        command = [sys.executable, "-c", _KILLED, str(path), str(step)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        content = path.read_bytes()
        assert content in (b"old", b"new" * 100_000)
        outcomes.append((done.returncode, content[:3]))
        if "written" in done.stdout:
            break
        path.write_bytes(b"old")
    assert (-signal.SIGKILL, b"old") in outcomes
    assert (-signal.SIGKILL, b"new") in outcomes
    assert outcomes[-1] == (0, b"new")


_PROGRAM = """
import sys, torch
from torchyard_cache import artifacts
if sys.argv[1] == "load":
    print(artifacts.load(sys.argv[2]).loaded)
def doubled(x):
    return (x * 2).relu().sum()
x = torch.arange(6.0) - 3
assert torch.compile(doubled)(x) == doubled(x)
if sys.argv[1] == "save":
    artifacts.save(sys.argv[2])
print(artifacts.explain().to_json())
"""


@pytest.mark.sweep
def test_a_bundle_of_one_process_is_found_in_another_with_another_folder(
    tmp_path: Path, home: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    path = tmp_path / "x.bundle"

    def run(word: str) -> list[str]:
        changes = {
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"inductor-{word}"),
            "HOME": str(tmp_path / word),
            "XDG_CONFIG_HOME": str(home / "config"),
        }
        command = [sys.executable, "-W", "ignore", str(program), word, str(path)]
        done = subprocess.run(
            command, env=child_environ(changes), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n", 1)

    first = json.loads("\n".join(run("save")))
    assert [graph["lookup"] for graph in first["graphs"]] == ["miss"]
    assert "no bundle was loaded" in first["graphs"][0]["reason"]
    kinds = {item.kind for item in artifacts.inspect(path).manifest.artifacts}
    assert {"aot_autograd", "cpp", "inductor"} <= kinds
    libraries = snapshot(tmp_path / "inductor-save")
    loaded, text = run("load")
    assert int(loaded) >= 3
    second = json.loads(text)
    assert [graph["lookup"] for graph in second["graphs"]] == ["hit"]
    assert second["bundles"] == 1
    # No compiler ran: every library is the bundle's.
    for name, content in snapshot(tmp_path / "inductor-load").items():
        if name.endswith(".so"):
            assert libraries[name] == content


@pytest.mark.sweep
def test_an_artifact_names_the_graph_that_it_is_of(tmp_path: Path) -> None:
    recipe, path = tmp_path / "recipe.py", tmp_path / "w.bundle"
    recipe.write_text(
        "import torch\n"
        "def one(x):\n    return (x * 2).sin().sum()\n"
        "def two(x):\n    return (x @ x).cos().sum()\n"
        "def warm_both():\n"
        "    torch.compile(one)(torch.ones(3, 3, requires_grad=True)).backward()\n"
        "    torch.compile(two)(torch.ones(3, 3))\n"
    )
    result = CliRunner().invoke(command, ["warm", str(recipe), "-o", str(path)])
    assert result.exit_code == 0, result.output

    graphs = {kind: set() for kind in ("inductor", "aot_autograd", "cpp")}
    for item in artifacts.inspect(path).manifest.artifacts:
        graphs.setdefault(item.kind, set()).add(item.graph)
    both = {"0/0 one (recipe.py:2)", "1/0 two (recipe.py:4)"}
    assert graphs["inductor"] == both
    assert graphs["aot_autograd"] == both
    # Libraries of several graphs may be one file.
    assert graphs["cpp"] == {""}
    shown = CliRunner().invoke(command, ["inspect", str(path)]).output
    assert "0/0 one (recipe.py:2)" in shown
    assert "not known" in shown


def test_the_commands_make_read_join_and_shrink_bundles(tmp_path: Path) -> None:
    def run(*words: object) -> str:
        result = CliRunner().invoke(command, [str(word) for word in words])
        assert result.exit_code == 0, result.output
        return result.output

    one = written(tmp_path / "one.bundle", ("tuned", "a", b"x"))
    two = written(tmp_path / "two.bundle", ("tuned", "a", b"y"), ("tuned", "b", b"y"))
    assert "signed by" in run("inspect", one)
    assert json.loads(run("inspect", one, "--json"))["manifest"]["name"] == "made"
    assert "several contents: tuned a" in run("merge", one, two, "-o", tmp_path / "all.bundle")
    assert json.loads(run("prune", two, "--max-bytes", "1", "--json"))["artifacts"]
    refused = CliRunner().invoke(command, ["inspect", str(tmp_path / "none")])
    assert refused.exit_code == 1
    assert "found no file" in refused.output


@pytest.mark.sweep
def test_a_recipe_leaves_one_bundle(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text(
        "import torch\n"
        "def warm_sum():\n"
        "    torch.compile(lambda x: (x + 1).sum(), backend='eager')(torch.ones(3))\n"
        "def helper():\n    raise AssertionError\n"
    )
    result = CliRunner().invoke(command, ["warm", str(recipe), "-o", str(tmp_path / "w.bundle")])
    assert result.exit_code == 0, result.output
    assert artifacts.inspect(tmp_path / "w.bundle").signer == own_key().public.hex
    recipe.write_text("def warm():\n    raise ZeroDivisionError('as meant')\n")
    result = CliRunner().invoke(command, ["warm", str(recipe), "-o", str(tmp_path / "w.bundle")])
    assert result.exit_code == 1
    assert "as meant" in result.output
