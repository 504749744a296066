"""Verdicts of the libraries follow from request and machine; their absence is one of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard import Platform, ReasonCode, Registry, Verdict, read_platform_file
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionRequest, MaskKind, ScoreKind
from torchyard_rocm.attention import torchyard_implementations
from torchyard_rocm.attention._libraries import LIBRARIES
from torchyard_rocm.attention._verdict import supports

_BY_NAME: Final = {library.name: library for library in LIBRARIES}
_REQUEST: Final = AttentionRequest("cuda", "bfloat16", 1, 32, 8, 2048, 2048, 128, 128)
_INSTALLED: Final = {"aiter": "0.1.20.post1", "flash-attn": "2.8.4"}
_MACHINES: Final = ("mi250x", "mi300x", "mi355x", "rx9070", "strix-halo", "h100", "cpu-avx512")


def _machine(name: str = "mi300x", **libraries: str) -> Platform:
    """Return a machine with both libraries, or with others; an empty version is none."""
    found = read_platform_file(name).platform
    changes = {known.replace("_", "-"): version for known, version in libraries.items()}
    versions = {**dict(found.libraries), **_INSTALLED, **changes}
    return replace(found, libraries=tuple(sorted((n, v) for n, v in versions.items() if v)))


def _judged(name: str, platform: Platform | None = None, **changes: Any) -> Verdict:
    machine = _machine() if platform is None else platform
    return supports(replace(_REQUEST, **changes), machine, library=_BY_NAME[name])


@pytest.mark.parametrize(
    ("name", "machines"),
    [("aiter", {"mi300x", "mi355x"}), ("flash", {"mi250x", "mi300x", "mi355x"})],
)
def test_machines_that_they_have_kernels_for(name: str, machines: set[str]) -> None:
    verdicts = {machine: _judged(name, _machine(machine)) for machine in _MACHINES}
    assert {machine for machine, verdict in verdicts.items() if verdict.supported} == machines
    for machine, verdict in verdicts.items():
        if machine not in machines:
            absent = machine.startswith("cpu")
            assert verdict.code == (ReasonCode.DEVICE if absent else ReasonCode.ISA)


@pytest.mark.parametrize("name", _BY_NAME)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"dtype": "float16"}, None),
        ({"mask": MaskKind.CAUSAL}, None),
        ({"grad": True, "lse": True, "deterministic": True}, None),
        ({"unit_stride": False}, None),
        ({"head_dim": 256, "value_dim": 256}, None),
        ({"head_dim": 8, "value_dim": 8}, None),
        ({"device": "cpu"}, ReasonCode.DEVICE),
        ({"dtype": "float32"}, ReasonCode.DTYPE),
        ({"dropout": True}, ReasonCode.DROPOUT),
        ({"score": ScoreKind.POINTWISE}, ReasonCode.SCORE_MOD),
        ({"mask": MaskKind.BLOCKS, "block_size": (128, 128)}, ReasonCode.MASK),
        ({"page_size": 16}, ReasonCode.LAYOUT),
        ({"max_scores": True}, ReasonCode.OUTPUT),
        ({"q_length": 0}, ReasonCode.SHAPE),
        ({"kv_length": 0}, ReasonCode.SHAPE),
        ({"batch": 0}, ReasonCode.SHAPE),
        ({"head_dim": 12, "value_dim": 12}, ReasonCode.HEAD_DIM),
        ({"head_dim": 264, "value_dim": 264}, ReasonCode.HEAD_DIM),
        ({"head_dim": 0, "value_dim": 0}, ReasonCode.HEAD_DIM),
        ({"value_dim": 64}, ReasonCode.HEAD_DIM),
    ],
)
def test_each_limit(name: str, changes: dict[str, Any], code: str | None) -> None:
    verdict = _judged(name, **changes)
    assert verdict.code == code, verdict.text


def test_heads_of_two_sizes_are_aiters_alone() -> None:
    sizes = {"head_dim": 192, "value_dim": 128}
    assert _judged("aiter", **sizes).supported
    assert _judged("flash", **sizes).code == ReasonCode.HEAD_DIM


@pytest.mark.parametrize(
    ("name", "library", "old"), [("aiter", "aiter", "0.1.6"), ("flash", "flash_attn", "2.5.9")]
)
def test_absent_and_old_libraries(name: str, library: str, old: str) -> None:
    absent = _judged(name, _machine(**{library: ""}))
    assert absent.code == ReasonCode.DEPENDENCY
    assert absent.hint
    assert absent.hint.startswith("pip install")
    for version in (old, "unknown"):
        assert _judged(name, _machine(**{library: version})).code == ReasonCode.VERSION


def test_offers() -> None:
    names = {item.name for item in torchyard_implementations(contract=FORWARD)}
    assert names == {"rocm.aiter", "rocm.flash", "rocm.triton"}
    assert [item.name for item in torchyard_implementations(contract=BACKWARD)] == ["rocm.triton"]


@pytest.mark.parametrize("enlisted", ["rocm.aiter", "rocm.flash"])
def test_they_compute_on_request_alone(enlisted: str) -> None:
    environ = {"TORCHYARD_ENLIST": f"{enlisted},rocm.triton"}
    request = replace(_REQUEST, mask=MaskKind.CAUSAL)

    def decided(platform: Platform, environ: dict[str, str]) -> str | None:
        return Registry(platform=platform, environ=environ).decide(FORWARD, request).name

    assert decided(_machine(), {}) == "attention.sdpa"
    assert decided(_machine(), environ) == enlisted
    without = _machine(aiter="", flash_attn="")
    assert decided(without, environ) == decided(without, {"TORCHYARD_ENLIST": "rocm.triton"})


def test_aiter_comes_before_flash() -> None:
    environ = {"TORCHYARD_ENLIST": "rocm.flash,rocm.aiter"}
    registry = Registry(platform=_machine(), environ=environ)
    assert registry.decide(FORWARD, _REQUEST).name == "rocm.aiter"


@pytest.mark.sweep
def test_their_absence_is_no_error_of_an_import() -> None:
    program = (
        "import sys\n"
        "for name in ('aiter', 'flash_attn', 'triton'): sys.modules[name] = None\n"
        "import torchyard_rocm.attention, torchyard_rocm.attention._adapter\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@given(
    st.sampled_from(list(_BY_NAME)),
    st.sampled_from(_MACHINES),
    st.integers(0, 300),
    st.integers(0, 300),
    st.sampled_from(MaskKind),
)
def test_any_request_has_a_verdict(
    name: str, machine: str, head_dim: int, value_dim: int, mask: MaskKind
) -> None:
    changes = {"head_dim": head_dim, "value_dim": value_dim, "mask": mask}
    verdict = _judged(name, _machine(machine), **changes)
    assert verdict.text
    assert verdict.supported == (verdict.code is None)
