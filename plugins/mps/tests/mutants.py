"""``planted``: a test for each fault of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["planted"]


def planted(faults: Sequence[tuple[str, str, Any, str]], given: str) -> pytest.MarkDecorator:
    """Parametrise a test by ``right``, ``wrong``, what shows the fault, and ``finding``.

    Args:
        faults: the kernel's text, what is planted in its place, the call or case that shows it,
            and the finding that names it; empty: its values.
        given: the argument that takes the call or case.
    """
    names = [f"{right}|{wrong}" for right, wrong, _, _ in faults]
    return pytest.mark.parametrize(("right", "wrong", given, "finding"), faults, ids=names)
