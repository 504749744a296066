"""Memory in large pages: the same values, and no page that is not needed."""

from __future__ import annotations

import copy
import mmap

import pytest
import torch

from torchyard_kernels import PackedWeight, _large_pages
from torchyard_kernels._large_pages import LARGE_PAGE, in_large_pages, large_empty

linux = pytest.mark.skipif(
    not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no large pages to ask for"
)


def sample(dtype=torch.bfloat16, more=3):
    return torch.randn(LARGE_PAGE // dtype.itemsize + more).to(dtype)


@linux
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_copies_have_the_values_and_begin_at_a_page(dtype):
    given = sample(dtype), torch.arange(7, dtype=torch.uint8), torch.empty(2, 0), torch.ones(3, 5)
    found = in_large_pages(given)
    assert found[0].data_ptr() % LARGE_PAGE == 0
    for one, other in zip(found, given, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert torch.equal(one, other)
        assert one.is_contiguous()
    assert found[1].data_ptr() == found[0].data_ptr() + -(-found[0].nbytes // 64) * 64
    assert found[0].data_ptr() != given[0].data_ptr()


@linux
def test_what_is_advised_is_whole_pages_alone(monkeypatch):
    asked = []

    class Noted(mmap.mmap):
        def madvise(self, *args):
            asked.append(args)
            return super().madvise(*args)

    monkeypatch.setattr(mmap, "mmap", Noted)
    tensor = in_large_pages([sample(torch.float32, 5)])[0]
    assert [length for _, _, length in asked] == [LARGE_PAGE]
    assert tensor.nbytes > LARGE_PAGE


@linux
def test_memory_lives_as_long_as_a_view_of_it():
    given = sample()
    found = in_large_pages([given])[0][5:]
    assert torch.equal(found, given[5:])
    other = copy.deepcopy(found)
    del found
    assert torch.equal(other, given[5:])


def small():
    return [torch.ones(4)]


def elsewhere():
    return [torch.empty(LARGE_PAGE, device="meta")]


def subclass():
    return [torch.nn.Parameter(torch.ones(LARGE_PAGE))]


@pytest.mark.parametrize("given", [small, elsewhere, subclass])
def test_others_are_the_very_tensors(given):
    tensors = given()
    found = in_large_pages(tensors)
    assert all(one is other for one, other in zip(found, tensors, strict=True))


@pytest.mark.parametrize("way", ["no advice", "refused"])
def test_a_system_without_such_pages_is_left_alone(way, monkeypatch):
    if way == "no advice":
        monkeypatch.setattr(_large_pages, "_ADVICE", None)
    else:

        def refuse(*args, **kwargs):
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr(_large_pages, "_ADVICE", 14)
        monkeypatch.setattr(mmap, "mmap", refuse)
    tensors = [sample()]
    assert in_large_pages(tensors)[0] is tensors[0]
    assert large_empty(tensors[0], (2, LARGE_PAGE)).shape == (2, LARGE_PAGE)


@pytest.mark.parametrize("sizes", [(3, 5), (2, LARGE_PAGE // 4, 3)])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_empty_tensors_are_contiguous_and_like_another(sizes, device):
    like = torch.ones(2, dtype=torch.float16, device=device)
    found = large_empty(like, sizes)
    assert found.shape == sizes
    assert found.dtype == like.dtype
    assert found.device == like.device
    assert found.is_contiguous()
    if device == "cpu":
        assert (found.fill_(2) == 2).all()


@linux
@pytest.mark.parametrize("name", ["panels", "int8", "int4"])
def test_a_packed_weight_lies_in_them_and_its_state_goes_on(name):
    weight = torch.randn(2048, 2112)
    packed = PackedWeight(weight, name)
    assert packed.tensors[0].data_ptr() % LARGE_PAGE == 0
    other = PackedWeight.from_state(packed.state_dict())
    assert other.tensors[0].data_ptr() == packed.tensors[0].data_ptr()
    assert torch.equal(other.unpack(), packed.unpack())
    assert torch.equal(copy.deepcopy(packed).unpack(), packed.unpack())
