"""Measured tiles: what is faster and right is kept and used; what is wrong or slower is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from click.testing import CliRunner

from torchyard import MeasuredFile
from torchyard_triton import _measured_tiles, tuning
from torchyard_triton.attention import Tiles
from torchyard_triton.autotune import Finding, _trials, measure
from torchyard_triton.autotune import _search as search
from torchyard_triton.autotune._trials import TRIALS, Trial, trial_call

_DEFAULT: Final = Tiles(rows=32, keys=32)
_SIZES: Final[dict[str, Any]] = {"dtype": torch.float32, "head_dims": (16,), "length": 24}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own."""
    monkeypatch.setattr(_measured_tiles, "measured_path", lambda: tmp_path / "tiles.json")
    _measured_tiles._read.cache_clear()
    yield tmp_path
    _measured_tiles._read.cache_clear()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls and searches that an interpreter computes in a second."""
    monkeypatch.setattr(_trials, "_HEADS", 2)
    monkeypatch.setattr(_trials, "_KV_HEADS", 1)
    monkeypatch.setattr(search, "_TRIED", (("rows", (16, 32, 128)), ("keys", (32, 64))))


class _Clock:
    """Times that depend on the tiles alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost: Callable[[Tiles], float]) -> None:
        self._tiles: dict[int, Tiles] = {}
        self._runs: list[Any] = []
        self._cost = cost
        monkeypatch.setattr(
            search, "TRIALS", {name: self._noted(make) for name, make in TRIALS.items()}
        )

    def _noted(self, make: Callable[[Any, Tiles], Trial]) -> Callable[[Any, Tiles], Trial]:
        def made(call: Any, tiles: Tiles) -> Trial:
            trial = make(call, tiles)
            self._runs.append(trial.run)
            self._tiles[id(trial.run)] = tiles
            return trial

        return made

    def __call__(self, run: Callable[[], object]) -> float:
        return self._cost(self._tiles[id(run)])


def _find(kernel: str, clock: _Clock, device: torch.device) -> Finding:
    (found,) = measure((kernel,), lambda *_: _DEFAULT, timer=clock, device=device, **_SIZES)
    return found


@pytest.mark.parametrize("kernel", TRIALS)
def test_the_fastest_tiles_are_found_and_compute_the_same(
    kernel: str, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    half = _Clock(monkeypatch, lambda tiles: tiles.rows / 16 * 64 / tiles.keys)
    found = _find(kernel, half, device)
    assert (found.best, found.refused) == (Tiles(rows=16, keys=64), ())
    assert found.gain == 4.0


def test_what_is_not_clearly_faster_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    clock = _Clock(monkeypatch, lambda tiles: 1.0 if tiles == _DEFAULT else 0.98)
    found = _find("attention_forward", clock, device)
    assert (found.best, found.gain) == (_DEFAULT, 1.0)


def test_tiles_whose_results_differ_are_refused(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    make = TRIALS["attention_forward"]

    def broken(call: Any, tiles: Tiles) -> Trial:
        trial = make(call, tiles)
        if tiles.keys != 64:
            return trial
        return Trial(lambda: (trial.run(), trial.outputs[0].mul_(1.5)), trial.outputs)

    monkeypatch.setattr(search, "TRIALS", {"attention_forward": broken})
    times = iter(range(1000, 0, -1))
    (found,) = measure(
        ("attention_forward",),
        lambda *_: _DEFAULT,
        timer=lambda run: float(next(times)),
        device=device,
        **_SIZES,
    )
    assert found.best.keys != 64
    assert [text for text in found.refused if "results differ" in text and "keys=64" in text]


def test_tiles_that_do_not_compile_are_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    make = TRIALS["attention_forward"]

    def small(call: Any, tiles: Tiles) -> Trial:
        if tiles.rows > 64:
            raise RuntimeError("out of resource: shared memory\nmore")
        return make(call, tiles)

    monkeypatch.setattr(search, "TRIALS", {"attention_forward": small})
    (found,) = measure(
        ("attention_forward",),
        lambda *_: _DEFAULT,
        timer=lambda _: 1.0,
        device=device,
        **_SIZES,
    )
    assert [text for text in found.refused if text.endswith("out of resource: shared memory")]


def test_an_unknown_kernel_is_refused_by_name(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"kernels: expected some of attention_forward.*got 'x'"):
        list(measure(("x",), lambda *_: _DEFAULT, device=device))


def _tiles() -> Tiles:
    return tuning.tiles_for("sm_90", "attention_forward", 128)


def test_what_was_measured_is_used_on_its_architecture_for_its_heads_alone() -> None:
    table, best = _tiles(), Tiles(16, 128, 2, 3)
    assert best != table
    finding = Finding("attention_forward", 128, table, best, 1.2, ())
    file = _measured_tiles.store("sm_90", [finding])
    assert _tiles() == best
    assert tuning.table_tiles("sm_90", "attention_forward", 128) == table
    assert tuning.tiles_for("sm_90", "attention_forward", 64) == table
    assert tuning.tiles_for("sm_80", "attention_forward", 128) != best
    (machine,) = json.loads(file.read_text())["machines"].values()
    assert machine["attention_forward/128"]["gain"] == 1.2


def test_a_setting_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _tiles()
    _measured_tiles.store(
        "sm_90", [Finding("attention_forward", 128, table, Tiles(16, 16), 1.2, ())]
    )
    monkeypatch.setenv("TORCHYARD_TRITON_TUNED", "off")
    assert _tiles() == table


@pytest.mark.parametrize(
    "tiles",
    [
        {"rows": 48, "keys": 32, "warps": 4, "stages": 2},
        {"rows": 8, "keys": 32, "warps": 4, "stages": 2},
        {"rows": "32", "keys": 32, "warps": 4, "stages": 2},
        {"rows": 32, "keys": 32, "warps": 4},
    ],
)
def test_a_file_with_other_tiles_is_left_alone_with_a_warning(tiles: dict[str, Any]) -> None:
    table = _tiles()
    file = _measured_tiles.measured_path()
    machine = _measured_tiles._machine("sm_90")
    MeasuredFile(file).merge(machine, {"attention_forward/128": {"tiles": tiles}})
    _measured_tiles._read.cache_clear()
    with pytest.warns(UserWarning, match="not used, the table's tiles are"):
        assert _tiles() == table
    assert json.loads(file.read_text())["machines"][machine]


def test_the_command_refuses_a_device_that_is_not_there() -> None:
    from torchyard_triton.autotune.__main__ import command

    found = torch.accelerator.current_accelerator(check_available=True)
    absent = "xpu" if found is not None and found.type == "cuda" else "cuda"
    result = CliRunner().invoke(command, ["--device", absent])
    assert result.exit_code == 2
    text = f"expected a device of this machine, got {absent}: {found or 'no accelerator'}"
    assert text in result.output


def test_a_search_shows_rows_for_the_table(device: torch.device) -> None:
    from torchyard_triton.autotune.__main__ import found_by

    (found,) = found_by(
        *("sm_90", device, ("attention_forward",), (16,), 24, True), timer=lambda _: 1.0
    )
    assert found.default == found.best == tuning.table_tiles("sm_90", "attention_forward", 16)


def test_a_trial_needs_no_mask_and_has_a_gradient_for_its_slopes(device: torch.device) -> None:
    call = trial_call(device, torch.float32, 16, 24)
    assert call.mask is None
    assert call.captured_grad == (True,)
