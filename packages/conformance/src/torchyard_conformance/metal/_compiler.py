"""The C++ compiler that builds kernels here, found by trying it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from torchyard_conformance.metal._errors import CompilerMissingError

__all__ = ["Compiler", "compiler"]

_CANDIDATES: Final = ("g++", "clang++", "c++", "g++-14", "g++-13", "g++-12", "clang++-19")
_TRIAL: Final = """\
template <class T> T same(T value) { return __builtin_bit_cast(T, value); }
extern "C" int at(int* values, int i) { return same(values[i]) + i; }
int main() { return 0; }
"""
_REMEDY: Final = (
    "install g++ 11 or newer or clang++ 14 or newer with its sanitizers (Debian and Ubuntu: "
    "apt-get install g++)"
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler that was tried.

    Attributes:
        path: the command.
        version: its first line about itself, which is a part of every key of the cache.
        has_address_sanitizer: whether a program with AddressSanitizer builds and runs.
        symbolizer: the command that finds lines of addresses; empty where none is.
    """

    path: str
    version: str
    has_address_sanitizer: bool
    symbolizer: str


def compiler() -> Compiler:
    """Return the first compiler of the path that builds with the callbacks of -fsanitize=thread.

    Raises:
        CompilerMissingError: none does; the message has what each said.
    """
    return _compiler(os.pathsep.join(os.get_exec_path()))


@cache
def _compiler(path: str) -> Compiler:
    refusals = []
    for candidate in _CANDIDATES:
        command = shutil.which(candidate, path=path)
        if command is None:
            refusals.append(f"{candidate}: not on the path")
            continue
        refusal = _refusal(command, "thread")
        if refusal:
            refusals.append(f"{candidate}: {refusal}")
            continue
        version = _output([command, "--version"]).splitlines()[0]
        symbolizer = shutil.which("addr2line", path=path) or shutil.which(
            "llvm-addr2line", path=path
        )
        return Compiler(command, version, not _refusal(command, "address"), symbolizer or "")
    raise CompilerMissingError(
        f"metal.run: no C++ compiler builds kernels here ({'; '.join(refusals)}); {_REMEDY}"
    )


def _refusal(command: str, sanitizer: str) -> str:
    """Return why a compiler does not build, or what it built does not run; empty where it does."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "trial.cc"), Path(folder, "trial")
        source.write_text(_TRIAL, encoding="utf-8")
        words = [command, "-std=c++17", f"-fsanitize={sanitizer},undefined", "-c", str(source)]
        # Of threads only the callbacks are used, which the runtime here defines.
        if sanitizer == "address":
            words = [command, "-std=c++17", "-fsanitize=address", str(source)]
        done = subprocess.run(
            [*words, "-o", str(program)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["failed without a message"])[0]
        if sanitizer == "address":
            done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
            return f"a program of it ends with status {done.returncode}" if done.returncode else ""
    return ""


def _output(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
