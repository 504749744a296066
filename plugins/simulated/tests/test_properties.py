"""What the device is, as torch's modules of devices say it and as a platform has it."""

from __future__ import annotations

import torch

from torchyard import probe_platform, with_accelerators


def test_a_platform_has_the_facts_that_the_devices_module_gives() -> None:
    module = torch.get_device_module("simulated")
    facts = module.get_device_properties(0)
    assert facts.total_memory == module.get_memory_info(0)[1] > 0
    found = with_accelerators(probe_platform(), "simulated").accelerator("simulated")
    assert found is not None
    assert (found.name, found.architecture) == (facts.name, facts.architecture)
    assert found.memory == facts.total_memory
    assert found.count == module.device_count()
