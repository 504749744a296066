"""The text that the demo learns: bytes of real files, a tenth of them held out."""

from __future__ import annotations

import hashlib
import math
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

_LIMIT: Final = 4 << 20
_HELD_OUT: Final = 10
# Tests, other people's packages, and tables that nobody wrote.
_SKIPPED: Final = frozenset(
    {"__pycache__", "dist-packages", "encodings", "pydoc_data", "site-packages", "test", "tests"}
)


class TextError(ValueError):
    """The text cannot be learned from; says why and what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Bytes to learn and bytes to be judged by.

    Attributes:
        source: where it comes from, for a person.
        name: the same in short.
        files: how many files it was read from.
        train: uint8 [N].
        held_out: uint8 [M], about a tenth of the text; never trained on.
    """

    source: str
    name: str
    files: int
    train: Tensor
    held_out: Tensor

    def unigram_loss(self) -> float:
        """Return the held-out loss of knowing only how frequent each byte is, in nats per byte."""
        counts = torch.bincount(self.train.long(), minlength=256).double() + 1
        chance = counts / counts.sum()
        return float(-chance.log()[self.held_out.long()].mean())

    def batch(self, count: int, length: int, generator: torch.Generator) -> Tensor:
        """Return int64 [count, length + 1]: sequences from anywhere in the training text."""
        starts = torch.randint(len(self.train) - length, (count,), generator=generator)
        return torch.stack([self.train[s : s + length + 1] for s in starts.tolist()]).long()

    def judged(self, count: int, length: int) -> Tensor:
        """Return int64 [count or fewer, length + 1]: always the same held-out sequences."""
        room = len(self.held_out) - length - 1
        count = min(count, 1 + room // length)
        starts = [index * room // max(1, count - 1) for index in range(count)]
        return torch.stack([self.held_out[s : s + length + 1] for s in starts]).long()


def collect_text(path: Path | None, length: int) -> Text:
    """Read the text, in an order that depends on nothing but the files' names.

    Args:
        path: a file, or a folder whose text files are read; None: the standard library of the
            Python that runs, up to 4 MiB of it.
        length: how long a training sequence is; the held-out part must hold one.

    Raises:
        TextError: there is no such text, it is no text, or it is too short.
    """
    if path is None:
        folder = Path(sysconfig.get_path("stdlib"))
        source = f"the standard library of Python {sysconfig.get_python_version()}"
        documents = list(_documents(folder, ".py"))
        if not documents:
            raise TextError(f"{source} has no sources in {folder}; pass a text of your own")
    elif path.is_dir():
        source = str(path)
        documents = list(_documents(path, ""))
        if not documents:
            raise TextError(f"expected text files in {path}, found none that is UTF-8")
    elif path.is_file():
        source = str(path)
        content = _read(path, _LIMIT)
        if content is None:
            raise TextError(f"expected UTF-8 text, got a binary file: {path}")
        documents = [content]
    else:
        raise TextError(f"expected a file or a folder, got nothing at {path}")
    return _split(source, source if path is None else path.resolve().name, documents, length)


def _split(source: str, name: str, documents: list[bytes], length: int) -> Text:
    joined = b"\n".join(documents)
    needed = _HELD_OUT * (length + 2)
    if len(joined) < needed:
        raise TextError(
            f"expected at least {needed} bytes, got {len(joined)} in {source}; a sequence of "
            f"{length} must fit into the tenth that is held out"
        )
    everything = torch.frombuffer(bytearray(joined), dtype=torch.uint8)
    border = math.floor(len(joined) * (1 - 1 / _HELD_OUT))
    return Text(source, name, len(documents), everything[:border], everything[border:])


def _documents(folder: Path, suffix: str) -> Iterator[bytes]:
    """Yield files by the hash of their names: a fair sample first, and the same one everywhere."""
    names = [
        path.relative_to(folder)
        for path in folder.rglob(f"*{suffix}")
        if path.is_file() and not path.is_symlink()
    ]
    total = 0
    for name in sorted(names, key=_rank):
        if any(part in _SKIPPED or part.startswith(".") for part in name.parts):
            continue
        content = _read(folder / name, _LIMIT - total)
        if content:
            yield content
            total += len(content)
        if total >= _LIMIT:
            return


def _rank(name: Path) -> bytes:
    return hashlib.sha256(name.as_posix().encode()).digest()


def _read(path: Path, limit: int) -> bytes | None:
    """Return at most ``limit`` bytes of a text file; None for what is no text."""
    try:
        with path.open("rb") as file:
            content = file.read(limit)
    except OSError as error:
        raise TextError(f"cannot read {path}: {error.strerror}") from error
    if b"\0" in content:
        return None
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        # The limit may have cut the last character.
        if len(content) - error.start >= 4:
            return None
    return content
