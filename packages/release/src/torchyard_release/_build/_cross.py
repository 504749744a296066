"""Wheels for other platforms, compiled here by the compiler of the package `ziglang`.

It brings the headers and libraries of every platform: no container and no second machine is needed,
and a version of glibc is asked for as an architecture is.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torchyard_release._build._steps import Steps
from torchyard_release._declaration._platform import Platform
from torchyard_release._errors import ReleaseError

__all__ = ["cross_build"]

_CROSS: Final = Path(__file__).parent / "cross"
_NEEDED: Final = ("ziglang", "abi3info", "wheel")


def cross_build(
    steps: Steps, builder: Sequence[str], platform: Platform, sdist: Path, scratch: Path, out: Path
) -> None:
    """Build the wheel of another platform out of an sdist.

    Args:
        steps: of the package.
        builder: the module that builds, and its options.
        platform: what to compile for.
        sdist: the sources.
        scratch: a folder of the round; its compiler's caches are made once for all packages.
        out: the folder for the wheel.

    Raises:
        ReleaseError: the compiler is not installed.
        BuildError: building failed.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise ReleaseError(
            f"{steps.package}: a wheel for {platform.tag} is compiled by ziglang; not installed: "
            f"{', '.join(missing)}",
            "pip install 'torchyard-release[cross]'",
        )
    place = scratch / steps.package / platform.tag
    place.mkdir(parents=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "sdist", filter="data")
    (unpacked,) = (place / "sdist").iterdir()
    compiler = str(scratch / "compiler")
    environ = {
        "CMAKE_TOOLCHAIN_FILE": str(_CROSS / "zig.cmake"),
        # A launcher knows the compilers that it was written for.
        "CMAKE_C_COMPILER_LAUNCHER": "",
        "CMAKE_CXX_COMPILER_LAUNCHER": "",
        "TORCHYARD_ZIG_PYTHON": sys.executable,
        "TORCHYARD_ZIG_TARGET": platform.target,
        "ZIG_GLOBAL_CACHE_DIR": compiler,
        "ZIG_LOCAL_CACHE_DIR": compiler,
    }
    if platform.windows:
        environ["TORCHYARD_WINDOWS_PYTHON"] = str(_windows_python(place / "python", platform))
    words = ("--wheel", "--outdir", str(place / "out"), str(unpacked))
    steps.run(*builder, *words, environ=environ)
    for wheel in (place / "out").iterdir():
        # Builders name the platform that they run on.
        steps.run("wheel", "tags", "--remove", "--platform-tag", platform.tag, str(wheel))
    for wheel in (place / "out").iterdir():
        shutil.copyfile(wheel, out / wheel.name)
    shutil.rmtree(place)


def _windows_python(folder: Path, platform: Platform) -> Path:
    """Make what extension modules of the stable ABI are compiled and linked with on Windows.

    The headers are this Python's, with a configuration of Windows; the library names what
    ``python3.dll`` has.
    """
    from abi3info import DATAS, FUNCTIONS

    include = folder / "include"
    shutil.copytree(sysconfig.get_path("include"), include)
    (include / "pyconfig.h").unlink()
    shutil.copyfile(_CROSS / "windows_pyconfig.h", include / "pyconfig.h")
    here = sys.version_info[:2]
    lines = ["LIBRARY python3.dll", "EXPORTS"]
    for symbols, kind in ((FUNCTIONS, ""), (DATAS, " DATA")):
        for symbol, entry in symbols.items():
            if (entry.added.major, entry.added.minor) <= here:
                lines.append(f"  {symbol.name}{kind}")
    definition = folder / "python3.def"
    definition.write_text("\n".join([*lines[:2], *sorted(lines[2:]), ""]), encoding="utf-8")
    machine = {"x86_64": "i386:x86-64", "aarch64": "arm64"}[platform.target.partition("-")[0]]
    words = ["dlltool", "-d", str(definition), "-l", str(folder / "python3.lib"), "-m", machine]
    subprocess.run([sys.executable, "-m", "ziglang", *words], check=True)
    # CMake looks for it to know that the library is no static one, which would need what this
    # machine's Python is linked with. Nothing reads it.
    (folder / "python3.dll").touch()
    return folder
