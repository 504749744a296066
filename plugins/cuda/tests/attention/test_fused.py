"""How calls are cut into pieces and put together; the operators' arguments and shapes.

Pieces are computed by torch's fused kernel for the CPU: it takes what those for CUDA take, and
returns the same, out and a natural log-sum-exp. Of the operators for CUDA torch's own fake kernels
check arguments and shapes; what they compute, no machine without a GPU can tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchyard_attention.contract import AttentionCall
from torchyard_attention.fused import pieces
from torchyard_attention.reference import reference_backward, reference_forward
from torchyard_attention.testing import make_call
from torchyard_attention.tolerance import GradientRuler, Ruler, report
from torchyard_cuda import _torch_compat
from torchyard_cuda.attention._fused import (
    KERNELS,
    FusedBackward,
    FusedForward,
    FusedKernel,
    UnsupportedOperatorError,
    kernel_of,
)


def _forward(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, scale=scale
    )
    return found


def _backward(
    grad_out: Tensor,
    inputs: tuple[Tensor, Tensor, Tensor],
    out: Tensor,
    lse: Tensor,
    *,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    # The operator for the CPU has no gradients of shared key heads.
    query, key, value = inputs
    group = query.shape[1] // key.shape[1]
    wide = (key.repeat_interleave(group, 1), value.repeat_interleave(group, 1))
    found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, *wide, out, lse, 0.0, causal, scale=scale
    )
    of_key, of_value = (
        part.unflatten(1, (key.shape[1], group)).sum(dim=2) for part in (found[1], found[2])
    )
    return found[0], of_key, of_value


_ON_CPU: Final = FusedKernel(_forward, _backward, ("", ""))
# Sq, Sk.
_LENGTHS: Final = [(40, 40), (40, 70), (70, 40), (1, 33), (33, 1), (2, 64)]


def _call(q_length: int, kv_length: int, causal: bool, **sizes: Any) -> AttentionCall:
    row, key = torch.arange(q_length)[:, None], torch.arange(kv_length)
    return make_call(
        q_length=q_length,
        kv_length=kv_length,
        visible=row >= key if causal else None,
        head_dim=16,
        **sizes,
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(("q_length", "kv_length"), _LENGTHS)
def test_pieces_are_the_call(q_length: int, kv_length: int, kv_heads: int, causal: bool) -> None:
    call = _call(q_length, kv_length, causal, kv_heads=kv_heads)
    result = FusedForward(_ON_CPU)(call)
    errors = Ruler(call).compare(result)
    assert all(error.ratio <= 1 for error in errors), report(errors)
    assert result.out.is_contiguous()
    assert result.lse is not None
    grad_out = torch.randn_like(result.out)
    gradients = FusedBackward(_ON_CPU)(call, result.out, result.lse, grad_out, None)
    errors = GradientRuler(call, grad_out).compare(gradients)
    assert all(error.ratio <= 1 for error in errors), report(errors)
    for tensor in (gradients.query, gradients.key, gradients.value):
        assert tensor.is_contiguous()


def test_a_mask_aligned_at_the_end_would_show() -> None:
    call = _call(40, 70, True)
    shifted = FusedKernel(
        lambda q, k, v, *, causal, scale: _forward(
            q, k.flip(2), v.flip(2), causal=causal, scale=scale
        ),
        _backward,
        ("", ""),
    )
    errors = Ruler(call).compare(FusedForward(shifted)(call))
    assert any(error.ratio > 1 for error in errors)


def test_strides_and_the_lse_that_nobody_asked_for() -> None:
    call = _call(20, 20, True)
    wide = torch.zeros((*call.query.shape, 2))
    wide[..., 0] = call.query
    strided = replace(call, query=wide[..., 0], lse=False)
    result = FusedForward(_ON_CPU)(strided)
    assert result.lse is None
    torch.testing.assert_close(result.out, FusedForward(_ON_CPU)(call).out)


def test_hidden_values_that_are_not_finite_take_no_part() -> None:
    call = _call(40, 40, True)
    call.value[:, :, 30] = math.nan
    call.key[:, :, 31] = math.inf
    with pytest.warns(RuntimeWarning, match="output is not finite.* attention.tiled computes"):
        result = FusedForward(_ON_CPU)(call)
    exact = reference_forward(call)
    assert result.lse is not None
    assert exact.lse is not None
    torch.testing.assert_close(result.out, exact.out, equal_nan=True)
    assert result.out[:, :, :30].isfinite().all()
    grad_out = torch.zeros_like(result.out)
    grad_out[:, :, :30] = 1.0
    with pytest.warns(RuntimeWarning, match="gradient is not finite.* attention.tiled computes"):
        gradients = FusedBackward(_ON_CPU)(call, result.out, result.lse, grad_out, None)
    wanted = reference_backward(call, exact.out, exact.lse, grad_out, None)
    torch.testing.assert_close(gradients.query[:, :, :30], wanted.query[:, :, :30])


def test_a_gradient_of_the_lse_is_computed() -> None:
    call = _call(24, 24, True)
    result = FusedForward(_ON_CPU)(call)
    assert result.lse is not None
    grad_out, grad_lse = torch.randn_like(result.out), torch.randn_like(result.lse)
    with pytest.warns(RuntimeWarning, match="no gradient of the lse: attention.tiled computes"):
        gradients = FusedBackward(_ON_CPU)(call, result.out, result.lse, grad_out, grad_lse)
    errors = GradientRuler(call, grad_out, grad_lse).compare(gradients)
    assert all(error.ratio <= 1 for error in errors), report(errors)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("q_length", "kv_length"), [(40, 40), (70, 40), (40, 70)])
@pytest.mark.parametrize("causal", [False, True])
def test_torchs_fake_kernels_take_the_arguments(
    name: str, q_length: int, kv_length: int, causal: bool
) -> None:
    kv_heads = 4 if name == "efficient" else 2
    query = torch.empty((2, 4, q_length, 64), device="meta", dtype=torch.bfloat16)
    key = torch.empty((2, kv_heads, kv_length, 64), device="meta", dtype=torch.bfloat16)
    kernel = kernel_of(name)
    for piece in pieces(q_length, kv_length, causal):
        begin, end = piece.rows
        keys = key[:, :, : piece.keys]
        inputs = (query[:, :, begin:end], keys, torch.empty_like(keys))
        out, lse = kernel.forward(*inputs, causal=piece.causal, scale=0.125)
        assert out.shape == inputs[0].shape
        assert lse.shape == (2, 4, end - begin)
        assert lse.dtype == torch.float32
        found = kernel.backward(out, inputs, out, lse, causal=piece.causal, scale=0.125)
        assert [tensor.shape for tensor in found] == [tensor.shape for tensor in inputs]


class _Calls(TorchDispatchMode):
    """Keep the arguments of torch's operators, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, tuple[Any, ...]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.seen[func.overloadpacket.__name__] = args
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", KERNELS)
def test_a_backward_is_given_what_the_kernel_takes_on_a_device(name: str) -> None:
    # Fake kernels take anything here; on an H200 torch refused, or computed other gradients.
    query = torch.empty((2, 4, 40, 64), device="meta", dtype=torch.bfloat16)
    kernel = kernel_of(name)
    out, lse = kernel.forward(query, query, query, causal=True, scale=0.125)
    out = torch.empty(out.shape, device="meta", dtype=out.dtype)
    with _Calls() as calls:
        kernel.backward(out, (query, query, query), out, lse, causal=True, scale=0.125)
    operator = KERNELS[name].operators[1]
    given = dict(zip(_names(operator), calls.seen[operator], strict=False))
    for absent in {"attn_bias", "cum_seq_q", "cum_seq_k"} & given.keys():
        # What is defined there is there, however empty.
        assert given[absent] is None, absent
    if name == "efficient":
        # As its own forward leaves it: the kernel takes no strides of it.
        assert given["out"].transpose(1, 2).is_contiguous()


def _names(operator: str) -> list[str]:
    schema = getattr(torch.ops.aten, operator).default._schema
    return [argument.name for argument in schema.arguments]


def test_this_torch_has_every_operator_as_it_was_read() -> None:
    assert _torch_compat.missing() == ()


def test_an_operator_with_other_arguments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_scaled_dot_product_flash_attention_backward"
    changed = {**_torch_compat.SCHEMAS, name: "(Tensor grad_out) -> Tensor"}
    monkeypatch.setattr(_torch_compat, "SCHEMAS", changed)
    assert _torch_compat.missing() == (name,)
    with pytest.raises(UnsupportedOperatorError, match=f"{name}.*TORCHYARD_USE"):
        kernel_of("flash")
    kernel_of("cudnn")
