"""Models of transformers are fine-tuned with dropout in attention as with torch's own attention."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")

from torchyard_attention.transformers import register  # noqa: E402

BATCH, LENGTH, STEPS, WINDOW = 8, 64, 200, 20
_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_MASK = 256


@pytest.fixture(autouse=True)
def registered():
    register("torchyard")


def bert(attention):
    config = transformers.BertConfig(
        vocab_size=257,
        intermediate_size=128,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        attn_implementation=attention,
        **_SMALL,
    )
    return transformers.BertForMaskedLM(config)


def gpt2(attention):
    config = transformers.GPT2Config(
        vocab_size=257,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=2,
        n_head=4,
        attn_pdrop=0.1,
        resid_pdrop=0.1,
        embd_pdrop=0.1,
        attn_implementation=attention,
    )
    return transformers.GPT2LMHeadModel(config)


MODELS = {"bert": bert, "gpt2": gpt2}


def text():
    """Return real text: the bytes of a module of the standard library."""
    return torch.tensor(list(Path(argparse.__file__).read_bytes()))


def batches(name):
    generator = torch.Generator().manual_seed(0)
    source = text()
    for _ in range(STEPS):
        starts = torch.randint(len(source) - LENGTH, (BATCH,), generator=generator).tolist()
        rows = torch.stack([source[start : start + LENGTH] for start in starts])
        if name == "gpt2":
            yield {"input_ids": rows, "labels": rows}
            continue
        hidden = torch.rand(rows.shape, generator=generator) < 0.15
        yield {
            "input_ids": rows.masked_fill(hidden, _MASK),
            "labels": rows.masked_fill(~hidden, -100),
        }


def losses(name, attention, seed):
    """Return the loss of each step; weights and text are the same for any seed."""
    torch.manual_seed(0)
    model = MODELS[name](attention).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    torch.manual_seed(seed)
    found = []
    for batch in batches(name):
        loss = model(**batch).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(float(loss.detach()))
    return torch.tensor(found).view(-1, WINDOW).mean(dim=1)


@pytest.mark.sweep
@pytest.mark.parametrize("name", MODELS)
def test_the_loss_falls_as_with_torchs_own_attention(name):
    theirs = torch.stack([losses(name, "sdpa", seed) for seed in (1, 2)])
    ours = losses(name, "torchyard", 1)
    spread = (theirs[0] - theirs[1]).abs().max()
    print(f"{name}: spread of two seeds {spread:.4f}; windows of {WINDOW} steps:")
    for label, curve in (("sdpa, 1", theirs[0]), ("sdpa, 2", theirs[1]), ("torchyard", ours)):
        print(f"  {label:9}", " ".join(f"{value:.3f}" for value in curve.tolist()))
    assert ours[-1] < 0.75 * ours[0], "it learns"
    assert (ours - theirs.mean(dim=0)).abs().max() <= 2 * spread


@pytest.mark.parametrize("name", MODELS)
def test_dropout_is_applied_in_training_alone(name):
    torch.manual_seed(0)
    model = MODELS[name]("torchyard").train()
    for place, module in model.named_modules():
        of_attention = place.endswith(("self.dropout", "attn_dropout"))
        if isinstance(module, torch.nn.Dropout) and not of_attention:
            module.p = 0.0
    batch = next(iter(batches(name)))
    torch.manual_seed(1)
    first, second = (model(**batch).logits for _ in range(2))
    assert not torch.equal(first, second), "attention drops"
    torch.manual_seed(1)
    assert torch.equal(model(**batch).logits, first)
    model.eval()
    assert torch.equal(model(**batch).logits, model(**batch).logits)
    expected = MODELS[name]("sdpa").eval()
    expected.load_state_dict(model.state_dict())
    torch.testing.assert_close(
        model(**batch).logits, expected(**batch).logits, rtol=1e-4, atol=1e-4
    )
