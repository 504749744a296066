"""What our operators call on the device has a kernel for Apple GPUs in torch's own list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import torch
import torchgen

from plugins.mps.tests.operators.cases import CASES
from plugins.simulated.tests.apple.runs import run
from plugins.simulated.tests.apple.stand_in import DEVICE, missing
from torchyard_mps.operators import PROGRAMS, register
from torchyard_mps.operators.replacements import REPLACEMENTS

_ON_DEVICE: Final = {one.program: one.operators for one in REPLACEMENTS if one.kernels}
_LIST: Final = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"


def _of_apple() -> set[str]:
    """Return the operators that torch has for Apple GPUs, or has by way of others."""
    own, by_another = set(), {}
    for block in _LIST.read_text().split("\n- func: ")[1:]:
        name, dispatch = block.partition("(")[0], block.partition("\n  dispatch:")[2]
        delegate = re.search(r"\n  structured_delegate: (\S+)", block)
        if delegate is not None:
            by_another[name] = delegate[1]
        elif "MPS" in dispatch or "Composite" in dispatch or not dispatch:
            own.add(name)
    return {f"aten::{name}" for name in own} | {
        f"aten::{name}" for name, other in by_another.items() if other in own
    }


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
    present = _of_apple()
    assert {"aten::sort.stable", "aten::scatter.src_out", "aten::mm"} <= present
    assert not {"aten::_ctc_loss", "aten::linalg_eig", "aten::_linalg_svd"} & present
    called = _called(lambda: PROGRAMS[name](lambda tensor: tensor.to(DEVICE)))
    for case in CASES.values():
        if case.program == name:
            called |= _called(lambda case=case: run(case, DEVICE))
    assert called
    assert not called - present
