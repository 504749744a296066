"""Models as people have them: speech, characters, an attention decoder of one's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLstmCtc(nn.Module):
    """A speech recogniser: two convolutions over frames, a packed BiLSTM, log-probabilities."""

    def __init__(self, mels: int = 16, hidden: int = 24, labels: int = 12) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(mels, hidden, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 3, padding=1),
            nn.ReLU(),
        )
        self.norm = nn.LayerNorm(hidden)
        self.rnn = nn.LSTM(hidden, hidden, 2, bidirectional=True, batch_first=True, dropout=0.1)
        self.labels = nn.Linear(2 * hidden, labels)

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.front(frames.transpose(1, 2)).transpose(1, 2))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        found = self.rnn(packed)[0]
        padded, ends = pad_packed_sequence(found, batch_first=True, total_length=frames.shape[1])
        return self.labels(padded).log_softmax(-1), ends


class Decoder(nn.Module):
    """Some frames of a Tacotron-style decoder: each feeds the next, and state goes in and out.

    The memory's length is free, the frames of a call are fixed: a longer utterance is more calls.
    """

    frames = 4

    def __init__(self, mels: int = 8, hidden: int = 16) -> None:
        super().__init__()
        self.prenet = nn.Sequential(nn.Linear(mels, hidden), nn.ReLU())
        self.first = nn.LSTMCell(2 * hidden, hidden)
        self.second = nn.LSTMCell(2 * hidden, hidden)
        self.query = nn.Linear(hidden, hidden)
        self.mel = nn.Linear(2 * hidden, mels)

    def forward(
        self, memory: Tensor, mask: Tensor, frame: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        h1, c1, h2, c2, context = state
        frames, weights = [], []
        for _ in range(self.frames):
            h1, c1 = self.first(torch.cat([self.prenet(frame), context], -1), (h1, c1))
            scores = (memory @ self.query(h1)[..., None]).squeeze(-1)
            attention = scores.masked_fill(~mask, float("-inf")).softmax(-1)
            context = (attention[:, None] @ memory).squeeze(1)
            h2, c2 = self.second(torch.cat([h1, context], -1), (h2, c2))
            frame = self.mel(torch.cat([h2, context], -1))
            frames.append(frame)
            weights.append(attention)
        return torch.stack(frames, 1), torch.stack(weights, 1), (h1, c1, h2, c2, context)


class CharGru(nn.Module):
    """A language model of characters that streams: a chunk and a state in, scores and state out."""

    def __init__(self, characters: int = 30, hidden: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, hidden)
        self.rnn = nn.GRU(hidden, hidden, 2, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, characters)

    def forward(self, text: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        steps, state = self.rnn(self.embed(text), state)
        return self.out(self.norm(steps)), state


def calls() -> dict[str, dict[str, Any]]:
    """Return what is exported, by name, as arguments of export."""
    torch.manual_seed(0)
    hidden = 16
    return {
        "BiLSTM-CTC": {
            "model": BiLstmCtc().eval(),
            "args": (torch.randn(3, 20, 16), torch.tensor([20, 7, 13])),
            "dynamic": {
                "frames": {0: "batch:1..8", 1: "time:1..400"},
                "lengths": {0: "batch"},
            },
            "values": {"lengths": (1, "time")},
        },
        "Tacotron-style decoder": {
            "model": Decoder().eval(),
            "args": (
                torch.randn(2, 9, hidden),
                torch.ones(2, 9, dtype=torch.bool),
                torch.zeros(2, 8),
                tuple(torch.zeros(2, hidden) for _ in range(5)),
            ),
            "dynamic": {
                "memory": {0: "batch:1..8", 1: "time:1..200"},
                "mask": {0: "batch", 1: "time"},
                "frame": {0: "batch"},
                "state": tuple({0: "batch"} for _ in range(5)),
            },
        },
        "char-GRU": {
            "model": CharGru().eval(),
            "args": (torch.randint(0, 30, (2, 11)), torch.zeros(2, 2, 32)),
            "dynamic": {"text": {0: "batch:1..8", 1: "time:1..300"}, "state": {1: "batch"}},
        },
    }
