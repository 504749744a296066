"""Tunables: a table of defaults, a call's own, and what a machine measured. They change no result
but in its last bits."""

from __future__ import annotations

import json
import multiprocessing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard_attention import create_block_mask, flex_attention, masks
from torchyard_cpu import _native
from torchyard_cpu._tuning import machine_file
from torchyard_cpu._tuning.autotune import command
from torchyard_cpu._tuning.tunables import BOUNDS, FROZEN, Tunables, checked, frozen, with_options


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine_file, "path", lambda: tmp_path / "cpu-tunables.json")
    monkeypatch.delenv("TORCHYARD_CPU_TUNED", raising=False)
    return tmp_path / "cpu-tunables.json"


def test_every_default_is_within_its_bounds_dated_and_explained() -> None:
    assert FROZEN[-1].isa == "*"
    for line in FROZEN:
        checked(line.values._asdict(), "FROZEN")
        date.fromisoformat(line.date)
        assert len(line.reason) > 40
    assert set(BOUNDS) == set(Tunables._fields)


@given(
    values=st.fixed_dictionaries(
        {
            name: st.integers(-(-least // step), min(most // step, 40 * step))
            .map(lambda n, step=step: n * step)
            .filter(lambda n, least=least: n >= least)
            if name != "backward_bytes"
            else st.integers(least, most)
            for name, (least, most, step) in BOUNDS.items()
        }
    ),
    rows=st.integers(1, 70),
    keys=st.integers(1, 300),
)
@settings(max_examples=25)
def test_every_value_gives_the_same_result_and_gradients(
    values: dict[str, int], rows: int, keys: int
) -> None:
    generator = torch.Generator().manual_seed(rows * 301 + keys)
    query = torch.randn(1, 4, rows, 16, generator=generator, requires_grad=True)
    key, value = (
        torch.randn(1, 2, keys, 16, generator=generator, requires_grad=True) for _ in range(2)
    )
    mask = create_block_mask(masks.causal, None, None, rows, keys, device="cpu")

    def run(options: dict[str, Any] | None) -> tuple[torch.Tensor, ...]:
        out = flex_attention(
            query, key, value, block_mask=mask, enable_gqa=True, kernel_options=options
        )
        return out, *torch.autograd.grad(out.square().sum(), (query, key, value))

    tuned = run({f"cpu.{name}": size for name, size in values.items()})
    torch.testing.assert_close(tuned, run(None), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"cpu.rows": 8}, ValueError, "kernel_options: 'rows': unknown; known: rows_per_item"),
        ({"cpu.rows_per_item": 0}, ValueError, "rows_per_item: expected an integer from 1 to"),
        ({"cpu.keys_per_split": 100}, ValueError, "a multiple of 64, got 100"),
        ({"cpu.rows_per_item": 1.5}, TypeError, "cpu.rows_per_item: expected an integer, got 1.5"),
        ({"cpu.rows_per_item": True}, TypeError, "expected an integer, got True"),
    ],
)
def test_a_wrong_option_is_named(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    query = torch.randn(1, 1, 40, 8)
    with pytest.raises(error, match=text):
        flex_attention(query, query, query, kernel_options=options)


def test_options_of_torch_and_of_other_plugins_have_no_effect() -> None:
    query = torch.randn(1, 1, 40, 8)
    other = flex_attention(query, query, query, kernel_options={"BLOCK_M": 32, "other.rows": 3})
    assert torch.equal(other, flex_attention(query, query, query))
    base = frozen("*")
    assert with_options(base, (("other.rows_per_item", 3),)) == base


def test_what_was_measured_is_used_on_the_same_machine_only(cache: Path) -> None:
    base, features = frozen("*"), frozenset(_native.cpu_features())
    found = {"kernel_a": {"tunables": {"rows_per_item": 7}, "gain": {}, "date": "2026-01-01"}}
    machine_file.store(found, features)
    assert machine_file.tuned("kernel_a", base, features) == base._replace(rows_per_item=7)
    assert machine_file.tuned("kernel_b", base, features) == base
    assert machine_file.tuned("kernel_a", base, features | {"another"}) == base


def test_measuring_can_be_switched_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, features = frozen("*"), frozenset(_native.cpu_features())
    machine_file.store({"kernel_a": {"tunables": {"rows_per_item": 7}}}, features)
    monkeypatch.setenv("TORCHYARD_CPU_TUNED", "off")
    assert machine_file.tuned("kernel_a", base, features) == base


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"schema": 2}',
        '{"schema": 1, "machines": 3}',
        '{"schema": 1, "machines": {"M": {"kernel_a": {"tunables": {"rows_per_item": 0}}}}}',
        '{"schema": 1, "machines": {"M": {"kernel_a": {"tunables": {"nothing": 1}}}}}',
        '{"schema": 1, "machines": {"M": {"kernel_a": []}}}',
    ],
)
def test_a_file_that_does_not_fit_is_named_and_left_alone(cache: Path, content: str) -> None:
    base, features = frozen("*"), frozenset(_native.cpu_features())
    cache.write_text(content.replace("M", machine_file.machine(features)))
    before = cache.read_text()
    with pytest.warns(UserWarning, match="not used, the defaults are"):
        assert machine_file.tuned("kernel_a", base, features) == base
    assert cache.read_text() == before


def _store(folder: str, number: int) -> None:
    machine_file.path = lambda: Path(folder, "cpu-tunables.json")
    for i in range(5):
        machine_file.store(
            {f"kernel_{number}_{i}": {"tunables": {"rows_per_item": 8}}}, frozenset()
        )


def test_processes_that_write_at_once_lose_nothing(cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_store, args=(str(cache.parent), n)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=300)
    assert [worker.exitcode for worker in workers] == [0] * 4
    (kernels,) = json.loads(cache.read_text())["machines"].values()
    assert len(kernels) == 20


def test_the_command_measures_keeps_and_reports(cache: Path) -> None:
    arguments = ["--turns", "1", "--size", "0.05", "--json"]
    dry = CliRunner().invoke(command, [*arguments, "--dry-run"], catch_exceptions=False)
    assert dry.exit_code == 0
    assert json.loads(dry.output)["file"] is None
    assert not cache.exists()

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert {row["tunable"] for row in report["found"]} == set(Tunables._fields)
    kernels = json.loads(cache.read_text())["machines"][report["machine"]]
    assert set(kernels) == {row["kernel"] for row in report["found"]}
    for row in report["found"]:
        kept = kernels[row["kernel"]]["tunables"].get(row["tunable"], row["default"])
        assert kept == row["best"]
        assert (row["gain"] == 1.0) == (row["best"] == row["default"])
