"""The samples by which torch tests its own operators, modules and optimisers: ours beside torch's.

Each counts what it compared, so that no test passes on an empty set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import foreach_unary_op_db, op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

import torchyard_kernels as tk
from torchyard import TorchyardError
from torchyard_kernels import optim
from torchyard_programs import ProgramError

DTYPES = (torch.float32, torch.bfloat16, torch.int64)


def named(database: Any, name: str) -> Any:
    return next(info for info in database if info.name == name)


def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    k = x.shape[dim] if x.dim() else 1
    return tk.partial_sort(x, k, dim, descending)


def stable_sort(x: Tensor, dim: int = -1, descending: bool = False, **_: Any) -> Any:
    return torch.sort(x, dim=dim, descending=descending, stable=True)


# Ours is always stable, so torch's is asked to be.
OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "topk": (tk.topk, torch.topk),
    "kthvalue": (tk.kthvalue, torch.kthvalue),
    "sort": (sort, stable_sort),
    "nn.functional.linear": (tk.linear, torch.nn.functional.linear),
    "matmul": (tk.matmul, torch.matmul),
    "bmm": (tk.bmm, torch.bmm),
}


def widened(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def assert_product(found: Tensor, expected: Tensor, exact: Tensor) -> None:
    """Hold a product to twice the error of torch's own in the same dtype, and one rounding."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.numel():
        rounding = torch.finfo(found.dtype).eps * float(exact.abs().max())
        allowed = 2 * float((expected.double() - exact).abs().max()) + rounding
        assert float((found.double() - exact).abs().max()) <= allowed


def assert_selected(name: str, x: Tensor, found: Any, expected: Any) -> None:
    """Hold the values to torch's, and the indices where torch settles them."""
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0, equal_nan=True)
    if name == "sort":
        torch.testing.assert_close(found[1], expected[1])
    assert found[1].shape == expected[1].shape


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_of_torchs_operators(name: str) -> None:
    ours, theirs = OPERATORS[name]
    info = named(op_db, name)
    right, refused = 0, 0
    for dtype in DTYPES:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        for sample in info.sample_inputs("cpu", dtype):
            given = (sample.input, *sample.args)
            expected = theirs(*given, **sample.kwargs)
            if name in ("nn.functional.linear", "matmul", "bmm") and dtype == torch.int64:
                with pytest.raises(TypeError, match=r"expected float16, .* got torch\.int64"):
                    ours(*given, **sample.kwargs)
                refused += 1
                continue
            found = ours(*given, **sample.kwargs)
            if isinstance(expected, tuple):
                assert_selected(name, sample.input, found, expected)
            else:
                exact = theirs(*map(widened, given), **sample.kwargs)
                assert_product(found, expected, exact)
            right += 1
    print(f"{name}: {right} right, {refused} refused by name")
    assert right > 1


@pytest.mark.sweep
def test_samples_of_torchs_foreach_operators() -> None:
    right: dict[str, int] = {}
    refused: set[str] = set()
    for info in foreach_unary_op_db:
        name = info.name.removeprefix("_foreach_")
        function = getattr(torch, name, None)
        if function is None or torch.float32 not in info.supported_dtypes("cpu"):
            continue
        for sample in info.sample_inputs("cpu", torch.float32):
            expected = info.method_variant(sample.input, *sample.args, **sample.kwargs)
            try:
                found = tk.foreach_map(function, sample.input)
            except ProgramError:
                refused.add(name)
                break
            torch.testing.assert_close(found, list(expected), equal_nan=True)
            right[name] = right.get(name, 0) + 1
    print(f"foreach: {sum(right.values())} right of {len(right)} functions; refused: {refused}")
    assert {"abs", "exp", "neg", "sqrt", "tanh", "sigmoid"} <= set(right)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_samples_of_torchs_recurrent_modules(kind: str, training: bool) -> None:
    info = next(info for info in module_db if info.module_cls is getattr(torch.nn, kind))
    count = 0
    for dtype in (torch.float32, torch.float64):
        for sample in info.module_inputs_func(info, "cpu", dtype, False, training):
            made = sample.constructor_input
            # Dropout draws its own numbers.
            theirs = info.module_cls(*made.args, **{**made.kwargs, "dropout": 0.0}).to(dtype)
            theirs.train(training)
            ours = tk.nn.from_torch(theirs)
            given = sample.forward_input
            expected = torch.utils._pytree.tree_leaves(theirs(*given.args, **given.kwargs))
            found = torch.utils._pytree.tree_leaves(ours(*given.args, **given.kwargs))
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other)
            count += 1
    print(f"{kind}: {count} right")
    assert count > 10


# What torch's take besides the samples, and changes nothing.
EXTRA: dict[str, list[dict[str, Any]]] = {
    "AdamW": [{"foreach": True}, {"fused": True}, {"differentiable": False, "capturable": False}],
    "Adafactor": [{"foreach": True}],
    "Muon": [],
}
OPTIMISERS = {"AdamW": optim.AdamW, "Adafactor": optim.Adafactor, "Muon": optim.Muon}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_samples_of_torchs_optimisers(name: str) -> None:
    info = next(info for info in optim_db if info.optim_cls is getattr(torch.optim, name))
    right, refused = 0, 0
    for sample in info.optim_inputs_func("cpu"):
        for extra in ({}, *EXTRA[name]):
            kwargs = {**sample.kwargs, **extra}
            generator = torch.Generator().manual_seed(3)
            starts = [torch.randn(4, 6, generator=generator) for _ in range(2)]
            moved = []
            for cls in (OPTIMISERS[name], info.optim_cls):
                params = [torch.nn.Parameter(start.clone()) for start in starts]
                try:
                    optimiser = cls(params, **kwargs)
                except TorchyardError:
                    assert kwargs.get("capturable") or kwargs.get("differentiable")
                    refused += 1
                    break
                except ValueError as error:
                    # A later torch has values of it that are not there in 2.13.
                    if "adjust_lr_fn" not in str(error):
                        raise
                    refused += 1
                    break
                for step in range(3):
                    for at, param in enumerate(params):
                        param.grad = torch.sin(starts[at] * (step + 1))
                    optimiser.step()
                moved.append([param.detach() for param in params])
            else:
                torch.testing.assert_close(moved[0], moved[1], rtol=1e-4, atol=1e-5)
                right += 1
    print(f"{name}: {right} right, {refused} refused by name")
    assert right > 2
