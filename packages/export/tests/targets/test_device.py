"""Machine code for an accelerator names it, and is refused by name where another one is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch

from torchyard import Accelerator, Platform, ReasonCode, probe_platform, read_platform_file
from torchyard_export import Artifact, ArtifactError, export
from torchyard_export._torch_compat import generates_code
from torchyard_export.contract import CONTRACT, DEFINITIONS, ExportRequest, TargetError
from torchyard_export.targets import _device, aotinductor, torchyard_implementations
from torchyard_export.targets._device import (
    accelerator_in_use,
    accelerator_of,
    check_device,
    description,
    device_of,
    versions_of,
)

_H100: Final = read_platform_file("h100").platform
_TARGETS: Final = ("export.aotinductor", "export.aotinductor_native")


def _without(platform: Platform, library: str) -> Platform:
    kept = tuple(item for item in platform.libraries if item[0] != library)
    return replace(platform, libraries=kept)


def _of(platform: Platform) -> Accelerator:
    return platform.accelerators[0]


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize(
    ("device", "loads", "platform", "code"),
    [
        ("cpu", False, read_platform_file("cpu-avx2").platform, None),
        ("cuda", False, read_platform_file("cpu-avx2").platform, ReasonCode.DEVICE),
        ("cuda", True, read_platform_file("cpu-avx2").platform, ReasonCode.DEVICE),
        ("cuda", False, _H100, None),
        ("cuda", False, _without(_H100, "triton"), ReasonCode.DEPENDENCY),
        ("cuda", True, _without(_H100, "triton"), None),
        ("cuda", False, read_platform_file("mi300x").platform, None),
        ("xpu", False, _H100, ReasonCode.DEVICE),
        ("xpu", False, read_platform_file("arc-b580").platform, None),
        (
            *("xpu", False, _without(read_platform_file("arc-b580").platform, "triton")),
            ReasonCode.DEPENDENCY,
        ),
        ("mps", False, read_platform_file("m4").platform, None),
    ],
)
def test_the_verdict_is_of_the_device_and_of_what_compiles_for_it(
    target: str, device: str, loads: bool, platform: Platform, code: ReasonCode | None
) -> None:
    found = {item.name: item for item in torchyard_implementations(CONTRACT)}
    verdict = found[target].supports(ExportRequest(device, loads=loads), platform)
    assert verdict.code is code, verdict
    assert verdict.supported is (code is None)
    assert (device in verdict.text and bool(verdict.hint)) or code is None


# Torch's compiler is imported for it.
@pytest.mark.sweep
def test_a_device_without_a_code_generator_is_refused() -> None:
    assert generates_code("cpu")
    assert not generates_code("meta")
    machine = replace(probe_platform(), devices=frozenset({"cpu", "meta"}))
    found = {item.name: item for item in torchyard_implementations(CONTRACT)}
    verdict = found["export.aotinductor"].supports(ExportRequest("meta"), machine)
    assert verdict.code is ReasonCode.DEVICE
    assert "generates code for, got 'meta'" in verdict.text


def test_a_request_that_loads_is_written_as_text() -> None:
    parsed = DEFINITIONS[CONTRACT].parse({"device": "xpu", "loads": "yes"})
    assert parsed == ExportRequest("xpu", frozenset(), True, loads=True)
    assert parsed.bucket() == "xpu load"
    with pytest.raises(ValueError, match="loads: expected yes or no, got 'maybe'"):
        DEFINITIONS[CONTRACT].parse({"loads": "maybe"})


def test_a_package_says_what_it_was_compiled_for() -> None:
    said = description(_of(_H100), _H100)
    assert device_of(said) == "cuda"
    assert said["TORCHYARD_ARCHITECTURE"] == "sm_90"
    assert said["TORCHYARD_RUNTIME"] == _of(_H100).runtime
    assert f"triton {_H100.library('triton')}" in said["TORCHYARD_LIBRARIES"]
    assert versions_of(_of(_H100), _H100)["device"] == f"sm_90 {_of(_H100).name}"
    check_device(said, _of(_H100))
    check_device(said, _of(read_platform_file("h200").platform))


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (
            description(_of(_H100), _H100),
            r"type 'cuda' and architecture 'sm_90', .* got 'sm_100' \(NVIDIA B200\); export the",
        ),
        ({"AOTI_DEVICE_KEY": "cuda"}, "metadata: expected TORCHYARD_ARCHITECTURE, .* export the"),
    ],
)
def test_code_for_another_architecture_is_refused(said: Mapping[str, str], match: str) -> None:
    with pytest.raises(TargetError, match=match):
        check_device(said, _of(read_platform_file("b200").platform))


def test_code_for_a_device_that_is_not_here_is_refused() -> None:
    host = read_platform_file("cpu-avx2").platform
    assert device_of({"AOTI_DEVICE_KEY": "xpu"}) == "xpu"
    assert device_of({}) == "cpu"
    with pytest.raises(
        TargetError, match="type 'xpu', which the machine code is for, got cpu; use"
    ):
        accelerator_of("xpu", host, "")
    # Present, and nothing more is known of it.
    known = replace(host, devices=frozenset({"cpu", "own"}))
    assert accelerator_of("own", known, "") == Accelerator("own", "", "")


def test_of_two_models_the_one_in_use_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(_of(_H100), name="NVIDIA T4", architecture="sm_75")
    both = replace(_H100, accelerators=(_of(_H100), other))
    names = [_of(_H100).name, "NVIDIA T4"]
    module = SimpleNamespace(
        get_device_properties=lambda device: SimpleNamespace(name=names[device.index]),
    )
    monkeypatch.setattr(_device, "with_accelerators", lambda platform, device: both)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    assert accelerator_in_use(torch.device("cuda", 1))[1].architecture == "sm_75"
    assert accelerator_in_use(torch.device("cuda", 0))[1].architecture == "sm_90"


def test_an_artifact_for_an_absent_device_says_so() -> None:
    absent = "xpu" if torch.cuda.is_available() else "cuda"
    made = export(torch.nn.Linear(3, 2).eval(), (torch.randn(4, 3),))
    described = {"implementation": "export.aotinductor", "native": True, "versions": {}}
    manifest = replace(made.manifest, device=absent, targets={"aotinductor": described})
    members = {
        "manifest.json": manifest.to_bytes(),
        "report.json": made._members["report.json"],
        "targets/aotinductor/model.pt2": b"",
    }
    artifact = Artifact(members, made=True)
    match = f"target 'aotinductor': expected a device of type '{absent}'"
    with pytest.raises(ArtifactError, match=match):
        artifact.runner("aotinductor")


# A compiler takes a while over it.
@pytest.mark.sweep
def test_facts_of_the_accelerator_travel_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = [_H100]

    def in_use(device: Any) -> tuple[Platform, Accelerator]:
        return machine[0], _of(machine[0])

    # Code for the CPU, as if its program were on the accelerator.
    monkeypatch.setattr(aotinductor, "_device", lambda program: torch.device("cuda"))
    monkeypatch.setattr(aotinductor, "accelerator_in_use", in_use)
    example = (torch.randn(4, 3),)
    made = export(torch.nn.Linear(3, 2).eval(), example, targets=["aotinductor_native"])
    said = aotinductor.metadata(made.files("aotinductor_native")["model.pt2"])
    assert (device_of(said), said["AOTI_DEVICE_KEY"]) == ("cuda", "cpu")
    assert said["TORCHYARD_ARCHITECTURE"] == "sm_90"
    assert made.manifest.versions["device"] == f"sm_90 {_of(_H100).name}"
    machine[0] = replace(_H100, accelerators=(replace(_of(_H100), driver="999.1"),))
    report = made.verify()
    assert report.passed
    assert f"driver: made with {_of(_H100).driver}, verified with 999.1" in report.notes
    machine[0] = read_platform_file("b200").platform
    other = Artifact(made._members, made=True)
    with pytest.raises(ArtifactError, match=r"architecture 'sm_90', .* got 'sm_100'"):
        other(*example)
