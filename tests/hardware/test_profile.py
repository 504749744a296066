"""A trace of torch's profiler names the decision of each call, in a backward too."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch.profiler import profile

import torchyard
from torchyard_attention import flex_attention


def test_decisions_are_in_a_trace(device: str, tmp_path: Path) -> None:
    shape, path = (1, 4, 256, 64), tmp_path / "trace.json"
    x = torch.randn(shape, device=device, dtype=torch.float16, requires_grad=True)
    with profile() as profiler, torchyard.record_decisions() as record:
        flex_attention(x, x, x).sum().backward()
        torch.get_device_module(device).synchronize()
    profiler.export_chrome_trace(str(path))
    assert [d.contract for d in record.decisions] == ["attention/1", "attention_backward/1"]
    assert record.annotate(path) >= 2
    events = json.loads(path.read_bytes())["traceEvents"]
    for decision in record.decisions:
        label = record.label(decision)
        found = [e for e in events if e.get("name") == label and e.get("ph") == "X"]
        assert found, label
        assert all(e["args"]["torchyard implementation"] == decision.name for e in found)
