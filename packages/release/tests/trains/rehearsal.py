"""A whole train on a repository's clone: every command, its wall time, and where it ended.

``python -m packages.release.tests.trains.rehearsal FOLDER`` runs it on FOLDER/clone, a clone of
this repository; ``nox -s rehearsal`` makes the clone. Options after the folder are those of one
more ``verify``, such as ``--gate tests --cell cpu``: each candidate is verified by it as well.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import tomlkit
from packaging.tags import parse_tag, sys_tags

from packages.release.tests.trains.clone import Rehearsal
from torchyard_release._index._server import IndexServer

__all__ = ["commands_run", "faults_planted", "rehearse"]

# Within the phase in which most is still picked, and long enough for what is waived.
_PHASE: Final = "cut"
# The line of publishing's journal that says that a file is being sent.
_SENDING: Final = 3
_WAIVED_FOR: Final = datetime.timedelta(days=60)


def rehearse(
    train: Rehearsal,
    *,
    fix: Callable[[Path], object],
    verify: Sequence[Sequence[str]] = ((),),
    build: Sequence[str] = (),
) -> dict[str, Any]:
    """Run a train from its calendar to the audit; return what a test looks at afterwards.

    Args:
        train: the clone.
        fix: changes one package on main after the cut, as a bug fix would.
        verify: the words of each ``verify``.
        build: further words of ``build``.
    """
    with IndexServer(train.folder / "index") as index:
        _prepare(train, index)
        train.release("plan")
        train.release("check", "--no-nox")
        faults = {train.kill("cut", at=2): "the same command made the branch and the tag"}
        train.release("cut")
        train.git("switch", "--quiet", _branch(train))
        built = [train.release("build", *build)]
        train.release("inspect")
        for words in verify:
            train.release("verify", *words)
        first = train.release("scorecard", code=3)
        _waive(train, first)
        _fix(train, fix)
        train.release("cut", "--candidate")
        built.append(train.release("build", *build))
        train.release("inspect")
        second = train.release("scorecard", code=3)
        for words in verify:
            train.release("verify", *words)
        card = train.release("scorecard")
        train.release("status")
        refused = _spoil(train, card)
        for name in ("ann", "bob"):
            train.release("approve", "--key", str(train.folder / f"{name}.pem"))
        refused |= _spoil_signed(train)
        faults[train.kill("promote", at=2)] = "the same command promoted it, once"
        train.release("promote")
        train.release("publish", "--index", "rehearsal")
        upload = ("publish", "--index", "rehearsal", "--for-real")
        faults[train.kill(*upload, at=_SENDING)] = "the same command sent the rest, each file once"
        train.release(*upload)
        again = train.release("publish", "--index", "rehearsal", "--for-real")
        audit = train.release("audit", "--index", "rehearsal")
        notes = train.release("notes")
        outsider = _outsider(train, index)
        history = train.release("history")
        return {
            "built": built,
            "first": first,
            "second": second,
            "card": card,
            "refused": refused,
            "killed": faults,
            "again": again,
            "audit": audit,
            "notes": notes,
            "outsider": outsider,
            "history": history,
            "uploads": list(index.uploads),
        }


def _prepare(train: Rehearsal, index: IndexServer) -> None:
    """Have the train depart soon, name who signs and where to publish, on main.

    Of wheels for other platforms, which take as long again each and which no command here installs,
    none is built: `torchyard release wheels` builds them.
    """
    path = train.root / "train.toml"
    phases = {row["phase"]: row for row in train.release("plan")["phases"]}
    began = datetime.date.fromisoformat(phases[_PHASE]["begins"])
    departs = datetime.date.fromisoformat(phases["depart"]["begins"]) - began + _today()
    text = re.sub(r"(?m)^departs = .*$", f"departs = {departs}", path.read_text())
    keys = {
        name: train.release("key", "make", str(train.folder / f"{name}.pem"))
        for name in ("ann", "bob", "cy")
    }
    text = re.sub(r"(?ms)^\[signing[^\[]*(?=^\[|\Z)", "", text)
    lines = ["\n[signing]\nthreshold = 2\n\n[signing.keys]"]
    lines += [f'{name} = "{said["public"]}"' for name, said in keys.items()]
    lines += [f'\n[indexes.rehearsal]\nrepository = "{index.legacy}"\nsimple = "{index.simple}"\n']
    path.write_text(_of_this_machine(text + "\n".join(lines)))
    train.release("check", "--write", "--no-nox")
    train.commit("Prepare the rehearsal")


def _of_this_machine(text: str) -> str:
    """Leave a declaration the wheels that can be installed here."""
    declared = tomlkit.parse(text)
    for package in declared["packages"].values():  # type: ignore[union-attr]
        tags = package.get("wheels", ())
        fit = [tag for tag in tags if not parse_tag(tag).isdisjoint(sys_tags())]
        if len(fit) < len(tags):
            package["wheels"] = fit
    return tomlkit.dumps(declared)


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def _branch(train: Rehearsal) -> str:
    return train.git("for-each-ref", "--format=%(refname:short)", "refs/heads/release/")


def _waive(train: Rehearsal, card: dict[str, Any]) -> None:
    """Waive on main what this machine cannot verify, and pick that; no package changes by it."""
    stopping = [row for row in card["rows"] if row["stops"]]
    failed = [f"{r['gate']} {r['cell']}: {r['text']}" for r in stopping if r["status"] == "fail"]
    assert not failed, "\n".join(failed)
    train.git("switch", "--quiet", "main")
    path = train.root / "train.toml"
    text = path.read_text()
    expires = _today() + _WAIVED_FOR
    for row in stopping:
        why = "the rehearsal cannot show it" if row["evidence"] else "the rehearsal leaves it out"
        text += (
            f'\n[[waivers]]\ngate = "{row["gate"]}"\ncell = "{row["cell"]}"\nowner = "ann"\n'
            f'reason = "{why}"\nexpires = {expires}\n'
        )
    path.write_text(text)
    sha = train.commit("Waive what the rehearsal cannot show")
    train.git("switch", "--quiet", _branch(train))
    train.release("pick", sha, "--as", "release-only")


def _fix(train: Rehearsal, fix: Callable[[Path], object]) -> None:
    train.git("switch", "--quiet", "main")
    fix(train.root)
    sha = train.commit("Correct what the first candidate showed")
    train.git("switch", "--quiet", _branch(train))
    train.release("pick", sha, "--as", "regression")
    train.release("pick")


def _spoil(train: Rehearsal, card: dict[str, Any]) -> dict[str, str]:
    """Change what a green scorecard rests on, see that nobody can approve it, and put it back.

    Returns:
        what was touched -> what status reports, or why approving was refused.
    """
    (folder,) = train.root.glob(".train/*/rc2")
    wheel = sorted((folder / "dist").glob("*.whl"))[0]
    # Of a gate that passed: one that is waived does not rest on its evidence.
    passed = [row for row in card["rows"] if row["blocking"] and row["status"] == "pass"]
    evidence = next(
        path for row in passed if (path := Path(row["evidence"])).parent.parent == folder
    )
    found = {}
    for what, path, touch in (
        ("a wheel that was changed", wheel, lambda: wheel.write_bytes(wheel.read_bytes() + b"x")),
        ("a wheel that is gone", wheel, wheel.unlink),
        ("a wheel that is a link", wheel, lambda: _linked(wheel, train.folder / wheel.name)),
        ("evidence that was edited", evidence, lambda: evidence.write_text(_edited(evidence))),
    ):
        before = path.read_bytes()
        touch()
        card = train.release("scorecard", code=3)
        status = train.release("status")
        assert not card["ready"]
        assert not status["ready"]
        train.release("approve", "--key", str(train.folder / "ann.pem"), code=1)
        found[what] = (*card["damage"], *card["notes"])[0]
        path.unlink(missing_ok=True)
        path.write_bytes(before)
    public = train.release("key", "make", str(train.folder / "mallory.pem"))["public"]
    declaration = train.root / "train.toml"
    before = declaration.read_bytes()
    text = before.decode().replace("[signing.keys]\n", f'[signing.keys]\nmallory = "{public}"\n')
    declaration.write_text(text)
    for name in ("mallory", "ann"):
        said = train.release("approve", "--key", str(train.folder / f"{name}.pem"), code=1)
        found[f"a key that no commit names: {name} signs"] = said["error"]
    declaration.write_bytes(before)
    assert train.release("scorecard")["ready"]
    return found


def _spoil_signed(train: Rehearsal) -> dict[str, str]:
    """Touch what two have signed, see that it is not promoted, and put it back; as above."""
    (wheel, *_) = sorted(train.root.glob(".train/*/rc2/dist/*.whl"))
    declaration = train.root / "train.toml"
    found = {}
    for what, path, content in (
        ("signed, then a wheel was changed", wheel, wheel.read_bytes() + b"x"),
        (
            "signed, then a threshold that no commit names",
            declaration,
            declaration.read_bytes().replace(b"threshold = 2", b"threshold = 1"),
        ),
    ):
        before = path.read_bytes()
        assert content != before
        path.write_bytes(content)
        found[what] = train.release("promote", code=1)["error"]
        path.write_bytes(before)
    return found


def _linked(path: Path, elsewhere: Path) -> None:
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)


def _edited(path: Path) -> str:
    data = json.loads(path.read_text())
    return json.dumps(data | {"summary": f"{data['summary']}, as somebody wrote by hand"})


def _outsider(train: Rehearsal, index: IndexServer) -> dict[str, Any]:
    """Fetch the release as anybody does; verify it by public keys alone; then change one byte."""
    fetched = train.folder / "fetched"
    fetched.mkdir()
    for path in sorted((index.folder / "files").iterdir()):
        if path.suffix != ".metadata":
            (fetched / path.name).write_bytes(path.read_bytes())
    (manifest,) = train.root.glob(".train/*/rc2/manifest.json")
    (fetched / manifest.name).write_bytes(manifest.read_bytes())
    public = [str(train.folder / f"{name}.pub") for name in ("ann", "bob")]
    keys = ["--key", public[0], "--key", public[1]]
    said: dict[str, Any] = train.release("authenticate", str(fetched), *keys)
    victim = sorted(fetched.glob("*.whl"))[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    train.release("authenticate", str(fetched), *keys, code=1)
    return said


# What one machine can do in minutes: of the sessions the shortest, in place of all. In one command,
# because each of them installs torch again.
_OURS: Final = (
    (
        *("--gate", "alone", "--gate", "together", "--gate", "dependencies", "--gate", "torch"),
        *("--gate", "accelerators", "--gate", "reverse", "--gate", "decisions"),
        *("--gate", "benchmark"),
    ),
    ("--gate", "tests", "--cell", "core"),
)
# Native code is compiled by as many processes as the machine has cores, unless somebody said so.
_JOBS: Final = "CMAKE_BUILD_PARALLEL_LEVEL"


def _correct(root: Path) -> None:
    path = root / "packages/context-parallel/src/torchyard_context_parallel/__init__.py"
    path.write_text(f"{path.read_text()}\n# Corrected in the rehearsal.\n")


def _check_counts(train: Rehearsal, notes: dict[str, Any]) -> None:
    """Hold the counts of the notes against git's own; the first release counts from the start."""
    tag = train.git("tag", "--list", "v*-rc2")
    assert notes["commits"] == int(train.git("rev-list", "--count", "--no-merges", tag))
    people = {*train.git("log", "--no-merges", "--format=%aN <%aE>", tag).splitlines()}
    assert notes["contributors"] + len(notes["bots"]) >= len(people)


def commands_run(train: Rehearsal, end: dict[str, Any]) -> str:
    """Return what ran how long, and what building each package took, as Markdown."""
    lines = ["| seconds | command |", "| ---: | --- |"]
    for ran in train.ran:
        # A folder of the machine says nothing to a reader.
        words = [word.replace(str(train.folder), "FOLDER") for word in ran.words]
        lines.append(f"| {ran.seconds:.1f} | `{' '.join(words)}` |")
    lines += ["", "| package | rc1: twice | rc2: twice, or once more | ", "| --- | ---: | ---: |"]
    first, second = (built["seconds"] for built in end["built"])
    unchanged = end["built"][1]["unchanged"]
    for name, seconds in first.items():
        how = "once more" if name in unchanged else "twice"
        lines.append(f"| {name} | {seconds:.1f} | {second[name]:.1f}, {how} |")
    return "\n".join([*lines, ""])


def faults_planted(end: dict[str, Any]) -> str:
    """Return what was planted, and what became of it, as Markdown."""
    lines = ["| planted | verdict |", "| --- | --- |"]
    lines += [
        f"| {what} | refused: {' '.join(why.split())} |" for what, why in end["refused"].items()
    ]
    lines += [f"| {what} | resumed: {how} |" for what, how in end["killed"].items()]
    return "\n".join([*lines, ""])


def main() -> None:
    """Rehearse on a clone of this repository, and say where the pages are."""
    folder = Path(sys.argv[1]).resolve()
    os.environ.setdefault(_JOBS, str(os.cpu_count() or 1))
    train = Rehearsal(folder / "clone", folder, say=lambda line: print(line, flush=True))
    for key, value in (("user.name", "Rehearsal"), ("user.email", "rehearsal@example.org")):
        train.git("config", key, value)
    train.git("checkout", "--quiet", "-B", "main")
    began = time.monotonic()
    more = (tuple(sys.argv[2:]),) if sys.argv[2:] else ()
    end = rehearse(train, fix=_correct, verify=(*_OURS, *more))
    seconds = time.monotonic() - began
    table = folder / "commands.md"
    table.write_text(commands_run(train, end))
    print(table.read_text())
    print(f"{seconds:7.1f} s  in all, {len(train.ran)} commands")
    artifacts = [len(built["candidate"]["artifacts"]) for built in end["built"]]
    print(f"built twice to the same bytes: {artifacts[0]} files of rc1, {artifacts[1]} of rc2")
    print(f"scorecard: {end['card']['counts']}, ready: {end['card']['ready']}")
    print(faults := faults_planted(end))
    table.write_text(f"{table.read_text()}\n{faults}")
    print(f"notes: {end['notes']['sentence']}")
    for path in sorted(train.root.glob(".train/*/rc*/scorecard.html")):
        print(f"page: {path}")
    for name in (*end["notes"]["files"], table):
        print(f"page: {name}")
    _check_counts(train, end["notes"])


if __name__ == "__main__":
    main()
