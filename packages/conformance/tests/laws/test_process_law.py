"""Whatever a plugin does to the process that certifies it, laws begin where nothing was done."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from packages.conformance.tests.mutants.distribution import Distribution, Environment
from torchyard import child_environ
from torchyard_conformance import Report, Status
from torchyard_conformance._subjects._fresh import Fresh, run_fresh, starter

_MANIFEST: Final = """
schema = 1
name = "touchy"
summary = "attention that changes what is not its own"
[requires]
torchyard = ">=0.1.0.dev0"
torch = ">=2.11"
[[implements]]
contract = "attention/1"
module = "torchyard_touchy.offer"
devices = ["cpu"]
"""
_OFFER: Final = """
import logging, os, signal, sys, warnings
{at_import}
from torchyard import Implementation, ReasonCode, Verdict, hookimpl

FAULTS = {{
    # name: (done by load, done by each call)
    "sound": ("", ""),
    "variable": ("os.environ['TOUCHY'] = '1'", ""),
    "filters": ("warnings.simplefilter('ignore')", ""),
    "dtype": ("torch.set_default_dtype(torch.float64)", ""),
    "deterministic": ("torch.use_deterministic_algorithms(True, warn_only=True)", ""),
    "path": ("sys.path.append('/nowhere')", ""),
    "signal": ("", "signal.signal(signal.SIGUSR1, signal.SIG_IGN)"),
    "mask": ("", "os.umask(0o077)"),
    "threads": ("", "torch.set_num_threads(torch.get_num_threads() + 1)"),
    "handler": ("", "logging.getLogger().addHandler(logging.NullHandler())"),
    "numbers": ("", "torch.rand(1)"),
    "each-call": ("", "warnings.filters.append(('ignore', None, Warning, None, 0))"),
}}


def supports(request, platform):
    plain = request.score == "none" and request.mask == "none" and not request.page_size
    if request.dtype != "float32" or not plain:
        return Verdict.no(ReasonCode.DTYPE, "plain float32 only", "take another")
    return Verdict.yes()


def made(name):
    loaded, called = FAULTS[name]

    def load():
        import torch
        from torchyard_attention.contract import AttentionResult

        names = {{"os": os, "torch": torch, "signal": signal, "sys": sys}}
        names |= {{"warnings": warnings, "logging": logging}}
        exec(loaded, names)

        def forward(call):
            exec(called, names)
            group = call.query.shape[1] // call.key.shape[1]
            key, value = (t.repeat_interleave(group, 1) for t in (call.key, call.value))
            s = (call.query @ key.mT) * call.scale
            lse = s.logsumexp(-1) if call.lse else None
            return AttentionResult(
                s.softmax(-1) @ value, lse, s.amax(-1) if call.max_scores else None
            )

        return forward

    return load


@hookimpl
def torchyard_implementations(contract):
    return [
        Implementation(
            contract=contract, name=f"touchy.{{name}}", supports=supports, load=made(name)
        )
        for name in FAULTS
    ]
"""
_LAW: Final = "truth.process-left-alone"
_REGISTRATION: Final = "registration.leaves-process-alone"


def _touchy(at_import: str = "") -> Distribution:
    files = {
        "torchyard_touchy/torchyard.toml": _MANIFEST,
        "torchyard_touchy/offer.py": _OFFER.format(at_import=at_import),
    }
    return Distribution("touchy", tuple(files.items()), ("torch>=2.11",))


def _certify(tmp_path: Path, *words: str, at_import: str = "") -> Report:
    environment = Environment.make(tmp_path / "venv", _touchy(at_import))
    return environment.certify("touchy", "--profile", "smoke", *words)[1]


@pytest.mark.sweep
def test_what_loading_or_calling_changes_is_found_for_each_implementation(tmp_path: Path) -> None:
    report = _certify(tmp_path, "--case", _LAW)
    found = {
        result.case.partition("@")[0].removeprefix("touchy."): (result.status, result.text)
        for result in report.results
    }
    assert found.pop("sound") == (Status.PASS, "")
    said = {
        "variable": "loading it changes the environment variable TOUCHY",
        "filters": "loading it changes warning filters",
        "dtype": "loading it changes torch's default dtype",
        "deterministic": "loading it changes torch's determinism",
        "path": "loading it changes sys.path",
        "signal": "calling it changes signal handlers",
        "mask": "calling it changes file mode mask: 0o22 -> 0o77",
        "threads": "calling it changes torch's threads",
        "handler": "calling it changes root logger",
        "numbers": "calling it changes torch's random state",
        "each-call": "calling it again changes warning filters",
    }
    assert found.keys() == said.keys()
    for name, words in said.items():
        status, text = found[name]
        assert (status, words in text) == (Status.FAIL, True), (name, text)


# The whole run, in which the laws on results import the plugin before this one is held.
@pytest.mark.sweep
@pytest.mark.parametrize(
    "at_import",
    [
        "os.environ['TOUCHY'] = '1'",
        "os.umask(0o077)",
        "os.chdir('/')",
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "os.nice(1)",
    ],
)
def test_a_full_run_finds_what_importing_it_changed_as_the_law_alone_does(
    tmp_path: Path, at_import: str
) -> None:
    report = _certify(tmp_path, at_import=at_import)
    assert report.laws()[_REGISTRATION] is Status.FAIL
    assert not report.certified


def test_a_fresh_interpreter_begins_as_the_certifying_process_did(tmp_path: Path) -> None:
    program = f"""
import json, os, signal, sys
from torchyard_conformance._subjects._fresh import run_fresh, starter
told = '''
import json, os, signal
mask = os.umask(0)
os.umask(mask)
print(json.dumps([os.environ.get("TOUCHY"), os.environ.get("PATH"), os.getcwd(), mask,
                  signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN, os.nice(0)]))
'''
starter()
before = run_fresh(["-c", told])
os.environ["TOUCHY"] = "1"
os.environ["PATH"] = "/nowhere"
os.umask(0o077)
os.chdir({str(tmp_path)!r})
os.nice(1)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
after = run_fresh(["-c", told])
sys.stdout.write(json.dumps([before.stdout, after.stdout, before.returncode]))
"""
    before, after, returncode = _said(program)
    assert returncode == 0
    assert json.loads(before)[0] is None
    assert before == after


def test_a_starter_that_was_ended_is_an_error_and_no_verdict() -> None:
    program = """
import json, sys
from torchyard_conformance._subjects._fresh import run_fresh, starter
starter()._process.kill()
starter()._process.wait()
try:
    run_fresh(["-c", ""])
except RuntimeError as error:
    sys.stdout.write(json.dumps(str(error)))
"""
    assert "the process that starts fresh interpreters has ended" in _said(program)


def _said(program: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=child_environ({}),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return json.loads(done.stdout)


def test_programs_of_several_threads_run_at_once_and_each_thread_gets_its_own_answer(
    tmp_path: Path,
) -> None:
    def run(number: int) -> Fresh:
        code = (
            "import pathlib, time\n"
            f"folder = pathlib.Path({str(tmp_path)!r})\n"
            f"(folder / '{number}').touch()\n"
            "end = time.monotonic() + 60\n"
            "while len(list(folder.iterdir())) < 4 and time.monotonic() < end: time.sleep(0.01)\n"
            f"print({number}, len(list(folder.iterdir())))\n"
        )
        return run_fresh(["-c", code])

    starter()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, range(4)))
    assert [fresh.stdout.split() for fresh in found] == [[str(n), "4"] for n in range(4)]
    assert [fresh.returncode for fresh in found] == [0] * 4
