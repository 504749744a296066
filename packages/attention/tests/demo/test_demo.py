"""The demo's parts: the text, the model, the ways to attend, generation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from torchyard_attention.demo import _device
from torchyard_attention.demo._comparison import NothingToCompareError, Race, _trials
from torchyard_attention.demo._generation import Choice, Session, continuation, decode
from torchyard_attention.demo._model import Transformer, seeded_model
from torchyard_attention.demo._parity import compare_results
from torchyard_attention.demo._settings import QUICK, Settings, Size
from torchyard_attention.demo._text import TextError, collect_text
from torchyard_attention.demo._training import take_step
from torchyard_attention.demo._ways import Slopes, Way
from torchyard_attention.demo._ways._ours import Ours
from torchyard_attention.demo._ways._stock import (
    DECODING,
    TRAINING,
    BiasRow,
    DenseBias,
    Stock,
    StockFlex,
    WindowLoop,
)

SIZE = Size(layers=2, heads=4, head_dim=8, length=64, window=16, batch=2)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def slopes() -> Slopes:
    return Slopes.of(SIZE, CPU)


@pytest.fixture
def model() -> Transformer:
    model = seeded_model(SIZE, 0, CPU)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5.0)  # far from uniform, so that an error shows
    return model


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(None, CPU, torch.float32, 0, "x", tmp_path, SIZE, QUICK)


def _bytes(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(1))


def _stock(slopes: Slopes) -> Stock:
    dense = DenseBias(slopes, torch.float32)
    return Stock(dense, dense, BiasRow(slopes, torch.float32), SIZE.length)


@pytest.mark.sweep
def test_text_is_the_same_every_time_and_holds_a_tenth_out() -> None:
    first, second = collect_text(None, 1024), collect_text(None, 1024)
    assert torch.equal(first.train, second.train)
    assert torch.equal(first.held_out, second.held_out)
    total = len(first.train) + len(first.held_out)
    assert total > 1 << 20
    assert len(first.held_out) == pytest.approx(total / 10, abs=1)
    assert 1.0 < first.unigram_loss() < 5.0


def test_text_of_a_folder_leaves_out_binary_files_and_tests(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("word " * 400)
    (tmp_path / "image.bin").write_bytes(b"\x00\xff" * 400)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "not.txt").write_text("no " * 400)
    text = collect_text(tmp_path, 16)
    assert text.files == 1
    assert len(text.train) + len(text.held_out) == 2000


def test_judged_sequences_are_within_the_held_out_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0123456789" * 100)
    text = collect_text(tmp_path / "a.txt", 32)
    assert text.judged(8, 32).shape == (3, 33)
    assert text.batch(5, 32, torch.Generator().manual_seed(0)).shape == (5, 33)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "got nothing at"), (b"\x00\x01" * 999, "binary"), (b"short", "at least 660 bytes")],
)
def test_text_that_cannot_be_learned_is_refused(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TextError, match=message):
        collect_text(path, 64)


def test_a_byte_changes_nothing_before_it_and_nothing_beyond_the_windows(
    model: Transformer, slopes: Slopes
) -> None:
    sequence = _bytes(1, SIZE.length)
    changed = sequence.clone()
    place = 10
    changed[0, place] ^= 1
    attend = Ours(slopes).whole(SIZE.length)
    with torch.no_grad():
        moved = (model(sequence, attend) != model(changed, attend)).any(dim=2)[0]
    reach = SIZE.layers * (SIZE.window - 1)
    assert not moved[:place].any()
    assert moved[place : place + reach + 1].any()
    assert moved[place + SIZE.window]
    assert not moved[place + reach + 1 :].any()


@pytest.mark.parametrize("kind", TRAINING[:-1], ids=lambda kind: kind.__name__)
def test_stock_formulations_of_a_sequence_compute_what_ours_does(
    kind: type[DenseBias | WindowLoop], slopes: Slopes
) -> None:
    generator = torch.Generator().manual_seed(2)
    shape = (3, 2, SIZE.heads, SIZE.length, SIZE.head_dim)
    inputs = torch.randn(shape, generator=generator, requires_grad=True)
    slope = torch.randn(shape[1:], generator=generator)
    expected = Ours(slopes).whole(SIZE.length)(*inputs)
    found = kind(slopes, torch.float32).attend(SIZE.length)(*inputs)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(out, inputs, slope)[0] for out in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", DECODING, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("position", [0, 5, 15, 16, 37])
def test_stock_formulations_of_one_query_compute_what_ours_does(
    kind: type[BiasRow], position: int, slopes: Slopes
) -> None:
    generator = torch.Generator().manual_seed(3)
    filled = min(position + 1, SIZE.window)
    key, value = torch.randn(2, 1, SIZE.heads, filled, SIZE.head_dim, generator=generator)
    query = torch.randn(1, SIZE.heads, 1, SIZE.head_dim, generator=generator)
    expected = Ours(slopes).one(position)(query, key, value)
    found = kind(slopes, torch.float32).attend(position)(query, key, value)
    torch.testing.assert_close(found, expected)


def test_stock_flex_attention_cannot_train_on_cpu(slopes: Slopes) -> None:
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        StockFlex(slopes, torch.float32).attend(SIZE.length)


@pytest.mark.parametrize("prompt_length", [1, 7, 16, 40])
def test_cached_generation_is_what_full_forwards_give(
    prompt_length: int, model: Transformer, slopes: Slopes, settings: Settings
) -> None:
    # In float64, so that no rounding hides an error or breaks a tie.
    settings = replace(settings, dtype=torch.float64)
    model, ours = model.double(), Ours(slopes)
    prompt = _bytes(prompt_length)
    session = Session(model, ours, settings)
    written = torch.cat(list(continuation(session, prompt, 40, Choice())))
    known = prompt
    reference = Session(model, ours, settings)
    logits = reference.read(prompt)
    for byte in written:
        with torch.no_grad():
            full = model(known[None], ours.whole(len(known)))[0, -1]
        torch.testing.assert_close(logits, full, rtol=1e-9, atol=1e-9)
        assert byte == full.argmax()
        known = torch.cat([known, byte[None]])
        logits = reference.feed(byte[None])


def test_sampling_follows_its_seed(model: Transformer, slopes: Slopes, settings: Settings) -> None:
    def sample(seed: int) -> list[int]:
        session = Session(model, Ours(slopes), settings)
        choice = Choice(torch.Generator().manual_seed(seed))
        return torch.cat(list(continuation(session, _bytes(4), 12, choice))).tolist()

    assert sample(0) == sample(0) != sample(1)


def test_decoded_bytes_cannot_steer_a_terminal() -> None:
    assert decode(torch.tensor(list(b"a\n\x1b[2J\xff"))) == "a\n\ufffd[2J\ufffd"


def test_parity_of_ours_and_stock_holds(
    model: Transformer, slopes: Slopes, settings: Settings
) -> None:
    parity = compare_results(
        model, Ours(slopes), _stock(slopes), _bytes(2, SIZE.length + 1), _bytes(20), 24, settings
    )
    assert parity.holds
    assert parity.same_bytes + parity.near_ties == 24
    assert max(parity.loss, parity.gradient, parity.logits) < 1e-5


def test_parity_fails_where_one_side_is_wrong(
    model: Transformer, slopes: Slopes, settings: Settings
) -> None:
    wrong: Way = _stock(Slopes(SIZE.window, slopes.heads * 1.1))
    parity = compare_results(
        model, Ours(slopes), wrong, _bytes(2, SIZE.length + 1), _bytes(20), 8, settings
    )
    assert not parity.holds


def test_a_step_learns_the_same_with_ours_and_stock(slopes: Slopes, settings: Settings) -> None:
    losses = []
    for way in (Ours(slopes), _stock(slopes)):
        model = seeded_model(SIZE, 0, CPU)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        batches = [_bytes(2, SIZE.length + 1)] * 3
        losses.append(
            [float(take_step(model, optimizer, batch, way, settings)) for batch in batches]
        )
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][0] > losses[0][-1]


def test_ratios_are_of_rounds_not_of_medians() -> None:
    race = Race(ours=(1.0, 10.0, 1.0), stock=(2.0, 30.0, 1.0))
    assert race.ratio() == (2.0, 1.0, 3.0)


def test_refusals_are_kept_and_leave_nothing_to_compare(slopes: Slopes) -> None:
    flex = StockFlex(slopes, torch.float32)
    with pytest.raises(NothingToCompareError, match="does not support backward"):
        _trials("ours", Ours(slopes).whole, [flex], SIZE.length, lambda attend: None)


@pytest.mark.parametrize(("alone", "expected"), [(1.0, 2), (1.9, 1), (5.0, 1)])
def test_threads_that_do_not_help_are_not_used(
    alone: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(2)
    paces = iter([2.0, alone])
    monkeypatch.setattr(_device, "_pace", lambda: next(paces))
    assert _device.use_fastest_threads() == expected == torch.get_num_threads()
