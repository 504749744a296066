"""The accelerator under test; the CPU in its place tries the tests themselves."""

from __future__ import annotations

import pytest

# AMD's build of torch calls its devices cuda, too.
_DEVICES = {"cpu": "cpu", "cuda": "cuda", "mps": "mps", "rocm": "cuda", "xpu": "xpu"}


@pytest.fixture
def device(pytestconfig: pytest.Config) -> str:
    """The torch device type of the target."""
    return _DEVICES[pytestconfig.option.target]
