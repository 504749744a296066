"""Where bundles are: a file, a folder, a registry of OCI, or what fsspec reaches."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final

from torchyard import arguments
from torchyard.evidence.files import read_file
from torchyard_cache._errors import BundleError, CacheError
from torchyard_cache.artifacts._registries import SCHEME, pull_bundle, push_bundle

__all__ = ["MOST_BYTES", "read_bundle", "replace_file", "write_bundle"]

# A bundle is read whole.
MOST_BYTES: Final = 8 << 30
# Of a bundle that is named by its folder.
_NAME: Final = "artifacts.bundle"


def read_bundle(of: str, where: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return a bundle's bytes, at most so many.

    Raises:
        BundleError: there is none, or it is larger.
        CacheError: fsspec or oras is needed and absent.
    """
    if _is_in_registry(where):
        try:
            return pull_bundle(str(where), most)
        except CacheError:
            raise
        except Exception as error:
            raise BundleError(f"{of}: path: {where} cannot be read: {error}") from error
    if _is_url(where):
        filesystem, path = _remote(str(where))
        try:
            with filesystem.open(path, "rb") as opened:
                data: bytes = opened.read(most + 1)
        except OSError as error:
            raise BundleError(f"{of}: path: {where} cannot be read: {error}") from error
        if len(data) > most:
            raise BundleError(f"{of}: path: {where}: expected at most {most} bytes, got more")
        return data
    file = _file(of, where)
    try:
        return read_file(file, most)
    except FileNotFoundError as error:
        raise BundleError(f"{of}: path: expected a bundle, found no file {file}") from error
    except (OSError, ValueError) as error:
        raise BundleError(f"{of}: path: {error}") from error


def write_bundle(of: str, where: str | os.PathLike[str], data: bytes) -> None:
    """Write a bundle: whoever reads finds the old one or the new one, whole.

    Raises:
        BundleError: it cannot be written.
    """
    if _is_in_registry(where):
        try:
            push_bundle(str(where), data)
        except CacheError:
            raise
        except Exception as error:
            raise BundleError(f"{of}: path: {where} cannot be written: {error}") from error
        return
    if _is_url(where):
        filesystem, path = _remote(str(where))
        try:
            # Object stores show an object when it is complete.
            filesystem.pipe_file(path, data)
        except (OSError, NotImplementedError) as error:
            raise BundleError(f"{of}: path: {where} cannot be written: {error}") from error
        return
    file = _file(of, where)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, data)
    except OSError as error:
        raise BundleError(f"{of}: path: {file} cannot be written: {error}") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file by another name, and rename it when it is on the disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _file(of: str, where: str | os.PathLike[str]) -> Path:
    path = arguments.path(of, "path", where)
    return path / _NAME if path.is_dir() else path


def _is_in_registry(where: object) -> bool:
    return isinstance(where, str) and where.startswith(SCHEME)


def _is_url(where: object) -> bool:
    return isinstance(where, str) and "://" in where


def _remote(where: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise CacheError(
            f"{where}: a store by URL needs fsspec: pip install 'torchyard-cache[stores]'"
        ) from error
    try:
        filesystem, path = fsspec.core.url_to_fs(where)
    except (ValueError, ImportError) as error:
        raise CacheError(f"{where}: fsspec cannot open it: {error}") from error
    return filesystem, path
