"""What our operators call on the device has a kernel for Apple GPUs in torch's own list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import torch

from plugins.mps.tests.operators.cases import CASES
from plugins.simulated.tests.apple.runs import run
from plugins.simulated.tests.apple.stand_in import DEVICE, missing
from plugins.simulated.tests.apple.torch_list import absent, present
from torchyard_mps.operators import PROGRAMS, register
from torchyard_mps.operators.replacements import REPLACEMENTS

_ON_DEVICE: Final = {one.program: one.operators for one in REPLACEMENTS if one.kernels}


def _called(run_: Any) -> set[str]:
    """Return the operators that came to the device's fallback, which has no kernel of its own."""
    module: Any = torch.get_device_module(DEVICE)
    module.reset_fallback_counts()
    run_()
    return set(module.fallback_counts())


@pytest.fixture(scope="module")
def ours(loaded_device: None) -> Iterator[None]:
    # Together, since torch computes the gradient of take by put_, and that of put_ by take.
    operators = [operator for of in _ON_DEVICE.values() for operator in of]
    with missing(*operators), register(DEVICE, operators=list(_ON_DEVICE)) as registration:
        assert all(one.registered for one in registration.replaced), str(registration)
        yield


@pytest.mark.parametrize("name", _ON_DEVICE)
def test_what_is_called_is_there(ours: None, name: str) -> None:
    called = _called(lambda: PROGRAMS[name](lambda tensor: tensor.to(DEVICE)))
    for case in CASES.values():
        if case.program == name:
            called |= _called(lambda case=case: run(case, DEVICE))
    assert called
    assert not called - {f"aten::{operator}" for operator in present()}


def test_torchs_list_is_read() -> None:
    assert {"sort.stable", "scatter.src_out", "mm", "add_.Tensor", "kthvalue"} <= present()
    assert {"_ctc_loss", "linalg_eig", "_linalg_svd", "take.out", "mode"} <= absent()
    assert not present() & absent()
