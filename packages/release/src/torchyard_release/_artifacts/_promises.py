"""What a wheel's tag promises of its libraries: a platform, a version of glibc, the stable ABI.

The tools of the field judge it, `auditwheel` and `abi3audit`, each as a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from packaging.utils import parse_wheel_filename

from torchyard import child_environ
from torchyard_release._artifacts._findings import Fault, Finding
from torchyard_release._declaration._platform import platform_of
from torchyard_release._errors import ReleaseError

__all__ = ["judge_promises", "needed_glibc"]

_BRANCH: Final = "fix it on the branch and cut another candidate"
_SECONDS: Final = 600


def judge_promises(wheel: Path) -> Iterator[Finding]:
    """Find what a wheel with libraries needs beyond what its tag says.

    A wheel of this machine alone (``linux_x86_64``) promises nothing of glibc.

    Raises:
        ReleaseError: a tool that judges is not installed.
    """
    tags = parse_wheel_filename(wheel.name)[3]
    for tag in sorted(tags, key=str):
        platform = platform_of(str(tag))
        if platform is not None and platform.glibc:
            yield from _judge_glibc(wheel, platform.tag)
        if tag.abi == "abi3":
            yield from _judge_abi(wheel)


def needed_glibc(wheel: Path) -> str:
    """Return the oldest platform that a wheel for Linux runs on, such as ``manylinux_2_17_x86_64``.

    Empty for wheels of other systems, and where auditwheel refuses the wheel.
    """
    found = _parsed(_run("auditwheel", "show", "--json", str(wheel)).stdout)
    return str(found.get("overall_tag", "")) if isinstance(found, dict) else ""


def _judge_glibc(wheel: Path, tag: str) -> Iterator[Finding]:
    said = _run("auditwheel", "show", "--json", str(wheel))
    found = _parsed(said.stdout)
    if not isinstance(found, dict) or "overall_tag" not in found:
        words = found["error"].partition("\n")[0] if isinstance(found, dict) else _words(said)
        text = f"expected a wheel for {tag}, got what auditwheel refuses: {words}"
        yield Finding(wheel.name, Fault.PLATFORM, text, _BRANCH)
        return
    got = str(found["overall_tag"])
    if not _within(got, tag):
        text = f"expected what runs on {tag}, got what needs {got} (auditwheel)"
        remedy = f"compile it for an older glibc, or correct `wheels` in train.toml; {_BRANCH}"
        yield Finding(wheel.name, Fault.PLATFORM, text, remedy)


def _within(got: str, tag: str) -> bool:
    """Whether what auditwheel found is as old as, or older than, what the tag promises."""
    policies = [found.split("_", 3) for found in (got, tag)]
    if any(len(found) != 4 for found in policies):
        return False
    (kind, *needs, machine), (promised, *version, processor) = policies
    return (kind, machine) == (promised, processor) and tuple(map(int, needs)) <= tuple(
        map(int, version)
    )


def _judge_abi(wheel: Path) -> Iterator[Finding]:
    said = _run("abi3audit", "--report", "--strict", str(wheel))
    report = _parsed(said.stdout)
    specs = report.get("specs", {}) if isinstance(report, dict) else {}
    results = [module for spec in specs.values() for module in spec.get("wheel", ())]
    for module in results:
        result = module["result"]
        if result["is_abi3"] and result["is_abi3_baseline_compatible"]:
            continue
        symbols = [*result["non_abi3_symbols"], *result["future_abi3_objects"]]
        text = (
            f"{module['name']}: expected what Python {result['baseline']} has in its stable ABI, "
            f"got {', '.join(map(str, symbols[:5])) or result['computed']} (abi3audit)"
        )
        yield Finding(wheel.name, Fault.ABI, text, _BRANCH)
    if not results:
        text = f"expected an extension module of the stable ABI, got none: {_words(said)}"
        yield Finding(wheel.name, Fault.ABI, text, f"correct `wheels` in train.toml; {_BRANCH}")


def _run(tool: str, *words: str) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec(tool) is None:
        raise ReleaseError(
            f"{tool}, which judges wheels with libraries, is not installed",
            "pip install 'torchyard-release[cross]'",
        )
    return subprocess.run(
        [sys.executable, "-m", tool, *words],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env=child_environ({"NO_COLOR": "1", "FORCE_COLOR": None}),
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _words(said: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of what a tool said."""
    lines = [line.strip() for line in f"{said.stdout}\n{said.stderr}".splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"
