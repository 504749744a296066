"""The pages about plugins say what the code does, and what they show works."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from torchyard import ReasonCode, hookspecs
from torchyard import _environ as environ
from torchyard import _tables as tables
from torchyard._plugins import manifest

from .distribution import run

_DOCS = Path(__file__).parents[3] / "docs"
_HOOKS = [
    node
    for node in ast.parse(inspect.getsource(hookspecs)).body
    if isinstance(node, ast.FunctionDef)
]
_BLOCK = re.compile(
    r"^<!-- (?P<mark>[^>]+) -->\n```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def _page(name: str) -> str:
    return (_DOCS / name).read_text(encoding="utf-8")


def _blocks(page: str, mark: str) -> list[tuple[str, str]]:
    """Return what follows the mark, and the block's text, for each so marked block of a page."""
    found = _BLOCK.finditer(_page(page))
    return [
        (block["mark"].removeprefix(mark).strip(), block["text"])
        for block in found
        if block["mark"].startswith(mark)
    ]


@pytest.fixture(scope="module")
def abacus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the plugin that docs/plugins/index.md builds, installed."""
    folder = tmp_path_factory.mktemp("abacus")
    for name, text in _blocks("plugins/index.md", "file:"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    [(group, entries)] = project["entry-points"].items()
    info = folder / "src" / "torchyard_abacus-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    return folder


def _sessions() -> list[tuple[str, list[str]]]:
    """Return each command of the walk-through with the lines that it should print."""
    found: list[tuple[str, list[str]]] = []
    for _, text in _blocks("plugins/index.md", "session"):
        for line in text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(" ".join(line.split()))
    return [(command, lines) for command, lines in found if command != "pip install ."]


def test_the_walk_through_works(abacus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(abacus)
    assert len(_sessions()) > 5
    for command, expected in _sessions():
        program, *arguments = shlex.split(command)
        assert program == "torchyard"
        result = run(["-m", "torchyard", *arguments], abacus / "src", settings={"COLUMNS": "160"})
        assert result.returncode == 0 or arguments == ["doctor"], result.stderr
        printed = [" ".join(line.split()) for line in (result.stderr + result.stdout).splitlines()]
        for line in expected:
            assert line in printed, command


@pytest.mark.parametrize("hook", _HOOKS, ids=lambda hook: hook.name)
def test_every_hook_is_documented_with_its_exact_signature(hook: ast.FunctionDef) -> None:
    assert hook.returns is not None
    signature = f"{hook.name}({ast.unparse(hook.args)}) -> {ast.unparse(hook.returns)}"
    assert f"## {hook.name}\n\n```\n{signature}\n```\n" in _page("plugins/hooks.md")


def test_only_hooks_that_exist_are_documented_each_with_an_example() -> None:
    page = _page("plugins/hooks.md")
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == [hook.name for hook in _HOOKS]
    for hook in _HOOKS:
        examples = [text for _, text in _blocks("plugins/hooks.md", "run")]
        assert any(f"@hookimpl\ndef {hook.name}(" in text for text in examples)


@pytest.mark.parametrize("number", range(len(_HOOKS)))
def test_the_hooks_examples_run(number: int) -> None:
    _, text = _blocks("plugins/hooks.md", "run")[number]
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ}
    )
    assert result.returncode == 0, result.stderr


def test_every_key_of_the_manifest_is_documented_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: set[str] = set()
    take = tables.Table.take

    def recording(self: tables.Table, key: str, *rest: object) -> object:
        # Below an order's contract the keys are devices, which are data.
        if not self.path.startswith("order."):
            read.add(re.sub(r"\[\d+\]", "", f"{self.path}.{key}".lstrip(".")))
        return take(self, key, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(tables.Table, "take", recording)
    [(_, text)] = [
        block
        for block in _blocks("plugins/index.md", "file:")
        if block[0].endswith("/torchyard.toml")
    ]
    manifest.parse_manifest(text, expected_name="abacus")
    listed = re.findall(r"^- ((?:`[\w.]+`(?:, )?)+):", _page("plugins/manifest.md"), re.MULTILINE)
    documented = [key for keys in listed for key in re.findall(r"`([\w.]+)`", keys)]
    assert sorted(documented) == sorted(read)


def test_every_reason_code_says_what_it_means_who_answers_it_and_what_then() -> None:
    sections = re.split(r"^## ", _page("reference/reason-codes.md"), flags=re.MULTILINE)[1:]
    described = {}
    for section in sections:
        code, _, text = section.partition("\n")
        described[code] = text.strip().split("\n\n")
    assert list(described) == [str(code) for code in ReasonCode]
    for code, parts in described.items():
        beginnings = ("**Means.** ", "**A plugin answers it** ", "**The user** ")
        assert len(parts) == len(beginnings), code
        for part, beginning in zip(parts, beginnings, strict=True):
            assert part.startswith(beginning), code
            assert len(part) > len(beginning) + 10, code
            assert "\n" not in part, code


def test_every_setting_is_documented_and_no_other() -> None:
    page = _page("reference/settings.md")
    rows = re.findall(r"^\| `(TORCHYARD_\w+)` \|.*$", page, re.MULTILINE)
    assert rows == [variable.name for variable in environ.VARIABLES]
    for variable in environ.VARIABLES:
        assert variable.help.replace("|", "\\|") in page
