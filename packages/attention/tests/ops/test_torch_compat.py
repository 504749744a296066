"""The private parts of torch that are used answer as the package takes them to."""

from __future__ import annotations

import pytest
import torch

from torchyard_attention import _torch_compat


def test_this_torch_has_every_part() -> None:
    assert _torch_compat.missing() == ()


def test_a_part_that_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._functorch, "is_batchedtensor")
    assert _torch_compat.missing() == ("is_mapped",)


def test_a_tensor_of_inference_mode_has_no_version() -> None:
    with torch.inference_mode():
        tensor = torch.zeros(1)
    assert _torch_compat.version_of(tensor) == -1
