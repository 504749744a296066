"""Run PyTorch's tests of its example device on another one: a process for each file."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from torchyard_conformance._subjects._fresh import run_fresh
from torchyard_conformance._torch_tests._porting import needs_example, ported

__all__ = ["Found", "TorchTestsError", "read_reasons", "run_torch_tests"]

# Seconds for a file, after which its process and what that started are ended.
_LIMIT: Final = 300
_ENDS: Final = {"failure": "failed", "error": "failed", "skipped": "skipped"}
_SHOWN: Final = 300


class TorchTestsError(ValueError):
    """The folder has no tests, or the file of reasons is none."""


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a test.

    Attributes:
        test: ``file::class::name``; of a file that was not run, or did not end, its name.
        outcome: ``passed``, ``failed``, ``skipped`` or ``not run``.
        text: the first words of what it said; empty where it passed.
    """

    test: str
    outcome: str
    text: str


def run_torch_tests(
    device: str,
    folder: Path,
    *,
    progress: Callable[[str], None] = lambda name: None,
) -> list[Found]:
    """Run the tests of a folder of PyTorch's sources on a device.

    Args:
        device: its type, such as that of a plugin: PyTorch's example device is replaced by it.
        folder: ``test/cpp_extensions/open_registration_extension/torch_openreg/tests`` of a
            checkout of PyTorch, of the release that is installed.
        progress: receives the name of each file.

    Raises:
        TorchTestsError: there is no test in the folder.
    """
    paths = sorted(folder.glob("test_*.py"))
    if not paths:
        raise TorchTestsError(
            f"torch-tests: folder: expected test_*.py of a checkout of PyTorch, as in "
            f"test/cpp_extensions/open_registration_extension/torch_openreg/tests, got {folder} "
            "without one"
        )
    found = []
    with tempfile.TemporaryDirectory(prefix="torchyard-torch-tests-") as scratch:
        for path in paths:
            progress(path.name)
            text = path.read_text(encoding="utf-8")
            try:
                needs = needs_example(text)
            except SyntaxError as error:
                found.append(Found(path.name, "not run", f"no Python: {error}"))
                continue
            if needs:
                found.append(Found(path.name, "not run", "it imports PyTorch's example itself"))
                continue
            copy = Path(scratch, path.name)
            copy.write_text(ported(text, device), encoding="utf-8")
            found += _run(copy, device)
    return found


def read_reasons(path: Path) -> dict[str, str]:
    """Return why tests fail on a device, by test: the table ``[reasons]`` of a TOML file.

    Raises:
        TorchTestsError: names the file, what was expected and what came.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TorchTestsError(f"{path.name}: expected a TOML file, got: {error}") from error
    rows = data.get("reasons")
    if data.keys() != {"reasons"} or not isinstance(rows, Mapping):
        raise TorchTestsError(
            f"{path.name}: expected the table [reasons] and nothing else, got {sorted(data)}"
        )
    for test, reason in rows.items():
        if not isinstance(reason, str) or not reason.strip():
            raise TorchTestsError(f"{path.name}: {test}: expected a reason, got {reason!r}")
    return dict(rows)


def _run(path: Path, device: str) -> list[Found]:
    report = path.with_suffix(".xml")
    words = ("-q", "-p", "no:cacheprovider", f"--rootdir={path.parent}", f"--junitxml={report}")
    done = run_fresh(
        ["-m", "pytest", *words, str(path)],
        settings={"PYTEST_ADDOPTS": None, "TORCHYARD_PRIVATEUSE1": device},
        timeout=_LIMIT,
    )
    if done.returncode is None:
        return [Found(path.name, "failed", f"still running after {_LIMIT} s")]
    if not report.exists():
        last = " ".join(f"{done.stdout} {done.stderr}".split())[-_SHOWN:]
        return [Found(path.name, "failed", f"ended with status {done.returncode}: {last}")]
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return [_found(path.name, case) for case in cases]


def _found(file: str, case: ElementTree.Element) -> Found:
    owner = (case.get("classname") or "").rpartition(".")[2]
    # A file that cannot be imported has no owner, and is the case itself.
    name = f"{file}::{owner}::{case.get('name')}" if owner not in {"", Path(file).stem} else file
    for child in case:
        if child.tag in _ENDS:
            said = child.get("message") or child.text or ""
            text = " ".join(said.partition("To execute this test")[0].split())[:_SHOWN]
            if name == file and child.text:
                text = " ".join(child.text.split())[-_SHOWN:]
            return Found(name, _ENDS[child.tag], text)
    return Found(name, "passed", "")
