"""An installed plugin with a sound kernel and a broken one, before the laws that ask the registry
too: what fails, the smallest call that shows it, and the line that tries it again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from packages.conformance.tests.attention import toy_attention
from packages.conformance.tests.attention.kernel_table import INSTALLED
from torchyard_conformance import LawResult, Status
from torchyard_conformance._runs._events import read_progress

_MANIFEST = """
schema = 1
name = "toy"
summary = "A sound kernel and a broken one"
[requires]
torchyard = ">=0.1.0.dev0"
[[implements]]
contract = "attention/1"
module = "toy_plugin.offers"
devices = ["cpu"]
[[implements]]
contract = "attention_backward/1"
module = "toy_plugin.offers"
devices = ["cpu"]
"""

_OFFERS = """
from torchyard import hookimpl
from toy_plugin.toy_attention import Toy


class Broken(Toy):
    name = "toy.broken"

    def spread(self, call, tensor):
        group = call.query.shape[1] // max(1, tensor.shape[1])
        return tensor.double().repeat(1, group, 1, 1)


@hookimpl
def torchyard_implementations(contract):
    return [toy().implementation(contract) for toy in (Toy, Broken)]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[LawResult]:
    """Hold the installed plugin to the truth laws, in a process of its own."""
    site = tmp_path_factory.mktemp("site")
    package, info = site / "toy_plugin", site / "toy_plugin-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").touch()
    (package / "torchyard.toml").write_text(_MANIFEST)
    (package / "offers.py").write_text(_OFFERS)
    toy = Path(toy_attention.__file__).read_text(encoding="utf-8")
    (package / "toy_attention.py").write_text(toy, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchyard.plugins]\ntoy = toy_plugin:torchyard.toml\n")
    found = site / "results"
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs"),
            *("torchyard_conformance._laws.truth", "--torchyard-plugin=toy"),
            *("--torchyard-profile=smoke", f"--torchyard-results={found}"),
        ],
        env={**os.environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        cwd=site,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    return read_progress(found).results


@pytest.mark.sweep
def test_the_sound_kernel_keeps_the_laws_of_truth(results: list[LawResult]) -> None:
    sound = [item for item in results if item.case.startswith("toy.kernel@cpu/")]
    ended = Counter(item.status for item in sound)

    assert not [item for item in sound if item.status is Status.FAIL]
    assert ended[Status.PASS] > ended[Status.NOT_SUPPORTED]
    passed = {item.law for item in sound if item.status is Status.PASS}
    assert passed >= INSTALLED


@pytest.mark.sweep
def test_the_broken_kernel_is_named_with_the_smallest_call_and_a_command(
    results: list[LawResult],
) -> None:
    failed = [item for item in results if item.status is Status.FAIL]
    one = next(item for item in failed if item.case == "toy.broken@cpu/forward/grouped-2")

    assert {item.case.partition("@")[0] for item in failed} == {"toy.broken"}
    assert {item.law for item in failed} >= {"truth.attention-matches-reference"}
    assert "q_heads 4" in one.smallest
    assert "kv_heads 2" in one.smallest
    assert "times the bound" in one.text
    assert f"--case '{one.name}'" in one.reproduce
