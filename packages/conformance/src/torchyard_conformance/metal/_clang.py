"""Clang, whose front end checks sources, found by trying it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from torchyard_conformance.metal._errors import CompilationError, CompilerMissingError

__all__ = ["Clang", "clang"]

_PRELUDE: Final = Path(__file__).with_name("opencl")
_CANDIDATES: Final = ("clang", *(f"clang-{version}" for version in range(26, 17, -1)))
_FEATURES: Final = (
    # Without it Clang's own assignments of structures do not compile.
    "+__opencl_c_generic_address_space",
    "-__opencl_c_device_enqueue",
    "-cl_khr_fp64",
    "-__opencl_c_fp64",
    "-__opencl_c_program_scope_global_variables",
)
_LANGUAGE: Final = (
    *("-x", "clcpp", "-cl-std=CLC++2021", "-nostdinc", "-cl-no-stdinc", "-nogpulib"),
    *("-Wall", "-Wno-unused", "-Wno-unknown-attributes", "-Wno-unknown-pragmas"),
    "-fno-color-diagnostics",
    # Metal has no double, so that a literal without a suffix is a float, and no variables of the
    # program but constants.
    *("-cl-single-precision-constant", "-Xclang", f"-cl-ext={','.join(_FEATURES)}"),
    *("-isystem", str(_PRELUDE)),
)
_CHECKING: Final = (
    # A target that has half and bfloat; no code is generated.
    *("--target=amdgcn-amd-amdhsa", "-include", "metal.h"),
    # Before version 4, Metal is C++14.
    "-Werror=pre-c++17-compat",
    *("-fsyntax-only", "-Xclang", "-ast-dump", "-"),
)
_COMPILING: Final = (
    *("--target=spirv64", "-include", "functions.h", "-O2", "-ffp-contract=off"),
    *("-mllvm", "--spirv-ext=+SPV_KHR_bfloat16", "-c", "-", "-o", "-"),
)
_TRIAL: Final = "kernel void trial(device bfloat4* x) { x[0] = x[1]; }\n"
_REMEDY: Final = (
    "pip install torchyard-conformance[metal], which brings one, or install clang 18 or newer"
)


@dataclass(frozen=True, slots=True)
class Clang:
    """A Clang that was tried.

    Attributes:
        command: how it is called.
        version: for example 22.1.8.
    """

    command: tuple[str, ...]
    version: str

    def parse(self, text: str) -> tuple[str, str]:
        """Return what it says about a text in C++ for OpenCL, and the text's syntax tree."""
        done = _called(self.command, _CHECKING, text)
        return done.stderr.decode(), done.stdout.decode()

    def compiled(self, text: str) -> bytes:
        """Return the SPIR-V of a text in C++ for OpenCL.

        Raises:
            CompilationError: it does not compile.
        """
        done = _called(self.command, _COMPILING, text)
        if done.returncode:
            lines = [line for line in done.stderr.decode().splitlines() if "error:" in line]
            said = "\n".join(lines[:10]) or "failed without a message"
            raise CompilationError(
                f"metal: source: Clang {self.version} makes no SPIR-V of it:\n{said}"
            )
        return done.stdout


def clang() -> Clang:
    """Return the first Clang, of the path or of the package ziglang, that takes the prelude.

    Raises:
        CompilerMissingError: none does; the message has what each said.
    """
    return _clang(os.pathsep.join(os.get_exec_path()))


@cache
def _clang(path: str) -> Clang:
    commands: list[tuple[str, ...]]
    commands = [(found,) for name in _CANDIDATES if (found := shutil.which(name, path=path))]
    if importlib.util.find_spec("ziglang") is not None:
        commands.append((sys.executable, "-m", "ziglang", "clang"))
    refusals = []
    for command in commands:
        done = _called(command, _CHECKING, _TRIAL)
        if done.returncode == 0:
            said = subprocess.run(
                [*command, "--version"], capture_output=True, text=True, check=True
            )
            version = re.search(r"version (\S+)", said.stdout)
            return Clang(command, version[1] if version else "of no known version")
        lines = [line for line in done.stderr.decode().splitlines() if "error:" in line]
        refusals.append(f"{' '.join(command)}: {(lines or ['failed without a message'])[0]}")
    tried = "; ".join(refusals) or "none is on the path"
    raise CompilerMissingError(f"metal.check: no Clang checks sources here ({tried}); {_REMEDY}")


def _called(
    command: tuple[str, ...], flags: tuple[str, ...], text: str
) -> subprocess.CompletedProcess[bytes]:
    words = [*command, *_LANGUAGE, *flags]
    return subprocess.run(words, input=text.encode(), capture_output=True, check=False)
