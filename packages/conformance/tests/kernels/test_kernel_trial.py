"""From a plugin to its trials before the laws of kernels, or why there can be none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_conformance._kernels._trial import trials
from torchyard_conformance._outcome import Unverified, unverified
from torchyard_conformance._trials._trial import Trial

from .sound_kernels import SoundTopK

_LAW = "truth.kernels-match-reference"


@dataclass
class Plugin:
    """What laws ask of a subject."""

    contracts: tuple[str, ...] = ("topk/1", "attention/1")
    devices: tuple[str, ...] = ("cpu",)
    quick: bool = True
    missing: str = ""
    failed: str = ""
    kernel: SoundTopK = field(default_factory=SoundTopK)

    def absence(self, device: str) -> str:
        return self.missing

    def implementations(self, contract: str, device: str = "") -> tuple[Implementation, ...]:
        if self.failed:
            unverified(self.failed)
        return (self.kernel.implementation(),)


def found(law: str, plugin: Plugin) -> dict[str, Trial]:
    return dict(trials(law)(plugin))  # type: ignore[arg-type]


def test_an_implementation_is_tried_on_the_calls_of_its_contract() -> None:
    quick, all_of_them = found(_LAW, Plugin()), found(_LAW, Plugin(quick=False))

    assert "sound.kernel@cpu/topk/float32" in quick
    assert set(quick) < set(all_of_them)
    assert set(found("truth.kernels-accept-something", Plugin())) == {"sound.kernel@cpu/topk"}


def test_a_law_of_another_contract_and_a_plugin_of_another_are_not_tried() -> None:
    assert not found("truth.linear-packed-weights", Plugin())
    assert not found(_LAW, Plugin(contracts=("attention/1",)))


def test_what_is_measured_is_recorded() -> None:
    figures: dict[str, float | str] = {}

    found(_LAW, Plugin())["sound.kernel@cpu/topk/float32"].hold(figures.__setitem__)

    assert figures == {"values": 0.0, "indices": 0.0}


@pytest.mark.parametrize("plugin", [Plugin(missing="no driver"), Plugin(failed="no driver")])
def test_what_cannot_be_tried_is_unverified(plugin: Plugin) -> None:
    held = found(_LAW, plugin)

    assert held
    for trial in held.values():
        with pytest.raises(Unverified, match="no driver"):
            trial.hold(lambda name, value: None)


def test_without_the_component_nothing_is_asked_of_the_plugin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torchyard_conformance._kernels._trial.find_spec", lambda name: None)

    [trial] = found(_LAW, Plugin(failed="was asked")).values()

    with pytest.raises(Unverified, match="torchyard-kernels is not installed"):
        trial.hold(lambda name, value: None)


class NeedsALibrary(SoundTopK):
    """Refuses every request for a library that is not installed."""

    def supports(self, request: Any, platform: Platform) -> Verdict:
        return Verdict.no(ReasonCode.DEPENDENCY, "fast is not installed", "pip install fast")


def test_what_a_missing_library_would_accept_is_unverified() -> None:
    [trial] = found("truth.kernels-accept-something", Plugin(kernel=NeedsALibrary())).values()

    with pytest.raises(Unverified, match=r"fast is not installed\. pip install fast"):
        trial.hold(lambda name, value: None)
