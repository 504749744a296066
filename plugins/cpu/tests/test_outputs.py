"""Outputs that native code makes: of their own memory, whatever was made of these sizes before."""

from __future__ import annotations

import pytest
import torch

import torchyard_kernels as kernels


def _selected(x: torch.Tensor) -> kernels.TopK:
    with torch.no_grad():
        return kernels.topk(x, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int16])
def test_outputs_of_repeated_calls_have_memory_of_their_own(dtype: torch.dtype) -> None:
    x = (torch.randn(4, 21) * 100).to(dtype)
    expected = torch.topk(x, 3).values
    found = [_selected(x) for _ in range(5)]
    kept = [result.values.clone() for result in found]
    found[-1].values.zero_()
    for result, before in zip(found[:-1], kept[:-1], strict=True):
        assert torch.equal(result.values, expected)
        assert torch.equal(result.values, before)
        assert result.values.is_contiguous()
        assert result.values.untyped_storage().nbytes() == 12 * x.element_size()
        assert (result.values.dtype, result.indices.dtype) == (dtype, torch.int64)
    # Memory of torch's own, which can be resized.
    assert found[0].values.resize_(5, 20).shape == (5, 20)


@pytest.mark.parametrize("first", [True, False])
def test_outputs_belong_to_the_mode_that_they_are_made_in(first: bool) -> None:
    x = torch.randn(4, 23 if first else 25)
    for inference in (first, not first):
        with torch.inference_mode(inference):
            for _ in range(4):
                assert _selected(x).values.is_inference() is inference
    weight = torch.ones((), requires_grad=True)
    (_selected(x).values * weight).sum().backward()
    assert torch.equal(weight.grad, torch.topk(x, 3).values.sum())


def test_more_sizes_than_are_known_at_once() -> None:
    inputs = [torch.randn(rows, 8) for rows in range(1, 200)]
    for _ in range(3):
        for x in inputs:
            assert torch.equal(_selected(x).values, torch.topk(x, 3).values)
