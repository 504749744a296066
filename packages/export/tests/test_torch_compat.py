"""torch's private parts: this torch has all that the package uses."""

from __future__ import annotations

from types import MappingProxyType

import pytest
import torch

from torchyard_export import _torch_compat


def test_this_torch_has_every_part() -> None:
    assert _torch_compat.missing() == ()


def test_a_part_that_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> bool:
        return bool(vars(torch._C)["_no_such_part"])

    probes = MappingProxyType({**_torch_compat.PROBES, "gone": gone, "other": lambda: False})
    monkeypatch.setattr(_torch_compat, "PROBES", probes)
    assert _torch_compat.missing() == ("gone", "other")
