"""Machines as files: what they hold, what is refused, and how sure their facts are."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard import PlatformError, read_platform_file
from torchyard._platforms.files import FOLDER, Origin, parse_platform, platform_names

_TEXT = """
schema = 1
name = "mine"
summary = "a machine"
[host]
system = "Linux"
machine = "x86_64"
cpu_features = "avx2 fma"
cpu_cores = 8
python = "3.12.1"
torch = "2.13.0"
devices = ["cpu", "cuda"]
[libraries]
triton = "3.7.1"
[[accelerators]]
device = "cuda"
architecture = "sm_90"
name = "a card"
memory = 1024
[[sources]]
facts = ["host.*"]
origin = "chosen"
text = "a host"
"""


@pytest.mark.parametrize("name", platform_names())
def test_each_fact_of_a_machine_names_its_source(name: str) -> None:
    file = read_platform_file(name)
    assert file.name == name
    assert not file.without_source()
    assert file.platform.accelerators or file.platform.devices == {"cpu"}


# What was written down of the one machine that was at hand, in docs/measurements/cuda.md.
_MEASURED = {"h200": {"accelerators[0].architecture", "accelerators[0].multiprocessors"}}


@pytest.mark.parametrize("name", platform_names())
def test_only_facts_of_a_machine_that_was_at_hand_claim_to_be_measured(name: str) -> None:
    sources = read_platform_file(name).sources
    measured = [source for source in sources if source.origin is Origin.MEASURED]
    assert {fact for source in measured for fact in source.facts} == _MEASURED.get(name, set())


def test_clocks_are_read_and_written() -> None:
    clocks = "memory = 1024\ncore_clock = 1980\nmemory_clock = 2619"
    file = parse_platform(_TEXT.replace("memory = 1024", clocks))
    [card] = file.platform.accelerators
    assert (card.core_clock, card.memory_clock) == (1980, 2619)
    assert parse_platform(file.to_toml()).platform == file.platform
    assert "accelerators[0].core_clock" in file.without_source()
    [unknown] = parse_platform(_TEXT).platform.accelerators
    assert (unknown.core_clock, unknown.memory_clock) == (0, 0)


def test_facts_are_read() -> None:
    file = parse_platform(_TEXT)
    platform = file.platform
    assert platform.cpu_features == {"avx2", "fma"}
    assert platform.library("triton") == "3.7.1"
    assert platform.library("cudnn") is None
    [card] = platform.accelerators
    assert platform.accelerator("cuda") is card
    assert platform.accelerator("xpu") is None
    assert (card.architecture, card.memory, card.count, card.driver) == ("sm_90", 1024, 1, "")
    assert hash(platform) == hash(parse_platform(file.to_toml()).platform)
    assert file.without_source() == (
        "accelerators[0].architecture",
        "accelerators[0].memory",
        "libraries.triton",
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 2", "schema: expected 1, got 2"),
        ('name = "mine"', 'name = "Mine"', "name: expected lower-case letters"),
        ("cpu_cores = 8", "cpu_cores = 0", "host.cpu_cores: expected an int of at least 1, got 0"),
        ("cpu_cores = 8", "cpu_cores = true", "host.cpu_cores: expected a int, got True"),
        ("memory = 1024", "memory = -1", "accelerators[0].memory: expected an int of at least 1"),
        ("memory = 1024", "size = 1024", "accelerators[0].size: unknown key"),
        ('["cpu", "cuda"]', '["cpu"]', "host.devices: expected the accelerators' devices too"),
        ('device = "cuda"', 'device = "CUDA 0"', "accelerators[0].device: expected a torch device"),
        ('origin = "chosen"', 'origin = "known"', "sources[0].origin: expected one of measured"),
        ('triton = "3.7.1"', "triton = 3.7", "libraries.triton: expected a str, got 3.7"),
        ("[host]", "[hosts]", "host: expected a dict, got nothing"),
        ("schema = 1", "schema =", "expected TOML"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in _TEXT
    path = tmp_path / "mine.toml"
    path.write_text(_TEXT.replace(old, new, 1))
    with pytest.raises(PlatformError) as error:
        read_platform_file(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_a_name_that_no_file_has_lists_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=r"platform 'h1000': expected one of a100, .*TOML file"):
        read_platform_file("h1000")
    with pytest.raises(PlatformError, match="cannot be read"):
        read_platform_file(tmp_path / "none.toml")
    with pytest.raises(TypeError, match="where: expected a path"):
        read_platform_file(1)  # type: ignore[arg-type]


def test_machines_that_ship_are_files_of_the_package() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == list(platform_names())
    assert {"cpu-amx", "cpu-arm", "h100", "mi300x", "m3"} <= set(platform_names())
