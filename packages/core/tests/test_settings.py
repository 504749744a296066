"""Settings: one table, the environment before the file, and nothing silent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard import PolicyError, Registry, plugin_setting
from torchyard import _environ as environ


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the configuration file that this process reads."""
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("TORCHYARD_CONFIG", str(path))
    for variable in environ.VARIABLES:
        if variable.name != "TORCHYARD_CONFIG":
            monkeypatch.delenv(variable.name, raising=False)
    environ.configuration.cache_clear()
    yield path
    environ.configuration.cache_clear()


def _settings() -> tuple[str, str, str, str]:
    """Return the settings that a decision of this process reads."""
    return Registry(()).settings()


def test_a_setting_that_nobody_set_is_empty() -> None:
    assert environ.setting("TORCHYARD_USE", {}) == ""
    with pytest.raises(ValueError, match="setting: name: expected"):
        environ.setting("TORCHYARD_OTHER", {})


def test_the_environment_is_stronger_than_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('use = "toy=a.x"\nenlist = "b.y"\nmine_isa = "avx2"\n')
    assert environ.setting("TORCHYARD_USE") == "toy=a.x"
    assert _settings() == ("toy=a.x", "b.y", "", "")
    assert plugin_setting("mine", "isa") == "avx2"
    monkeypatch.setenv("TORCHYARD_USE", " toy=c.z ")
    monkeypatch.setenv("TORCHYARD_MINE_ISA", "avx512")
    assert _settings() == ("toy=c.z", "b.y", "", "")
    assert plugin_setting("mine", "isa") == "avx512"


def test_an_empty_variable_switches_the_files_value_off(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('use = "toy=a.x"\n')
    monkeypatch.setenv("TORCHYARD_USE", "")
    assert environ.setting("TORCHYARD_USE") == ""
    assert _settings()[0] == ""


def test_the_environment_is_read_again_for_every_decision(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _settings() == ("", "", "", "")
    monkeypatch.setenv("TORCHYARD_LOCK", "lock.json")
    assert _settings() == ("", "", "lock.json", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('use = ["toy=a.x"]', "use: expected a string, written as the variable TORCHYARD_USE"),
        ("use = ", "expected a TOML file of settings"),
    ],
)
def test_a_file_that_nobody_can_read_is_an_error_that_names_it(
    config: Path, text: str, words: str
) -> None:
    config.write_text(text)
    with pytest.raises(PolicyError) as caught:
        environ.setting("TORCHYARD_USE")
    assert str(config) in str(caught.value)
    assert words in str(caught.value)


def test_a_file_that_is_named_must_exist(config: Path) -> None:
    config.unlink()
    with pytest.raises(PolicyError, match="TORCHYARD_CONFIG: expected the path of a TOML file"):
        environ.setting("TORCHYARD_USE")


def test_a_file_that_is_not_named_need_not_exist(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHYARD_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config.parent / "nowhere"))
    assert environ.setting("TORCHYARD_USE") == ""


def test_variables_that_nobody_owns_are_found(config: Path) -> None:
    found = {"TORCHYARD_USES": "x", "TORCHYARD_USE": "y", "TORCHYARD_MY_CPU_ISA": "z", "PATH": "p"}
    assert environ.unknown_settings(("my-cpu",), found) == ("TORCHYARD_USES",)
    assert environ.unknown_settings((), found) == ("TORCHYARD_MY_CPU_ISA", "TORCHYARD_USES")
    config.write_text('uses = "typo"\n')
    assert environ.unknown_settings(()) == ("TORCHYARD_USES",)


def test_the_table_is_sorted_and_explains_every_setting() -> None:
    names = [variable.name for variable in environ.VARIABLES]
    assert names == sorted(set(names))
    assert all(variable.form and variable.help for variable in environ.VARIABLES)


def test_a_child_gets_no_setting_but_those_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_USE", "toy=a.x")
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("REMOVED", "1")
    child = environ.child_environ({"TORCHYARD_LOCK": "file", "REMOVED": None, "ABSENT": None})
    assert {name for name in child if name.startswith("TORCHYARD_")} == {"TORCHYARD_LOCK"}
    assert child["KEPT"] == "1"
    assert not {"REMOVED", "ABSENT"} & set(child)


@pytest.mark.parametrize("place", range(4))
def test_each_deciding_variable_is_noticed_however_the_environment_is_changed(
    config: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    names = "TORCHYARD_USE", "TORCHYARD_ENLIST", "TORCHYARD_LOCK", "TORCHYARD_TUNED"
    name = names[place]
    assert _settings() == ("", "", "", "")
    os.environ[name] = "by item"
    assert _settings()[place] == "by item"
    del os.environ[name]
    assert _settings() == ("", "", "", "")
    os.environb[name.encode()] = b"by bytes"
    assert _settings()[place] == "by bytes"
    os.environb.pop(name.encode())
    monkeypatch.setattr(os, "environ", {name: "another mapping"})
    assert _settings()[place] == "another mapping"
