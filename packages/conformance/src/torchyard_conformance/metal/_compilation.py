"""Programs built from kernels, kept by the hash of all that they are built from."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import platformdirs

from torchyard_conformance.metal._compiler import Compiler, compiler
from torchyard_conformance.metal._errors import CompilationError
from torchyard_conformance.metal._source._kernels import Kernel
from torchyard_conformance.metal._source._translation import translate

__all__ = ["ACCESSES", "ADDRESS", "Program", "build"]

# The two ways to build: every access is announced to the runtime, or AddressSanitizer watches.
ACCESSES: Final = "accesses"
ADDRESS: Final = "address"
_SANITIZERS: Final = {ACCESSES: "thread", ADDRESS: "address"}
_UNDEFINED: Final = (
    "alignment,bool,bounds,integer-divide-by-zero,null,pointer-overflow,return,"
    "signed-integer-overflow,unreachable,vla-bound"
)
_NATIVE: Final = Path(__file__).with_name("native")
# Programs that are kept; the ones that were used longest ago go first.
_MOST_KEPT: Final = 400
_KERNEL_FLAGS: Final = (
    *("-std=c++17", "-O1", "-g", "-w", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing"),
    *("-ffp-contract=off", f"-fsanitize={_UNDEFINED}", f"-I{_NATIVE / 'shim'}"),
)
_RUNTIME_FLAGS: Final = ("-std=c++17", "-O2")


@dataclass(frozen=True, slots=True)
class Program:
    """A built program: its kernels, and its file for each way of building."""

    kernels: dict[str, Kernel]
    paths: dict[str, Path]


def build(source: str, ways: tuple[str, ...]) -> Program:
    """Build a source, or find what was built before.

    Raises:
        CompilationError: the compiler refuses it.
        CompilerMissingError: there is no compiler.
        UnsupportedSourceError: the shim lacks a part of Metal that it uses.
    """
    text, kernels = _translated(source)
    used = compiler()
    with ThreadPoolExecutor(len(ways)) as pool:
        paths = list(pool.map(lambda way: _program(text, way, used), ways))
    return Program(kernels, dict(zip(ways, paths, strict=True)))


# Passes of one computation are kernels of one source.
_translated = lru_cache(maxsize=16)(translate)


def _cache() -> Path:
    folder = platformdirs.user_cache_path("torchyard") / "metal"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _program(text: str, way: str, used: Compiler) -> Path:
    key = _key(text, way, used.version, *map(_content, sorted(_NATIVE.rglob("*.*"))))
    path = _cache() / f"{key}.program"
    with suppress(FileNotFoundError):
        os.utime(path)
        return path

    def compile_and_link(made: Path) -> None:
        source, compiled = made.with_suffix(".cc"), made.with_suffix(".o")
        source.write_text(text, encoding="utf-8")
        try:
            sanitizer = f"-fsanitize={_SANITIZERS[way]}"
            _call(used, *_KERNEL_FLAGS, sanitizer, "-c", str(source), "-o", str(compiled))
            linked = ("-fsanitize=address",) if way == ADDRESS else ()
            runtime = _runtime(way, used)
            _call(used, *linked, str(compiled), str(runtime), "-ldl", "-lm", "-o", str(made))
        finally:
            source.unlink()
            compiled.unlink(missing_ok=True)

    _make(path, compile_and_link)
    _forget_old()
    return path


@cache
def _runtime(way: str, used: Compiler) -> Path:
    """Return the runtime's object file, which is the same for all kernels."""
    define = f"-DTORCHYARD_ADDRESS={int(way == ADDRESS)}"
    key = _key(define, used.version, *map(_content, sorted(_NATIVE.rglob("*.*"))))
    path = _cache() / f"runtime-{key}.o"
    if not path.is_file():
        # Together: each alone would read the C++ library's headers again.
        sources = sorted((_NATIVE / "runtime").rglob("*.cc"))
        text = "".join(f'#include "{source}"\n' for source in sources)

        def compile_all(made: Path) -> None:
            source = made.with_suffix(".cc")
            source.write_text(text, encoding="utf-8")
            _call(used, *_RUNTIME_FLAGS, define, "-c", str(source), "-o", str(made))

        _make(path, compile_all)
    return path


def _make(path: Path, create: Callable[[Path], None]) -> None:
    """Create a file where no other process sees it before it is whole."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder, path.name)
        create(made)
        made.replace(path)


def _call(used: Compiler, *words: str) -> None:
    done = subprocess.run([used.path, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error:" in line] or [done.stderr]
        raise CompilationError("metal.run: source: does not compile: " + "\n".join(lines[:10]))


def _forget_old() -> None:
    used = {}
    for path in _cache().glob("*.program"):
        # Another process may have removed it since it was listed.
        with suppress(FileNotFoundError):
            used[path] = path.stat().st_mtime
    for path in sorted(used, key=used.__getitem__)[:-_MOST_KEPT]:
        path.unlink(missing_ok=True)


@cache
def _content(path: Path) -> str:
    return f"{path.name}\n{path.read_text(encoding='utf-8')}"


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(_flat(parts)).encode()).hexdigest()[:32]


def _flat(parts: Iterable[str]) -> Iterable[str]:
    yield from (*_KERNEL_FLAGS[:-1], *_RUNTIME_FLAGS)
    yield from parts
