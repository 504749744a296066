"""Models as people have them are exported, verified and run, as torch programs and as ONNX."""

from __future__ import annotations

import pytest
import torch

from packages.export.tests.models.attending import decoder
from packages.export.tests.models.speech import CharGru, calls
from torchyard_export import export
from torchyard_export._tree import flatten

_CALLS = calls()


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(_CALLS))
def test_a_real_model_passes_and_runs(name: str) -> None:
    call = _CALLS[name]
    made = export(**call, trials=1)
    assert made.report.passed
    with torch.no_grad():
        wanted = [leaf for _, leaf in flatten(call["model"](*call["args"]))]
    assert all(map(torch.equal, [leaf for _, leaf in flatten(made(*call["args"]))], wanted))


# torch's exporter takes a while over these.
@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(_CALLS))
def test_a_real_model_passes_and_runs_as_onnx(name: str) -> None:
    call = _CALLS[name]
    made = export(**call, targets=["onnx"], trials=1)
    assert made.report.passed
    with torch.no_grad():
        wanted = [leaf for _, leaf in flatten(call["model"](*call["args"]))]
    for (_, got), right in zip(flatten(made(*call["args"])), wanted, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)


def test_a_stream_in_chunks_is_the_whole_text() -> None:
    call = _CALLS["char-GRU"]
    model: CharGru = call["model"]
    made = export(**call, trials=1)
    text, state = torch.randint(0, 30, (3, 57)), torch.zeros(2, 3, 32)
    with torch.no_grad():
        wanted, last = model(text, state)
    parts = []
    for chunk in text.split((20, 1, 36), 1):
        scores, state = made(chunk, state)
        parts.append(scores)
    torch.testing.assert_close(torch.cat(parts, 1), wanted)
    torch.testing.assert_close(state, last)


def test_an_attention_decoder_keeps_our_attention_op() -> None:
    made = export(**decoder(), trials=1)
    assert made.report.passed
    assert b"torchyard_attention" in made.files("pt2")["program.pt2"]
