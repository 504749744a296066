"""A run ends with a result for every case, whatever the plugin does to the process."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from torchyard_conformance import LawResult, Report, Status, Subject, read_profile
from torchyard_conformance._law import Law
from torchyard_conformance._profile import ProfileError
from torchyard_conformance._runs import _run as run_module
from torchyard_conformance._runs._events import Events, Progress, read_progress
from torchyard_conformance._runs._run import Run, RunError

_DOC = '"""It is good.\n\n    Why: so.\n\n    Fix: do.\n    """'
_HEAD = """
import os, signal, time
import pytest
from torchyard_conformance import law, not_supported, unverified, violated
"""


@pytest.fixture
def certify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Return a function that certifies this very plugin by laws that are written for the test."""
    folder = tmp_path / "laws"
    folder.mkdir()
    monkeypatch.setattr(run_module, "_LAWS", str(folder))

    def certified(bodies: dict[str, str], *, case: str = "", head: str = "") -> Report:
        text = _HEAD + head
        for name, body in bodies.items():
            lines = "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())
            text += f'\n\n@law("toy.{name}", profiles=("core",)'
            text += ", cases=cases)\n" if "case" in body else ")\n"
            text += f"def test_{name}(subject, record{', case' if 'case' in body else ''}):\n"
            text += f"    {_DOC}\n{lines}\n"
        (folder / "test_toy.py").write_text(text)
        laws = tuple(Law(f"toy.{name}", "", ("core",), "") for name in bodies)
        monkeypatch.setattr(run_module, "all_laws", lambda: laws)
        listed = (("toy.txt", "".join(f"toy.{name}\n" for name in bodies)),)
        profile = replace(read_profile("core"), lists=listed)
        return Run(Subject("conformance"), profile, case=case).certify((), _watched.append)

    _watched: list[Progress] = []
    certified.watched = _watched  # type: ignore[attr-defined]
    return certified


def _found(report: Report) -> dict[str, tuple[Status, str]]:
    return {result.name: (result.status, result.text) for result in report.results}


def test_each_way_to_end_is_a_status(certify) -> None:  # type: ignore[no-untyped-def]
    report = certify(
        {
            "passes": "record('ratio', 1.5)",
            "breaks": "violated('expected 1, got 2', smallest='one key')",
            "asserts": "assert 1 == 2, 'one is not two'",
            "raises": "raise KeyError('key')",
            "lacks": "not_supported('no such thing')",
            "waits": "unverified('no device')",
            "skips": "pytest.skip('later')",
        }
    )
    assert _found(report) == {
        "toy.passes": (Status.PASS, ""),
        "toy.breaks": (Status.FAIL, "expected 1, got 2"),
        "toy.asserts": (Status.FAIL, "one is not two"),
        "toy.raises": (Status.FAIL, "raised KeyError: 'key'"),
        "toy.lacks": (Status.NOT_SUPPORTED, "no such thing"),
        "toy.waits": (Status.UNVERIFIED, "no device"),
        "toy.skips": (Status.FAIL, "the law skipped, which it may not: later"),
    }
    by_name = {result.law: result for result in report.results}
    assert by_name["toy.passes"].figures == {"ratio": 1.5}
    assert by_name["toy.breaks"].smallest == "one key"
    assert by_name["toy.breaks"].reproduce == (
        "torchyard certify conformance --case toy.breaks --profile core"
    )
    assert not report.certified
    assert certify.watched[-1].results


def test_what_kills_the_process_fails_its_case_and_the_others_run(certify) -> None:  # type: ignore[no-untyped-def]
    report = certify(
        {
            "first": "pass",
            "crashes": "os.kill(os.getpid(), signal.SIGSEGV)",
            "between": "pass",
            "exits": "os._exit(0)",
            "last": "import atexit; atexit.register(os.abort)",
        }
    )
    found = _found(report)
    assert [found[f"toy.{name}"][0] for name in ("first", "between", "last")] == [Status.PASS] * 3
    assert found["toy.crashes"][0] is found["toy.exits"][0] is Status.FAIL
    assert signal.Signals.SIGSEGV.name in found["toy.crashes"][1]
    assert "the process ended with status 0 while it was tried" in found["toy.exits"][1]
    assert "--case toy.crashes" in next(
        result.reproduce for result in report.results if result.law == "toy.crashes"
    )


def test_a_project_around_the_environment_takes_no_part(certify, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "conftest.py").write_text("import of_no_certificate\n")
    assert _found(certify({"passes": "pass"}))["toy.passes"][0] is Status.PASS


def test_what_hangs_is_ended_and_fails(certify, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(run_module, "_CASE_SECONDS", 3.0)
    found = _found(certify({"hangs": "time.sleep(600)", "last": "pass"}))
    assert found["toy.hangs"][0] is Status.FAIL
    assert "it did not end within 3 s" in found["toy.hangs"][1]
    assert found["toy.last"][0] is Status.PASS


_CASES = """
def cases(subject):
    assert subject.name == "conformance"
    return {"mine-one": 1, "mine-two": 2}
"""


def test_a_law_runs_once_per_case_and_one_case_can_run_alone(certify) -> None:  # type: ignore[no-untyped-def]
    bodies = {"even": "assert case % 2 == 0, f'odd: {case}'", "other": "pass"}
    found = _found(certify(bodies, head=_CASES))
    assert found == {
        "toy.even[mine-one]": (Status.FAIL, "odd: 1"),
        "toy.even[mine-two]": (Status.PASS, ""),
        "toy.other": (Status.PASS, ""),
    }
    assert list(_found(certify(bodies, head=_CASES, case="toy.even[mine-one]"))) == [
        "toy.even[mine-one]"
    ]
    assert len(_found(certify(bodies, head=_CASES, case="toy.even"))) == 2


def test_a_law_without_a_case_for_the_plugin_is_not_supported(certify) -> None:  # type: ignore[no-untyped-def]
    head = "\ndef cases(subject):\n    return {}\n"
    found = _found(certify({"even": "assert case % 2 == 0"}, head=head))
    [(status, text)] = found.values()
    assert status is Status.NOT_SUPPORTED
    assert text == "the plugin offers nothing that this law is about"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ("unverified('cannot be loaded')", Status.UNVERIFIED, "cannot be loaded"),
        ("raise KeyError('key')", Status.FAIL, "raised KeyError: 'key'"),
    ],
)
def test_a_plugin_that_cannot_be_asked_for_its_cases_breaks_no_other_law(  # type: ignore[no-untyped-def]
    body: str, status: Status, text: str, certify
) -> None:
    head = f"\ndef cases(subject):\n    {body}\n"
    found = _found(certify({"even": "assert case % 2 == 0", "other": "pass"}, head=head))
    assert found["toy.even[none]"] == (status, text)
    assert found["toy.other"] == (Status.PASS, "")


def test_laws_that_cannot_be_collected_end_the_run_with_pytests_words(certify) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RunError, match=r"the laws cannot be run(.|\n)*SyntaxError"):
        certify({"good": "pass"}, head="\ndef (:\n")


def test_a_list_that_names_no_law_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = replace(read_profile("core"), lists=(("x", "toy.absent\n"),))
    with pytest.raises(ProfileError, match=r"expected laws that it tries, got toy\.absent"):
        Run(Subject("conformance"), profile).certify((), lambda progress: None)


def test_what_happened_outlives_a_line_that_is_half_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    events = Events(path)
    events.collected([("toy.a", ""), ("toy.b", "one")])
    events.begin("toy.a", "")
    events.result(LawResult("toy.a", "", Status.PASS))
    events.begin("toy.b", "one")
    with path.open("a") as file:
        file.write('{"result": {"law": "toy.b"')
    progress = read_progress(path)
    assert progress.unfinished == ("toy.b", "one")
    assert [result.law for result in progress.results] == ["toy.a"]
    assert Events(path).begun == {"toy.a", "toy.b[one]"}
