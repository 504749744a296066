"""From a plugin to its trials: one per implementation, half and call, or why there can be none."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionRequest
from torchyard_conformance._attention._trial import trials
from torchyard_conformance._outcome import Unverified, unverified

from .toy_attention import Toy


@dataclass
class Plugin:
    """What laws ask of a subject."""

    contracts: tuple[str, ...] = (FORWARD, BACKWARD)
    devices: tuple[str, ...] = ("cpu",)
    quick: bool = True
    missing: str = ""
    failed: str = ""
    kernel: Toy = field(default_factory=Toy)

    def absence(self, device: str) -> str:
        return self.missing

    def implementations(self, contract: str, device: str = "") -> tuple[Implementation, ...]:
        if self.failed:
            unverified(self.failed)
        return (self.kernel.implementation(contract),) if contract in self.contracts else ()


def found(law: str, plugin: Plugin) -> dict[str, object]:
    return dict(trials(law)(plugin))  # type: ignore[arg-type]


def test_every_half_is_tried_on_every_call_of_the_law() -> None:
    names = set(found("numerics.attention-fresh-memory", Plugin()))

    assert {"toy.kernel@cpu/forward/plain", "toy.kernel@cpu/backward/plain"} <= names
    assert {name.split("/")[1] for name in names} == {"forward", "backward"}
    assert names < set(found("numerics.attention-fresh-memory", Plugin(quick=False)))


def test_a_law_of_one_half_is_tried_on_that_half_alone() -> None:
    names = found("truth.attention-gradients-match-reference", Plugin())

    assert {name.split("/")[1] for name in names} == {"backward"}
    assert not found("truth.attention-gradients-match-reference", Plugin(contracts=(FORWARD,)))


def test_a_plugin_of_another_contract_is_not_tried() -> None:
    assert not found("truth.attention-stated-form", Plugin(contracts=("tally/1",)))


def test_what_is_measured_is_recorded() -> None:
    trial = found("truth.attention-matches-reference", Plugin())["toy.kernel@cpu/forward/plain"]
    figures: dict[str, float | str] = {}

    trial.hold(figures.__setitem__)  # type: ignore[attr-defined]

    assert set(figures) == {"out", "lse"}
    assert all(0.0 < float(ratio) < 1.0 for ratio in figures.values())


@pytest.mark.parametrize("plugin", [Plugin(missing="no driver"), Plugin(failed="no driver")])
def test_what_cannot_be_tried_is_unverified(plugin: Plugin) -> None:
    for trial in found("truth.attention-stated-form", plugin).values():
        with pytest.raises(Unverified, match="no driver"):
            trial.hold(lambda name, value: None)  # type: ignore[attr-defined]


class NeedsALibrary(Toy):
    """Refuses some requests for their own sake, all others for a library."""

    def supports(self, request: AttentionRequest, platform: Platform) -> Verdict:
        own = super().supports(request, platform)
        missing = Verdict.no(ReasonCode.DEPENDENCY, "fast is not installed", "pip install fast")
        return missing if own.supported else own


def test_what_a_missing_library_would_accept_is_unverified() -> None:
    plugin = Plugin(contracts=(FORWARD,), kernel=NeedsALibrary())
    [trial] = found("truth.attention-accepts-something", plugin).values()

    with pytest.raises(Unverified, match=r"fast is not installed\. pip install fast"):
        trial.hold(lambda name, value: None)  # type: ignore[attr-defined]
