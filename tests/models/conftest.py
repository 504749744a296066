"""What all tests of models share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torchyard_attention.transformers import register


@pytest.fixture(autouse=True)
def _registered() -> None:
    register()


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    # The models are so small that threads only wait for one another; on a busy machine, long.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
