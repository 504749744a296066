"""Kinds of artifacts that are files below a folder, beside torch's own kinds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import platformdirs

from torchyard import arguments, child_environ
from torchyard_cache import torch_compat
from torchyard_cache._errors import BundleError
from torchyard_cache.artifacts._bundle import check_key
from torchyard_cache.artifacts._stores import replace_file

__all__ = ["LIBRARIES", "TORCH", "folder_kinds", "put_file", "register", "saved_files"]

# As torch has them. Code that torch runs; it unpickles them.
TORCH: Final = frozenset({"aot_autograd", "autotune", "inductor", "pgo", "precompile"})
# The C++ that Inductor writes, compiled. torch's own bundles have its source alone, so that a
# process that finds a graph there compiles C++ again.
LIBRARIES: Final = "cpp"
# Libraries by which torch tries the CPU's instruction sets are smaller than any of a graph.
_TRIAL_BYTES: Final = 32 << 10
_REGISTERED: dict[str, Path] = {}
_MOST_BYTES: Final = 1 << 30


def register(kind: str, folder: str | os.PathLike[str]) -> None:
    """Add a kind of artifacts: every file below a folder is one, by its name there.

    Registered without this are ``triton``, Triton's compiled kernels, and ``tuned``, what
    torchyard's tuning measured.

    Args:
        kind: its name in bundles.
        folder: where its files are, and where those of a bundle go.

    Raises:
        TypeError, ValueError: an argument does not fit, or torch has a kind of that name.
    """
    kind = arguments.text("register", "kind", kind)
    check_key("register", kind)
    if kind in TORCH:
        raise arguments.wrong_value("register", "kind", "a kind that torch has not", kind)
    _REGISTERED[kind] = arguments.path("register", "folder", folder)


def folder_kinds() -> dict[str, Path]:
    """Return the kinds that are files, and their folders."""
    # Where Triton says that its kernels are.
    home = child_environ({}).get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    tuned = platformdirs.user_cache_path("torchyard")
    inductor = torch_compat.inductor_folder()
    return {"triton": Path(home), "tuned": tuned, LIBRARIES: inductor, **_REGISTERED}


def saved_files(kind: str, folder: Path) -> Iterator[tuple[str, bytes, float]]:
    """Yield (key, content, time of the last use) of a kind's files; links are left out.

    Of libraries those that this process has loaded, and those that tried instruction sets.
    """
    if not folder.is_dir():
        return
    paths = _libraries(folder) if kind == LIBRARIES else sorted(folder.rglob("*"))
    for path in paths:
        if path.is_symlink() or not path.is_file() or _is_passing(path):
            continue
        try:
            found = path.stat()
            content = path.read_bytes() if found.st_size <= _MOST_BYTES else None
        except FileNotFoundError:
            # Another process has removed it since it was listed.
            continue
        if content is not None:
            key = path.relative_to(folder).as_posix()
            yield key, content, max(found.st_mtime, found.st_atime)


def _libraries(folder: Path) -> list[Path]:
    maps = Path("/proc/self/maps")
    # Where the system lists no mapped files, all libraries of the folder are taken.
    mapped = maps.read_text(encoding="utf-8", errors="replace") if maps.exists() else None
    return [
        path
        for path in sorted(folder.glob("??/*.so"))
        if mapped is None or str(path) in mapped or path.stat().st_size <= _TRIAL_BYTES
    ]


def _is_passing(path: Path) -> bool:
    return path.suffix in (".lock", ".tmp") or path.name.startswith((".", "tmp."))


def put_file(kind: str, folder: Path, key: str, content: bytes) -> bool:
    """Write a verified artifact where its key says; return whether it was not there.

    Raises:
        BundleError: a folder on the way is a link.
    """
    path = folder.joinpath(*key.split("/"))
    inside = folder.resolve()
    if not path.parent.resolve().is_relative_to(inside):
        raise BundleError(f"bundle: {kind} {key}: a folder on the way leads out of {folder}")
    if path.exists() or path.is_symlink():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content)
    return True
