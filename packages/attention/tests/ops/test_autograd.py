"""A plain call is one node of autograd's graph; where others take part, the op is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from torchyard_attention import AuxRequest, create_block_mask, flex_attention

LENGTH = 20


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


class _Ops(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.add(str(func))
        return func(*args, **(kwargs or {}))


def _inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, LENGTH, 8), (2, 2, LENGTH, 8), (2, 2, LENGTH, 8), (4,), (LENGTH,))
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    return [tensor.requires_grad_() for tensor in tensors]


LIMITS = torch.arange(3, 3 + LENGTH)
MASK = create_block_mask(
    lambda b, h, q, k: k < LIMITS[q], None, None, LENGTH, LENGTH, "cpu", BLOCK_SIZE=8
)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, slopes: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    out, aux = flex_attention(
        query,
        key,
        value,
        lambda s, b, h, q, k: s * slopes[h] + bias[k],
        MASK,
        enable_gqa=True,
        return_aux=AuxRequest(lse=True),
    )
    return out, aux.lse


def _gradients(inputs: list[Tensor], outputs: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    generator = torch.Generator().manual_seed(1)
    slopes = [torch.randn(tensor.shape, generator=generator) for tensor in outputs]
    return torch.autograd.grad(outputs, inputs, slopes, allow_unused=True)


def _same(found: tuple[Tensor | None, ...], expected: tuple[Tensor | None, ...]) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


@pytest.mark.parametrize(
    "first", [slice(0, 1), slice(1, 2), slice(0, 2)], ids=["out", "lse", "both"]
)
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True), (False, False)])
def test_both_ways_give_the_same_bits(first: slice, wanted: tuple[bool, bool]) -> None:
    inputs = _inputs()
    for tensor, flag in zip(inputs[3:], wanted, strict=True):
        tensor.requires_grad_(flag)
    leaves = [tensor for tensor in inputs if tensor.requires_grad]
    found = _gradients(leaves, _attend(*inputs)[first])
    with _Functions():
        expected = _gradients(leaves, _attend(*inputs)[first])
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in expected)
    _same(found, expected)


def test_a_mode_that_comes_after_the_forward_sees_the_backward() -> None:
    inputs = _inputs()
    outputs = _attend(*inputs)
    expected = _gradients(inputs, _attend(*inputs))
    with _Ops() as ops:
        found = _gradients(inputs, outputs)
    assert "torchyard_attention.backward.default" in ops.seen
    _same(found, expected)


def test_a_profile_names_the_backward() -> None:
    inputs = _inputs()
    outputs = _attend(*inputs)
    with torch.profiler.profile() as profile:
        _gradients(inputs, outputs)
    assert "torchyard_attention::backward" in {event.key for event in profile.key_averages()}


def test_many_slopes_at_once_are_as_one_after_another() -> None:
    inputs = [tensor.detach().double().requires_grad_() for tensor in _inputs()]
    outputs = _attend(*inputs)
    generator = torch.Generator().manual_seed(1)
    slopes = [
        torch.randn((3, *tensor.shape), generator=generator, dtype=torch.float64)
        for tensor in outputs
    ]
    found = torch.autograd.grad(outputs, inputs, slopes, is_grads_batched=True, retain_graph=True)
    for place in range(3):
        one = [slope[place] for slope in slopes]
        expected = torch.autograd.grad(outputs, inputs, one, retain_graph=True)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine[place], theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_computes_it_again(use_reentrant: bool) -> None:
    inputs = _inputs()
    expected = _gradients(inputs, _attend(*inputs))
    outputs = checkpoint(_attend, *inputs, use_reentrant=use_reentrant)
    if not use_reentrant:
        _same(_gradients(inputs, outputs), expected)
        return
    # A reentrant one works with backward() alone.
    generator = torch.Generator().manual_seed(1)
    slopes = [torch.randn(tensor.shape, generator=generator) for tensor in outputs]
    torch.autograd.backward(outputs, slopes)
    _same(tuple(tensor.grad for tensor in inputs), expected)


def test_what_is_kept_for_the_backward_passes_through_hooks() -> None:
    inputs = _inputs()
    expected = _gradients(inputs, _attend(*inputs))
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> int:
        packed.append(tensor.detach().clone())
        return len(packed) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, packed.__getitem__):
        outputs = _attend(*inputs)
    assert len(packed) >= 7, "query, key, value, out, lse and two captured tensors"
    _same(_gradients(inputs, outputs), expected)


@pytest.mark.parametrize("change", [lambda x: x.mul_(2), lambda x: x.zero_()], ids=["mul", "zero"])
@pytest.mark.parametrize("which", range(3))
def test_an_input_that_was_changed_in_place_is_refused(
    which: int, change: Callable[[Tensor], Tensor]
) -> None:
    inputs = _inputs()
    outputs = _attend(*inputs)
    with torch.no_grad():
        change(inputs[which])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _gradients(inputs, outputs)


@pytest.mark.sweep
def test_inputs_live_no_longer_than_their_graph() -> None:
    inputs = _inputs()
    query = inputs[0] * 1.0
    seen = weakref.ref(query)
    out, lse = _attend(query, *inputs[1:])
    del query
    assert seen() is not None
    del out, lse
    gc.collect()
    assert seen() is None


def test_a_second_backward_needs_a_retained_graph() -> None:
    inputs = _inputs()
    outputs = _attend(*inputs)
    _gradients(inputs, outputs)
    with pytest.raises(RuntimeError, match="second time"):
        _gradients(inputs, outputs)


def test_sizes_without_data_are_differentiated_as_data_is() -> None:
    sizes = [tensor.detach().to("meta").requires_grad_() for tensor in _inputs()[:3]]
    out = flex_attention(*sizes, enable_gqa=True)
    found = torch.autograd.grad(out, sizes, torch.empty_like(out))
    assert [gradient.shape for gradient in found] == [tensor.shape for tensor in sizes]
    assert {gradient.device.type for gradient in found} == {"meta"}
