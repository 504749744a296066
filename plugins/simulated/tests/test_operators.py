"""torch's own operators with torch's own samples: the CPU's results, but for a list of reasons."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

# Some 700 operators: minutes.
pytestmark = pytest.mark.sweep

_SAMPLES = 2
_STRIDED = "the device holds strided tensors only"
# What torch's list has and the device fails, each with its reason; what begins to pass fails too.
_EXCEPTIONS = {
    "as_strided_partial_views": "its samples read memory that a copy to a device leaves behind",
    "sparse_mm_reduce": _STRIDED,
    "sparse_sampled_addmm": _STRIDED,
    "tensor_split": "torch wants the tensor of indices on the CPU, and the test moves it",
    "to_sparse": _STRIDED,
}
# Their values are whatever the memory held.
_UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"}
_UNINITIALIZED |= {"new_empty_strided"}


def _operators() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    # jiterator's operators are those of CUDA alone.
    return [
        op for op in op_db if torch.float32 in op.dtypes and not op.name.startswith("jiterator")
    ]


def _name(op: Any) -> str:
    return str(op.formatted_name)


def _on(device: str, values: Any) -> Any:
    def moved(value: Any) -> Any:
        return value.detach().to(device) if isinstance(value, torch.Tensor) else value

    return tree_map(moved, values)


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Read torch's list, which takes seconds, where its operators are tried."""
    left_out = metafunc.config.getoption("-m") == "not sweep"
    metafunc.parametrize("op", [] if left_out else _operators(), ids=_name)


def test_an_operator_gives_the_cpus_result(op: Any, request: pytest.FixtureRequest) -> None:
    if reason := _EXCEPTIONS.get(_name(op)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    tried = 0
    for sample in list(op.sample_inputs("cpu", torch.float32))[:_SAMPLES]:
        results = []
        for device in ("cpu", "simulated"):
            given, arguments = _on(device, (sample.input, sample.args))
            named = {
                name: device if name == "device" else _on(device, value)
                for name, value in sample.kwargs.items()
            }
            torch.manual_seed(0)
            results.append(_tensors(op(given, *arguments, **named)))
            torch.accelerator.synchronize()  # a copy to the CPU need not have waited
        expected, got = results
        assert len(expected) == len(got)
        tried += 1
        if op.name in _UNINITIALIZED:
            continue
        for one, other in zip(expected, got, strict=True):
            torch.testing.assert_close(other.cpu(), one, equal_nan=True)
    assert tried
