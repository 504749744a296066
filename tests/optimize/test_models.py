"""Unmodified models: right, no slower than they were, and afterwards what they were."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from torchyard import optimize
from torchyard.optimization import Report, TrialOutcome, apply_plan
from torchyard.optimization._results import results_of
from torchyard.optimization._snapshot import Snapshot

_SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
_TEXT = {**_SMALL, "vocab_size": 96, "intermediate_size": 128}
_TOKENS = torch.arange(40).reshape(2, 20)


def _decoder(config: type, **more: Any) -> Callable[[], tuple[nn.Module, Any]]:
    def make() -> tuple[nn.Module, Any]:
        model = transformers.AutoModelForCausalLM.from_config(config(**{**_TEXT, **more}))
        return model, {"input_ids": _TOKENS, "use_cache": False}

    return make


def _model(
    kind: type, config: Any, inputs: dict[str, Tensor]
) -> Callable[[], tuple[nn.Module, Any]]:
    return lambda: (kind(config), inputs)


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, 32)
        self.recurrent = nn.LSTM(32, 48, num_layers=2, batch_first=True)
        self.head = nn.Linear(48, 96)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.recurrent(self.embedding(tokens))[0])
        return found


_GPT2 = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 96}
_MODELS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "llama": _decoder(transformers.LlamaConfig, num_key_value_heads=2),
    "qwen3": _decoder(transformers.Qwen3Config, num_key_value_heads=2, head_dim=16),
    "mistral": _decoder(transformers.MistralConfig, num_key_value_heads=2, sliding_window=8),
    "gpt2": _decoder(transformers.GPT2Config, **_GPT2),
    "bert": _model(
        transformers.BertModel, transformers.BertConfig(**_TEXT), {"input_ids": _TOKENS}
    ),
    "distilbert": _model(
        transformers.DistilBertModel,
        transformers.DistilBertConfig(dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=96),
        {"input_ids": _TOKENS},
    ),
    "t5": _model(
        transformers.T5Model,
        transformers.T5Config(
            d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=96
        ),
        {"input_ids": _TOKENS, "decoder_input_ids": _TOKENS[:, :5]},
    ),
    "vit": _model(
        transformers.ViTModel,
        transformers.ViTConfig(**_SMALL, intermediate_size=128, image_size=32, patch_size=8),
        {"pixel_values": torch.randn(2, 3, 32, 32)},
    ),
    "resnet": _model(
        transformers.ResNetModel,
        transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1]),
        {"pixel_values": torch.randn(2, 3, 32, 32)},
    ),
    "hubert": _model(
        transformers.HubertModel,
        transformers.HubertConfig(
            **_SMALL,
            intermediate_size=128,
            conv_dim=(16, 16),
            conv_stride=(5, 2),
            conv_kernel=(10, 3),
            num_feat_extract_layers=2,
        ),
        {"input_values": torch.randn(2, 2000)},
    ),
    "whisper": _model(
        transformers.WhisperModel,
        transformers.WhisperConfig(
            d_model=64,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=128,
            decoder_ffn_dim=128,
            vocab_size=96,
            num_mel_bins=8,
            max_source_positions=32,
            max_target_positions=32,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
        {"input_features": torch.randn(1, 8, 64), "decoder_input_ids": _TOKENS[:1, :5]},
    ),
    "lstm": lambda: (_Recurrent(), _TOKENS),
}
_QUICK = ("llama", "lstm")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _check_report(report: Report | None) -> None:
    assert report is not None
    for trial in report.trials:
        # What is refused says why; nothing of ours fails on a model, or is wrong.
        assert trial.outcome is not TrialOutcome.WRONG, trial
        assert trial.reason, trial
        if trial.after is None:
            assert trial.outcome is not TrialOutcome.KEPT
    names = {trial.optimization for trial in report.trials}
    assert names == {"attention", "weights", "reroute", "compile", "graphs", "reuse"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in _QUICK else pytest.mark.sweep) for name in _MODELS],
)
def test_a_model_is_right_no_slower_and_given_back(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = _MODELS[name]()
    model.eval()
    given = inputs if isinstance(inputs, dict) else {}
    args = () if given else (inputs,)
    with torch.no_grad():
        expected = results_of(model(*args, **given))
    before = Snapshot(model)
    skip = ["compile"] if name in _QUICK else []
    done = optimize(model, inputs, skip=skip, budget=600.0, progress=False)
    _check_report(done.report)
    with torch.no_grad():
        for path, tensor in results_of(model(*args, **given)).items():
            torch.testing.assert_close(tensor, expected[path], atol=1e-4, rtol=1e-3)
    done.undo()
    assert before.change(model) == ""
    with torch.no_grad():
        found = results_of(model(*args, **given))
    for path, value in expected.items():
        assert (
            torch.equal(found[path], value) if isinstance(value, Tensor) else found[path] == value
        )
    again = apply_plan(model, done.plan)
    with torch.no_grad():
        for path, tensor in results_of(model(*args, **given)).items():
            torch.testing.assert_close(tensor, expected[path], atol=1e-4, rtol=1e-3)
    again.undo()


@pytest.mark.sweep
def test_generated_tokens_and_quantised_weights() -> None:
    torch.manual_seed(0)
    model, _ = _MODELS["llama"]()
    model.eval()

    def generate(model: Any) -> Any:
        return model.generate(_TOKENS[:1], max_new_tokens=4, min_new_tokens=4, do_sample=False)

    expected = generate(model)
    done = optimize(model, generate, tolerance=0.5, skip=["compile", "graphs"], progress=False)
    assert done.report is not None
    tried = {trial.variant for trial in done.report.trials if trial.after is not None}
    assert {"packed", "int8", "int4", "prompts"} <= tried
    done.undo()
    assert torch.equal(generate(model), expected)


_SECOND = """
import sys, torch, transformers
from torchyard.optimization import apply_plan
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
done = apply_plan(model, sys.argv[2])
print(len(done.plan.steps), type(model.lm_head.weight).__name__)
"""


@pytest.mark.sweep
def test_the_command_writes_a_plan_that_a_second_process_applies(tmp_path: Path) -> None:
    model, _ = _MODELS["llama"]()
    model.to(torch.bfloat16)
    folder, plan = tmp_path / "model", tmp_path / "plan.json"
    model.save_pretrained(folder)  # type: ignore[operator]
    skips = [word for name in ("compile", "graphs", "reuse") for word in ("--skip", name)]
    run = [sys.executable, "-m", "torchyard", "optimize", str(folder), "--plan", str(plan)]
    result = subprocess.run(
        [*run, "--tokens", "64", *skips], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert "times as fast" in result.stdout
    assert "weights packed: " in result.stdout
    second = subprocess.run(
        [sys.executable, "-c", _SECOND, str(folder), str(plan)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert second.returncode == 0, second.stderr
    assert result.stdout.count(": kept: ") == int(second.stdout.split()[0])
