"""accelerate on a device besides the CPU: layers are replaced and timed where they are."""

from __future__ import annotations

import torch

from torchyard_kernels import accelerate


def test_a_model_of_the_device_is_accelerated_and_timed_there() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).eval().to("simulated")
    x = torch.randn(3, 8, device="simulated")
    expected = model(x)

    report = accelerate(model).report

    assert [change.name for change in report.changes] == ["0"]
    assert report.gain is not None
    assert report.gain.after > 0
    torch.testing.assert_close(model(x), expected)
