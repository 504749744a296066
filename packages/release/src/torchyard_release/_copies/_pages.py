"""Copies in pages: derived blocks, versions in install commands, tables of packages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from torchyard_release._copies._drift import Derived, Drift
from torchyard_release._declaration._calendar import later
from torchyard_release._declaration._train import Train

# The text between the two marks is derived, on one line or on many; in code they are a name.
_BLOCK: Final = re.compile(
    r"(?P<open>(?<!`)<!-- train: (?!end )(?P<kind>[a-z-]+) -->)"
    r"(?P<body>.*?)(?P<close><!-- train: end -->)",
    re.DOTALL,
)
_FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def derive_pages(root: Path, train: Train, files: Sequence[str]) -> Derived:
    """Compare the Markdown pages among some files with the declaration."""
    drifts: list[Drift] = []
    texts = {}
    seen = 0
    for path in files:
        if not path.endswith(".md"):
            continue
        text = (root / path).read_text(encoding="utf-8")
        page = _Page(path, train)
        derived = page.blocks(page.versions(text))
        drifts += page.drifts
        seen += page.seen
        if derived != text:
            texts[path] = derived
    for path in train.pages:
        seen += len(train.packages)
        drifts += _unlisted(root, path, train)
    return Derived(tuple(drifts), texts, seen)


class _Page:
    def __init__(self, path: str, train: Train) -> None:
        self._path = path
        self._train = train
        self.drifts: list[Drift] = []
        self.seen = 0

    def versions(self, text: str) -> str:
        """Compare ``name==version`` of our packages, wherever it is written."""
        names = "|".join(
            re.escape(package.name)
            for package in sorted(self._train.packages, key=lambda p: -len(p.name))
        )
        pinned = re.compile(
            rf"(?<![\w.-])(?P<name>{names})(?P<extras>\[[^\]]*\])?==(?P<v>\d[\w.]*)"
        )

        def derived(found: re.Match[str]) -> str:
            self.seen += 1
            declared = self._train.version_of(self._train.package(found["name"]))
            version = found["v"].rstrip(".")
            if version != declared:
                self.drifts.append(Drift(self._path, found["name"], version, declared))
            return found[0].replace(f"=={version}", f"=={declared}")

        return pinned.sub(derived, text)

    def blocks(self, text: str) -> str:
        """Compare the derived blocks; those shown as an example, in a fence, are none."""
        fences = [match.span() for match in _FENCE.finditer(text)]

        def derived(found: re.Match[str]) -> str:
            if any(start <= found.start() < end for start, end in fences):
                return found[0]
            self.seen += 1
            make = _KINDS.get(found["kind"])
            if make is None:
                kinds = ", ".join(sorted(_KINDS))
                self.drifts.append(
                    Drift(self._path, "block", found["kind"], f"one of {kinds}", "correct its name")
                )
                return found[0]
            body = make(self._train)
            if body != found["body"]:
                self.drifts.append(
                    Drift(self._path, f"block {found['kind']!r}", "another text", "what it derives")
                )
            return f"{found['open']}{body}{found['close']}"

        return _BLOCK.sub(derived, text)


def _unlisted(root: Path, path: str, train: Train) -> list[Drift]:
    """Find packages that a table of packages lacks, and rows about what is no package."""
    if not (root / path).is_file():
        return [Drift(path, "page", "no such file", "a page", "correct `pages` in train.toml")]
    # What is derived vouches for nothing that a person wrote.
    lines = _BLOCK.sub("", (root / path).read_text(encoding="utf-8")).splitlines()
    rows = [[cell.strip().strip("`") for cell in line.split("|")] for line in lines if "|" in line]
    drifts = []
    for package in train.packages:
        if not any({package.name, str(package.folder)} <= set(row) for row in rows):
            row = f"a row with {package.name} and {package.folder}"
            drifts.append(Drift(path, "table of packages", "none", row, "write the row"))
    return drifts


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _packages(train: Train) -> str:
    rows = [
        [
            f"`{package.folder}`",
            package.name,
            train.version_of(package),
            ", ".join(["sdist", *(f"`{tag}`" for tag in package.wheels)]),
            package.owner,
        ]
        for package in train.packages
    ]
    return _table(["folder", "distribution", "version", "artifacts", "owner"], rows)


def _compatibility(train: Train) -> str:
    rows = [
        [
            package.name,
            train.version_of(package),
            train.requires_python,
            f"`{package.torch}`" if package.torch else "not needed",
            ", ".join(package.hardware) or "any",
        ]
        for package in train.packages
    ]
    return _table(["distribution", "version", "Python", "torch", "verified on"], rows)


def _calendar(train: Train) -> str:
    departures = [train.departs]
    for _ in range(2):
        departures.append(later(departures[-1], train.months))
    series = [f"{train.version.major}.{train.version.minor + step}" for step in range(3)]
    rows = [
        [phase.name, *(phase.begins(day).isoformat() for day in departures), phase.what]
        for phase in train.phases
    ]
    return _table(["phase", *series, "what"], rows)


def _names(train: Train) -> str:
    return ", ".join(f"`{package.folder.name}`" for package in train.packages)


_KINDS: Final[dict[str, Callable[[Train], str]]] = {
    "calendar": _calendar,
    "compatibility": _compatibility,
    "names": _names,
    "packages": _packages,
}
