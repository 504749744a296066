"""Tensors whose storage was freed or made smaller are refused by name, and never read."""

from __future__ import annotations

import pytest
import torch

import torchyard_kernels as kernels
from torchyard_attention import create_block_mask, flex_attention, masks
from torchyard_cpu import _addresses
from torchyard_kernels import optim


def _attention():
    q, k, v = (torch.randn(1, 2, 64, 16) for _ in range(3))
    return {"query": q, "key": k, "value": v}, lambda: flex_attention(q, k, v)


def _decoding():
    q, k, v = torch.randn(1, 2, 1, 16), torch.randn(1, 2, 64, 16), torch.randn(1, 2, 64, 16)
    return {"query": q, "key": k, "value": v}, lambda: flex_attention(q, k, v)


def _scored():
    q, bias = torch.randn(1, 2, 64, 16), torch.randn(64)
    return {"score_mod": bias}, lambda: flex_attention(q, q, q, lambda s, b, h, i, j: s + bias[j])


def _linear():
    x, weight, bias = torch.randn(3, 64), torch.randn(64, 64), torch.randn(64)
    named = {"x": x, "weight": weight, "bias": bias}
    return named, lambda: kernels.linear(x, weight, bias)


def _packed(make):
    def build():
        weight = make(torch.randn(64, 64))
        x = torch.randn(1, 64)
        named = {f"weight {n}": t for n, t in enumerate(weight.tensors) if t.numel()}
        return named, lambda: kernels.linear(x, weight)

    return build


def _recurrent():
    weights = [p.detach().clone() for p in torch.nn.GRU(16, 16).parameters()]
    x, state = torch.randn(5, 3, 16), torch.zeros(1, 3, 16)
    named = {"input": x, "state": state, "weights": weights[0]}
    return named, lambda: kernels.gru(x, state, weights)


def _selected():
    x, offsets = torch.randn(64), torch.tensor([0, 10, 64])
    named = {"x": x, "offsets": offsets}
    return named, lambda: kernels.segmented_topk(x, offsets, 2)


def _pointwise():
    x = torch.randn(100)
    return {"argument 0": x}, lambda: kernels.foreach_map(lambda p: p + 1, [x])


def _moved(optimizer):
    def build():
        parameter = torch.nn.Parameter(torch.randn(16, 16))
        made = optimizer([parameter], lr=0.1)
        parameter.grad = torch.ones(16, 16)
        made.step()
        state = next(v for v in made.state[parameter].values() if v.numel() > 1)
        return {"parameter": parameter, "gradient": parameter.grad, "state": state}, made.step

    return build


_BUILDS = {
    "attention": _attention,
    "decoding": _decoding,
    "score_mod": _scored,
    "linear": _linear,
    "panels": _packed(kernels.PackedWeight),
    "int8": _packed(lambda w: kernels.quantize(w, bits=8)),
    "int4": _packed(lambda w: kernels.quantize(w, bits=4)),
    "gru": _recurrent,
    "segmented_topk": _selected,
    "foreach_map": _pointwise,
    "AdamW": _moved(optim.AdamW),
    "Lion": _moved(optim.Lion),
    "Muon": _moved(optim.Muon),
    "Adafactor": _moved(optim.Adafactor),
}


@pytest.mark.parametrize("warm", [False, True], ids=["first call", "repeated call"])
@pytest.mark.parametrize("name", _BUILDS)
def test_storage_that_is_too_small_is_refused(name, warm):
    for argument in _BUILDS[name]()[0]:
        for left in (0.0, 0.5):
            tensors, call = _BUILDS[name]()
            for _ in range(3 * warm):
                call()
            storage = tensors[argument].untyped_storage()
            storage.resize_(int(storage.nbytes() * left))
            with pytest.raises(ValueError, match=r"expected \d+ bytes of storage, got \d+"):
                call()


@pytest.mark.parametrize("value", [-(10**8), -1, 1000, 10**6])
@pytest.mark.parametrize(
    "name", ["kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"]
)
def test_lists_of_a_mask_that_were_written_to_are_never_read_out_of_bounds(name, value):
    query = torch.randn(1, 2, 256, 16)
    mask = create_block_mask(masks.causal, None, None, 256, 256, device="cpu")
    flex_attention(query, query, query, block_mask=mask)
    getattr(mask, name).fill_(value)
    with pytest.raises(ValueError, match=f"block_mask.*{name}|{name}"):
        flex_attention(query, query, query, block_mask=mask)


@pytest.mark.parametrize("address", [_addresses.address, _addresses._portable])
def test_an_address_is_had_of_whole_tensors_alone(address):
    whole = torch.ones(4, 4)
    assert address(whole, "x") == whole.data_ptr()
    assert address(whole[1:, 1:], "x") == whole.data_ptr() + 20
    assert address(torch.empty(0, 5), "x") == 0
    assert address(torch.ones(1).expand(9, 9), "x")
    with pytest.raises(ValueError, match="x: expected a tensor of 65 bytes, got 64"):
        address(whole, "x", 65)
    with pytest.raises(TypeError, match="x: expected"):
        address(3, "x")
    whole.untyped_storage().resize_(63)
    with pytest.raises(ValueError, match="x: expected 64 bytes of storage, got 63"):
        address(whole, "x")
