"""A run ends with a result for every case, whatever the plugin does to the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from torchyard_conformance import LawResult, Report, Status, Subject, read_profile
from torchyard_conformance._law import Law
from torchyard_conformance._profile import ProfileError
from torchyard_conformance._runs import _run as run_module
from torchyard_conformance._runs import _share as share_module
from torchyard_conformance._runs._events import Events, Progress, read_progress
from torchyard_conformance._runs._run import Run
from torchyard_conformance._runs._share import RunError

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
    monkeypatch.setattr(share_module, "_LAWS", str(folder))

    def certified(
        bodies: dict[str, str],
        *,
        case: str = "",
        head: str = "",
        jobs: int = 1,
        watch: Callable[[Progress], None] | None = None,
    ) -> Report:
        text = _HEAD + head
        for name, body in bodies.items():
            lines = "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())
            text += f'\n\n@law("toy.{name}", profiles=("core",)'
            text += ", alone=True" if name.startswith("alone") else ""
            text += ", cases=cases)\n" if "case" in body else ")\n"
            text += f"def test_{name}(subject, record{', case' if 'case' in body else ''}):\n"
            text += f"    {_DOC}\n{lines}\n"
        (folder / "test_toy.py").write_text(text)
        laws = tuple(Law(f"toy.{name}", "", ("core",), "") for name in bodies)
        monkeypatch.setattr(run_module, "all_laws", lambda: laws)
        listed = (("toy.txt", "".join(f"toy.{name}\n" for name in bodies)),)
        profile = replace(read_profile("core"), lists=listed)
        return Run(Subject("conformance"), profile, case=case, jobs=jobs).certify(
            (), watch or _watched.append
        )

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


_MANY = "\ndef cases(subject):\n    return {f'n{number}': number for number in range(12)}\n"


@pytest.mark.sweep
def test_several_processes_try_each_case_once_and_what_measures_comes_last_and_alone(  # type: ignore[no-untyped-def]
    certify, tmp_path: Path
) -> None:
    log = tmp_path / "order"
    bodies = {
        "cased": "note(case)\ntime.sleep(0.3)",
        "crashes": "os.kill(os.getpid(), signal.SIGSEGV)",
        "breaks": "violated('expected 1, got 2')",
        "alone": "note('alone')",
    }
    head = f"""
def note(what):
    with open({str(log)!r}, "a") as file:
        file.write(f"{{os.getpid()}} {{what}}\\n")
"""
    report = certify(bodies, head=_MANY + head, jobs=3)
    names = [f"toy.cased[n{number}]" for number in range(12)]
    found = _found(report)
    assert {name for name, (status, _) in found.items() if status is Status.PASS} == {
        *names,
        "toy.alone",
    }
    assert found["toy.breaks"] == (Status.FAIL, "expected 1, got 2")
    assert signal.Signals.SIGSEGV.name in found["toy.crashes"][1]
    lines = [line.split() for line in log.read_text().splitlines()]
    assert sorted(int(word) for _, word in lines[:-1]) == list(range(12))
    processes = {process for process, _ in lines[:-1]}
    assert len(processes) >= 3
    assert lines[-1][1] == "alone"
    assert lines[-1][0] not in processes
    last = certify.watched[-1]
    assert len(last.results) == len(last.collected) == len(report.results) == 15


def test_one_job_and_several_report_the_same(certify) -> None:  # type: ignore[no-untyped-def]
    bodies = {"cased": "assert case != 5, 'five'", "alone": "pass", "breaks": "violated('no')"}
    once, several = (certify(bodies, head=_MANY, jobs=jobs) for jobs in (1, 2))
    assert _found(once) == _found(several)
    assert once.reasons == several.reasons


def test_an_interrupt_ends_every_process(certify, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    begun = tmp_path / "process"

    def interrupt(progress: Progress) -> None:
        if progress.results and begun.exists():
            raise KeyboardInterrupt

    sleep = f"open({str(begun)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    wait = f"while not os.path.exists({str(begun)!r}): time.sleep(0.1)\ntime.sleep(0.5)"
    with pytest.raises(KeyboardInterrupt):
        certify({"sleeps": sleep, "waits": wait}, jobs=2, watch=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


def test_a_project_around_the_environment_takes_no_part(certify, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "conftest.py").write_text("import of_no_certificate\n")
    assert _found(certify({"passes": "pass"}))["toy.passes"][0] is Status.PASS


def test_what_hangs_is_ended_and_fails(certify, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(share_module, "_CASE_SECONDS", 3.0)
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
