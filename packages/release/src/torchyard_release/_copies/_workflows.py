"""Copies in the workflows of GitHub Actions, which are generated whole."""

from __future__ import annotations

from pathlib import Path

from torchyard_release._copies._drift import Derived, Drift
from torchyard_release._declaration._train import Train
from torchyard_release._workflows._write import workflow_texts

__all__ = ["derive_workflows"]


def derive_workflows(root: Path, train: Train) -> Derived:
    """Compare the workflows with those that follow from the declaration."""
    wanted = workflow_texts(train)
    drifts, texts = [], {}
    for path, text in wanted.items():
        file = root / path
        found = file.read_text(encoding="utf-8") if file.is_file() else ""
        if found != text:
            drifts.append(Drift(path, "workflow", "another text" if found else "none", "its text"))
            texts[path] = text
    return Derived(tuple(drifts), texts, len(wanted))
