"""``python -m docs.site.stage FOLDER``: gather the sources of the site for Sphinx.

The Markdown of the repository is the source, at the places that it has there, so that its links
stay as they are. Added are tables of contents, which follow from the links of the four sections,
the reference of each package from its docstrings, the matrix of features, and pictures of the
benchmarks' runs.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docs.site.matrix import matrix_page
from docs.site.plots import plots_page

__all__ = ["stage"]

_ROOT: Final = Path(__file__).parents[2]
# Pages whose links are their children, in order.
_SECTIONS: Final = (
    *("tutorials", "how-to", "reference", "explanation"),
    *("decisions/README", "measurements/README"),
)
_LEFT_OUT: Final = re.compile(r"^changelog\.d/[^R]|^plugins/template/|/tests/")
_LINK: Final = re.compile(r"\]\(([^)#\s]+)")
_CODE: Final = re.compile(r"```.*?```", re.DOTALL)
_API: Final = "reference/api"


def stage(folder: Path) -> list[str]:
    """Write the sources to a new folder; return the pages, relative to it."""
    if folder.exists():
        shutil.rmtree(folder)
    pages = list(_pages())
    for page in pages:
        text = (_ROOT / page).read_text(encoding="utf-8")
        for linked in _linked(page, text):
            if linked not in pages:
                _copy(linked, folder)
        _write(folder / page, text)
    docs = folder / "docs"
    for name in _SECTIONS:
        children = [*_children(f"docs/{name}.md", pages)]
        if name == "reference":
            children += ["matrix", f"{_API}/index"]
        if name == "measurements/README":
            children += ["plots"]
        _append(docs / f"{name}.md", _contents(children))
    _append(docs / "index.md", _contents(["tutorials", "how-to", "reference", "explanation"]))
    _append(docs / "index.md", _contents(["/README", "packages", "/CONTRIBUTING", "/RELEASE"]))
    _write(docs / "packages.md", _packages(pages))
    _write(docs / "matrix.md", matrix_page())
    measurements = docs / "measurements"
    _write(measurements / "plots.md", plots_page(measurements / "plots"))
    _reference(docs / _API)
    return pages


def _pages() -> Iterator[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for page in listed.stdout.splitlines():
        if not _LEFT_OUT.search(page) and (_ROOT / page).is_file():
            yield page


def _linked(page: str, text: str) -> Iterator[str]:
    """Yield the files of the repository that a page links to."""
    for target in _LINK.findall(_CODE.sub("", text)):
        if "://" not in target and not target.startswith("mailto:"):
            path = os.path.normpath(Path(page).parent / target)
            if (_ROOT / path).is_file():
                yield path


def _children(section: str, pages: list[str]) -> Iterator[str]:
    text = (_ROOT / section).read_text(encoding="utf-8")
    seen = set()
    for path in _linked(section, text):
        if path in pages and path not in seen and path != section:
            seen.add(path)
            yield "/" + path.removesuffix(".md")


def _contents(children: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", "", *children, "```", ""])


def _declared() -> dict[str, dict[str, Any]]:
    """Return the packages of train.toml, by the names of their distributions."""
    train = tomllib.loads((_ROOT / "train.toml").read_text(encoding="utf-8"))
    packages: dict[str, dict[str, Any]] = train["packages"]
    return packages


def _packages(pages: list[str]) -> str:
    """Return the page of the packages: what each says of itself."""
    lines = ["# Packages", "", "What each package says of itself.", ""]
    children = []
    for name, package in _declared().items():
        page = f"/{package['folder']}/README"
        lines.append(f"- [{name}]({page}.md)")
        children.append(page)
    # Those of folders inside of packages, and of the fragments of release notes.
    more = [page for page in pages if page.endswith("README.md") and page != "README.md"]
    more = ["/" + page.removesuffix(".md") for page in more if not page.startswith("docs/")]
    children += [page for page in more if page not in children]
    return "\n".join(lines) + "\n" + _contents(children)


def _reference(folder: Path) -> None:
    """Write a page of each package's public names."""
    modules = {
        name: name.replace("-", "_")
        for name, package in _declared().items()
        if package["folder"].startswith("packages/")
    }
    lines = ["# Public names", "", "From the docstrings of each package.", ""]
    for name, module in modules.items():
        lines.append(f"- [{name}]({module}.md)")
        directive = [f".. automodule:: {module}", "   :members:", "   :imported-members:"]
        if others := ", ".join(_of_others(module)):
            directive.append(f"   :exclude-members: {others}")
        body = ["```{eval-rst}", *directive, "```"]
        _write(folder / f"{module}.md", "\n".join([f"# {module}", "", *body, ""]))
    _write(folder / "index.md", "\n".join(lines) + "\n" + _contents(list(modules.values())))


def _of_others(module: str) -> Iterator[str]:
    """Yield the public names that a package has from another one, whose page describes them."""
    package = importlib.import_module(module)
    for name in package.__all__:
        home = str(getattr(getattr(package, name), "__module__", module)).partition(".")[0]
        if home != module and home.startswith("torchyard"):
            yield name


def _copy(path: str, folder: Path) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_ROOT / path, folder / path)


def _append(path: Path, text: str) -> None:
    _write(path, path.read_text(encoding="utf-8") + text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    print(f"{len(stage(Path(sys.argv[1])))} pages")
