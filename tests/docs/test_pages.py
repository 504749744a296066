"""Links resolve, generated pages are fresh, decisions are numbered, commands exist."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchyard
from tests.architecture.tree import ROOT, parsed
from tests.docs.pages import PAGES, anchors, links

_SESSIONS = re.compile(r'nox (?:-R )?-s ((?:[a-z][\w-]*(?:\([^)]*\))? ?)+|"[^"]+")')
_DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_resolve(page: Path) -> None:
    broken = []
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        pointed = (ROOT / page).parent / name if name else ROOT / page
        if not pointed.exists() or anchor not in {"", *anchors(pointed.resolve())}:
            broken.append(target)
    assert not broken


def test_the_start_page_leads_to_every_page() -> None:
    found, todo = set(), [Path("docs/index.md")]
    while todo:
        page = todo.pop()
        if page in found or page.suffix != ".md" or not (ROOT / page).is_file():
            continue
        found.add(page)
        targets = [target.partition("#")[0] for target in links(page) if ":" not in target]
        todo += [Path(os.path.normpath(page.parent / target)) for target in targets if target]
    pages = {page for page in PAGES if page.parts[0] == "docs"}
    assert pages
    assert not pages - found


def test_generated_pages_are_fresh() -> None:
    command = [sys.executable, "docs/generate.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr + "run: nox -s docs"


def test_every_hook_is_documented_with_its_exact_signature() -> None:
    tree = parsed(Path("packages/core/src/torchyard/hookspecs.py"))
    page = (ROOT / "docs" / "reference" / "hooks.md").read_text(encoding="utf-8")
    hooks = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("torchyard_")
    ]
    assert hooks
    for hook in hooks:
        assert hook.returns is not None
        written = f"## `{hook.name}({ast.unparse(hook.args)}) -> {ast.unparse(hook.returns)}`\n"
        assert written in page


def test_features_point_at_pages_that_exist() -> None:
    missing = {row.tracking for row in torchyard.features() if not (ROOT / row.tracking).is_file()}
    assert not missing


@pytest.mark.parametrize("note", _DECISIONS, ids=lambda note: note.stem)
def test_a_decision_carries_its_number_and_is_short(note: Path) -> None:
    number, _, slug = note.stem.partition("-")
    text = note.read_text(encoding="utf-8")
    assert re.fullmatch(r"\d{4}", number), note.name
    assert slug, note.name
    assert text.startswith(f"# {number}: "), "the first line is '# <number>: <decision>'"
    words = len(re.sub(r"(?m)^\*Includes .*$", "", text.partition("\n")[2]).split())
    assert 0 < words <= 150, f"{words} words: figures go to docs/measurements"


def test_decision_numbers_are_unique() -> None:
    numbers = [note.stem.partition("-")[0] for note in _DECISIONS]
    assert len(set(numbers)) == len(numbers)


def test_sessions_that_pages_name_exist() -> None:
    sessions = {
        next(
            (
                str(ast.literal_eval(keyword.value))
                for mark in node.decorator_list
                if isinstance(mark, ast.Call)
                for keyword in mark.keywords
                if keyword.arg == "name"
            ),
            node.name,
        )
        for node in parsed(Path("noxfile.py")).body
        if isinstance(node, ast.FunctionDef) and "nox.session" in ast.unparse(node)
    }
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for words in re.findall(
            r"nox (?:-R )?-s ((?:[a-z][\w-]*(?:\([^)]*\))? ?)+|\"[^\"]+\")", text
        ):
            named = {word.partition("(")[0] for word in words.strip('"').split()}
            assert named <= sessions, f"{page}: nox -s {words}"
