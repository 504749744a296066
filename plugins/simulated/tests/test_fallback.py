"""The fallback: operators without a kernel run on the host, are counted, and keep semantics."""

from __future__ import annotations

import pytest
import torch

from torchyard_simulated import runtime


def _counted(function: object) -> dict[str, int]:
    assert callable(function)
    runtime.reset_fallback_counts()
    function()
    return runtime.fallback_counts()


def test_each_fallback_is_counted_by_name() -> None:
    x = torch.ones(2, 2, device="simulated")
    assert _counted(lambda: x @ x @ x) == {"aten::mm.out": 2}


@pytest.mark.parametrize("name", ["fill", "view", "slice", "copy", "item", "transpose", "expand"])
def test_native_kernels_do_not_fall_back(name: str) -> None:
    x = torch.ones(2, 2, device="simulated")
    calls = {
        "fill": lambda: x.fill_(2),
        "view": lambda: x.view(4),
        "slice": lambda: x[1:, 0],
        "copy": lambda: x.clone(),
        "item": lambda: x[0, 0].item(),
        "transpose": lambda: x.t(),
        "expand": lambda: x[None].expand(3, 2, 2),
    }
    assert _counted(calls[name]) == {}


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.unfold(0, 2, 1),
        lambda x: x.diagonal(),
        lambda x: torch.view_as_real(torch.view_as_complex(x)),
        lambda x: x.view(torch.int32),
        lambda x: x.as_strided((2, 2), (1, 1), 1),
        lambda x: torch.split(x, 1)[1],
        lambda x: x.squeeze(0),
        lambda x: x.movedim(0, 1),
    ],
)
def test_views_share_memory_with_their_base(view: object) -> None:
    assert callable(view)
    host = torch.arange(4.0).reshape(2, 2)
    device = host.to("simulated")
    for base in (host, device):
        view(base).zero_()
    assert device.tolist() == host.tolist()


def test_in_place_operators_write_through_strided_views() -> None:
    host = torch.arange(24.0).reshape(4, 6)
    device = host.to("simulated")
    for x in (host, device):
        x.t()[::2].mul_(10)
        x[1:3, ::3].add_(x[0:2, ::3].clone())
        x.t().sigmoid_()
    torch.testing.assert_close(device.cpu(), host, rtol=0, atol=0)


def test_an_operator_whose_arguments_share_memory_sees_it() -> None:
    host = torch.arange(4.0)
    device = host.to("simulated")
    for x in (host, device):
        x.add_(x)
        torch.mul(x[:2], 3, out=x[2:])
    assert device.tolist() == host.tolist()


def test_lists_of_tensors_are_translated() -> None:
    xs = [torch.ones(2, device="simulated") * i for i in range(3)]
    assert torch.stack(xs).sum().item() == 6
    torch._foreach_add_(xs, 1.0)
    assert [x.tolist() for x in xs] == [[1, 1], [2, 2], [3, 3]]
    assert [x.device.type for x in torch._foreach_mul(xs, 2.0)] == ["simulated"] * 3


def test_results_of_data_dependent_size() -> None:
    x = torch.tensor([0.0, 3.0, 0.0, 4.0], device="simulated")
    assert x.nonzero().tolist() == [[1], [3]]
    assert x[x > 0].tolist() == [3, 4]
    values, counts = torch.unique(x, return_counts=True)
    assert values.tolist() == [0, 3, 4]
    assert counts.tolist() == [2, 1, 1]


def test_indices_may_be_on_the_cpu() -> None:
    x = torch.arange(4.0, device="simulated")
    assert x[torch.tensor([3, 1])].tolist() == [3, 1]
    x[torch.tensor([0])] = 9
    assert x.tolist() == [9, 1, 2, 3]


def test_strides_of_results_are_the_cpus() -> None:
    host = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    device = host.to("simulated")
    assert device.stride() == host.stride()
    assert device.exp().stride() == host.exp().stride()
    weight = torch.randn(6, 3, 1, 1)
    expected = torch.nn.functional.conv2d(host, weight)
    got = torch.nn.functional.conv2d(device, weight.to("simulated"))
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got.cpu(), expected)


def test_conjugated_and_negated_tensors_keep_their_meaning() -> None:
    host = torch.randn(3, 3, dtype=torch.complex64)
    device = host.to("simulated")
    torch.testing.assert_close((device.conj() @ device).cpu(), host.conj() @ host)
    torch.testing.assert_close(device.conj().imag.cpu(), host.conj().imag)
    torch.testing.assert_close(device.mH.clone().cpu(), host.mH)


def test_an_error_of_the_host_kernel_reaches_the_caller() -> None:
    x = torch.ones(2, 3, device="simulated")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        x @ x
    with pytest.raises(IndexError, match="out of range"):
        torch.nn.functional.embedding(torch.tensor([9], device="simulated"), x)
    assert x.sum().item() == 6


def test_a_python_operator_runs_on_device_tensors() -> None:
    @torch.library.custom_op(
        "torchyard_simulated_tests::double", mutates_args=(), device_types="cpu"
    )
    def double(x: torch.Tensor) -> torch.Tensor:
        assert x.device.type == "cpu"
        return x * 2

    x = torch.arange(3.0, device="simulated")
    result = double(x)
    assert result.device == x.device
    assert result.tolist() == [0, 2, 4]


def test_printing_shows_values_and_device() -> None:
    text = repr(torch.tensor([1.0, 2.5], device="simulated:1"))
    assert text == "tensor([1.0000, 2.5000], device='simulated:1')"


def test_sparse_tensors_are_refused_by_name() -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=r"strided|[Ss]parse"):
        torch.ones(2, 2, device="simulated").to_sparse()
