"""torch.compile, with every backend: the results and gradients of eager execution."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_compiled_model_computes_and_differentiates(backend: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)
    ).to("simulated")
    x = torch.randn(3, 4, device="simulated")
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    results = []
    for function in (model, compiled):
        model.zero_grad()
        out = function(x)
        out.square().sum().backward()
        results.append([out.detach().cpu(), *(p.grad.cpu() for p in model.parameters())])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_views_and_mutations_survive_compilation(backend: str) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        x.t()[0].add_(1)
        return x.expand(2, *x.shape).transpose(0, 2).sin() + torch.ones(3, 1, 2, device=x.device)

    host = torch.arange(6.0).reshape(2, 3)
    device = host.to("simulated")
    expected = step(host)
    got = torch.compile(step, backend=backend, fullgraph=True)(device)
    torch.testing.assert_close(device.cpu(), host)
    torch.testing.assert_close(got.cpu(), expected)


def test_fake_tensors_know_the_device() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(2, 3, device="simulated:1")
        assert (x @ x.t()).device == torch.device("simulated:1")
        assert (x @ x.t()).shape == (2, 2)


def test_a_model_is_exported() -> None:
    model = torch.nn.Linear(4, 2).to("simulated")
    x = torch.randn(3, 4, device="simulated")
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x).cpu(), model(x).detach().cpu())
