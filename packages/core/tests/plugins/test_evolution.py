"""Contracts and hooks change, and plugins written before and after say what that means for them."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pluggy
import pytest

from packages.core.tests.broken_plugins import plugin
from packages.core.tests.conftest import Make
from packages.core.tests.distribution import Distribution, run
from packages.core.tests.distribution import torchyard as command
from packages.core.tests.toys import TOY
from torchyard import ContractId, Registry, hookspecs
from torchyard._plugins.deprecation import deprecation
from torchyard._version import __version__

_IMPLEMENTS = """
[[implements]]
contract = "{contract}"
module = "{package}.toy"
devices = ["*"]
"""


def _component(defines: str, *, request: str = "") -> Distribution:
    """Return the toy component when it defines another version, or has other requests."""
    manifest, contract = "torchyard_toy/torchyard.toml", "torchyard_toy/contract.py"
    major = defines.partition(".")[0]
    files = {name: text.replace("toy/1", major) for name, text in TOY.files.items()}
    before = f'[[defines]]\n            contract = "{major}"'
    assert before in files[manifest]
    files[manifest] = files[manifest].replace(before, before.replace(major, defines))
    files[contract] = files[contract].replace("size: int = 1\n", f"size: int = 1\n{request}")
    return Distribution(TOY.name, TOY.plugin, TOY.package, files, version="1.5")


def _offer(name: str, *, takes: str = "contract", minor: str = "", contract: str = "toy/1") -> str:
    given = ", ".join(argument.partition("=")[0] for argument in takes.split(", "))
    return f"""
from torchyard import Implementation, Verdict, hookimpl

asked = []

@hookimpl
def torchyard_implementations({takes}):
    asked.append(({given}))
    return [
        Implementation(
            contract={contract!r},
            name="{name}.add",
            supports=lambda request, platform: Verdict.yes("never heard of what is new"),
            load=lambda: lambda numbers: "{name}",
            {minor}
        )
    ]
"""


def _plugin(name: str, contract: str, **offer: str) -> Distribution:
    major = contract.partition(".")[0]
    return plugin(
        name,
        manifest=_IMPLEMENTS.replace("{contract}", contract),
        code=_offer(name, contract=major, **offer),
    )


# Written when toy/1 was new, and hooks had an argument less; and so on.
OLD = _plugin("old", "toy/1")
OLDEST = _plugin("oldest", "toy/1", takes="")
CURIOUS = _plugin("curious", "toy/1", takes="contract, minor")
NEEDS_TWO = _plugin("needs-two", "toy/1.2")
KNOWS_THREE = _plugin("knows-three", "toy/1", minor="minor=3,")
NEEDS_FOUR = _plugin("needs-four", "toy/1.4")
NEXT_MAJOR = _plugin("next-major", "toy/2")
OF_ANOTHER_CORE = _plugin("of-another-core", "toy/1", takes="contract, weather")

_REQUESTS = """
                fresh: bool = False

                @property
                def contract_minor(self) -> int:
                    return 3 if self.fresh else 0

"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a site folder with a component at toy/1.3 and plugins written for all sorts."""
    folder = tmp_path_factory.mktemp("site")
    plugins = (OLD, OLDEST, CURIOUS, NEEDS_TWO, KNOWS_THREE, NEEDS_FOUR, NEXT_MAJOR)
    for distribution in (_component("toy/1.3", request=_REQUESTS), *plugins, OF_ANOTHER_CORE):
        distribution.install(folder)
    return folder


@pytest.fixture(scope="module")
def listed(site: Path) -> dict[str, dict[str, Any]]:
    """Return every plugin by name, after everything that it offers was asked for."""
    result = command("plugins", "--json", "--activate", site=site)
    assert result.returncode == 0, result.stderr
    return {item["name"]: item for item in json.loads(result.stdout)["plugins"]}


@pytest.mark.parametrize("name", ["old", "oldest", "curious", "needs-two", "knows-three"])
def test_a_new_argument_and_a_new_minor_leave_a_plugin_as_it_was(
    listed: dict[str, dict[str, Any]], name: str
) -> None:
    assert listed[name]["state"] == "active"
    assert not listed[name]["reason"]
    assert not listed[name]["notes"]


@pytest.mark.parametrize(
    ("name", "reason", "remedy"),
    [
        (
            "needs-four",
            "needs toy/1.4 or a newer minor, but the installed component defines toy/1.3",
            "a newer torchyard-toy (here: 1.5), or an older yard-needs-four (here: 1.0)",
        ),
        (
            "next-major",
            "implements toy/2, but the installed component defines toy/1.3",
            "or a yard-next-major (here: 1.0) that implements toy/1.3",
        ),
    ],
)
def test_another_major_and_a_newer_minor_are_incompatible_before_anything_is_imported(
    site: Path, name: str, reason: str, remedy: str
) -> None:
    result = command("plugins", "--json", site=site)
    found = {item["name"]: item for item in json.loads(result.stdout)["plugins"]}[name]
    assert (found["state"], found["code"]) == ("incompatible", "E_VERSION")
    assert found["reason"] == reason
    assert found["hint"].endswith(remedy)


def test_a_component_that_moves_to_a_new_major_leaves_the_old_plugins_out(tmp_path: Path) -> None:
    for distribution in (_component("toy/2"), OLD, NEXT_MAJOR):
        distribution.install(tmp_path)
    result = command("plugins", "--json", "--activate", site=tmp_path)
    found = {item["name"]: item for item in json.loads(result.stdout)["plugins"]}
    assert (found["old"]["state"], found["old"]["code"]) == ("incompatible", "E_VERSION")
    assert found["old"]["reason"] == ("implements toy/1, but the installed component defines toy/2")
    assert found["next-major"]["state"] == "active"
    trace = json.loads(command("explain", "toy", "--json", site=tmp_path).stdout)["trace"]
    assert {"old.*": "E_VERSION"}.items() <= {item["name"]: item["code"] for item in trace}.items()


def test_an_argument_that_this_core_does_not_give_is_of_another_core(
    listed: dict[str, dict[str, Any]],
) -> None:
    found = listed["of-another-core"]
    assert (found["state"], found["code"]) == ("incompatible", "E_VERSION")
    assert (
        "hook torchyard_implementations: expected no arguments but ['contract', 'minor']"
        in (found["reason"])
    )
    assert found["reason"].endswith("got ['weather']")
    assert found["hint"].startswith("install the torchyard that the plugin was written for; ")


def test_a_hook_that_this_core_does_not_have_is_of_another_core(make_registry: Make) -> None:
    code = _offer("ahead") + "\n@hookimpl\ndef torchyard_forecast(): return 3\n"
    registry = make_registry(TOY, plugin("ahead", code=code))
    registry.activate(registry.plugin("ahead"))
    assert str(registry.plugin("ahead").code) == "E_VERSION"
    assert f"hook torchyard_forecast: torchyard {__version__} has no such hook" in (
        registry.plugin("ahead").reason
    )


def _evolved(make: Make, *plugins: Distribution) -> tuple[Registry, Callable[..., Any]]:
    registry = make(_component("toy/1.3", request=_REQUESTS), *plugins)
    return registry, importlib.import_module("torchyard_toy.contract").ToyRequest


@pytest.mark.parametrize(
    ("written", "supports"), [(OLD, False), (NEEDS_TWO, False), (KNOWS_THREE, True)]
)
def test_what_a_minor_added_is_asked_only_of_those_that_know_it(
    make_registry: Make, written: Distribution, supports: bool
) -> None:
    registry, request = _evolved(make_registry, written)
    name = f"{written.plugin}.add"
    assert registry.decide("toy/1", request(), use=name).name == name
    decision = registry.decide("toy/1", request(fresh=True), use=name)
    assert decision.name == (name if supports else "")
    verdict = decision.trace[0].verdict
    if not supports:
        assert str(verdict.code) == "E_VERSION"
        assert verdict.text.startswith(f"the request needs toy/1.3, and {name} was written for ")
        assert verdict.hint == f"install a newer version of plugin {written.plugin!r}"


def test_a_plugin_is_told_the_minor_that_is_here(make_registry: Make) -> None:
    registry, request = _evolved(make_registry, CURIOUS)
    registry.decide("toy/1", request())
    assert importlib.import_module("yard_curious.toy").asked == [("toy/1", 3)]
    assert registry.minor(ContractId("toy", 1)) == 3
    assert registry.minor(ContractId("toy", 2)) is None


def test_an_argument_that_this_core_does_not_give_may_have_a_default(make_registry: Make) -> None:
    written = _plugin("ready", "toy/1", takes="contract, weather='fair'")
    registry, request = _evolved(make_registry, written)
    registry.decide("toy/1", request())
    assert importlib.import_module("yard_ready.toy").asked == [("toy/1", "fair")]
    assert str(registry.plugin("ready").state) == "active"


def test_of_several_entries_those_that_need_more_are_left_out(make_registry: Make) -> None:
    both = _IMPLEMENTS.replace("{contract}", "toy/1") + (
        '[[implements]]\ncontract = "toy/1.9"\nmodule = "{package}.newer"\ndevices = ["*"]\n'
    )
    registry, request = _evolved(make_registry, plugin("both", manifest=both, code=_offer("both")))
    assert registry.decide("toy/1", request(), use="both.add").name == "both.add"
    registry.activate(registry.plugin("both"))
    assert str(registry.plugin("both").state) == "active"


@pytest.mark.parametrize(("present", "state"), [(False, "discovered"), (True, "failed")])
def test_what_no_component_asks_for_is_not_loaded(
    make_registry: Make, present: bool, state: str
) -> None:
    manifest = _IMPLEMENTS.replace("{contract}", "toy/1")
    lonely = plugin("lonely", manifest=manifest, code="import a_component_that_is_not_here\n")
    registry = make_registry(*([TOY] if present else []), lonely)
    registry.activate(registry.plugin("lonely"))
    assert str(registry.plugin("lonely").state) == state


def test_locks_and_demands_know_no_minor(make_registry: Make, tmp_path: Path) -> None:
    lock = tmp_path / "lock.json"
    buckets = {"cpu float32 small": "old.add"}
    lock.write_text(json.dumps({"schema": 1, "made_with": {}, "decisions": {"toy/1": buckets}}))
    component = _component("toy/1.3")
    for environ in ({"TORCHYARD_LOCK": str(lock)}, {"TORCHYARD_USE": "toy/1=old.add"}):
        registry = make_registry(component, OLD, environ=environ)
        request = importlib.import_module("torchyard_toy.contract").ToyRequest()
        assert registry.decide("toy/1", request).name == "old.add"
        for distribution in (component, OLD):
            _uninstall(distribution, tmp_path)


def _uninstall(distribution: Distribution, site: Path) -> None:
    info = site / f"{distribution.name.replace('-', '_')}-{distribution.version}.dist-info"
    for path in info.iterdir():
        path.unlink()
    info.rmdir()


def test_a_deprecated_contract_is_noted_against_those_that_implement_it(
    make_registry: Make,
) -> None:
    component = _component("toy/1.3")
    name = "torchyard_toy/torchyard.toml"
    files = dict(component.files)
    files[name] = files[name].replace(
        'contract = "toy/1.3"', 'contract = "toy/1.3"\n            deprecated = "implement toy/2"'
    )
    registry = make_registry(
        Distribution(component.name, component.plugin, component.package, files), OLD
    )
    note = "implements toy/1, which is deprecated: implement toy/2"
    assert registry.plugin("old").notes == [note]
    assert registry.plugin("old").usable
    assert not registry.plugin("toy").notes


# A later core: one hook's argument will go, and another hook as a whole.
_LATER = """
import sys, warnings
from torchyard import hookspecs
from torchyard._plugins.deprecation import deprecation

def torchyard_implementations(contract, minor): ...
def torchyard_checks(): ...

hookspecs.torchyard_implementations = hookspecs.hookspec(warn_on_impl_args={
    "contract": deprecation("the argument 'contract' of torchyard_implementations", since="0.4",
                            remove_in="0.7", instead="take nothing")
})(torchyard_implementations)
hookspecs.torchyard_checks = hookspecs.hookspec(
    warn_on_impl=deprecation("the hook torchyard_checks", since="0.4", remove_in="0.7",
                             instead="implement torchyard_health")
)(torchyard_checks)
"""
_AUTHOR = """
import torchyard
for _ in range(2):
    made = torchyard.Registry()
    for plugin in made.plugins:
        made.activate(plugin)
"""
_ARGUMENT = (
    "the argument 'contract' of torchyard_implementations is deprecated since torchyard 0.4 and "
    "goes in 0.7; take nothing"
)
_HOOK = "the hook torchyard_checks is deprecated since torchyard 0.4 and goes in 0.7; implement "


@pytest.fixture
def deprecated(tmp_path: Path) -> Path:
    """Return a site folder with a plugin that a later core asks to change, and a fine one."""
    checks = """
from torchyard import hookimpl

@hookimpl
def torchyard_checks():
    return []
"""
    old = plugin(
        "old",
        manifest=_IMPLEMENTS.replace("{contract}", "toy/1")
        + '[doctor]\nmodule = "{package}.checks"\n',
        code=_offer("old"),
    )
    old = Distribution(
        old.name, old.plugin, old.package, {**old.files, "yard_old/checks.py": checks}
    )
    for distribution in (_component("toy/1.3"), old, OLDEST):
        distribution.install(tmp_path)
    return tmp_path


def test_the_author_is_warned_once_of_what_will_go_and_the_plugin_is_named(
    deprecated: Path,
) -> None:
    result = run(["-W", "default", "-c", _LATER + _AUTHOR], deprecated)
    assert result.returncode == 0, result.stderr
    for words in (_ARGUMENT, _HOOK):
        assert result.stderr.count(f"PluginDeprecationWarning: plugin 'old': {words}") == 1
    assert "yard_old/toy.py" in result.stderr.replace("\\", "/")
    assert "oldest" not in result.stderr


def test_a_user_is_not_warned_and_finds_it_against_the_plugin(deprecated: Path) -> None:
    program = _LATER + "from torchyard.cli._main import main\nmain()\n"
    result = run(["-c", program, "plugins", "--activate", "--json"], deprecated)
    assert result.returncode == 0, result.stderr
    assert "Deprecat" not in result.stderr
    found = {item["name"]: item for item in json.loads(result.stdout)["plugins"]}
    assert [note.partition(": ")[2] for note in found["old"]["notes"]] == [
        _ARGUMENT,
        f"{_HOOK}torchyard_health",
    ]
    assert found["old"]["state"] == "active"
    assert not found["oldest"]["notes"]
    # The doctor asks for a plugin's checks in any case, and for implementations where torch is.
    doctor = run(["-c", program, "doctor", "--json"], deprecated)
    checks = json.loads(doctor.stdout)["sections"]["plugins"]
    mine = next(check for check in checks if check["name"] == "old")
    assert mine["status"] == "warn"
    assert _HOOK in mine["text"]


def test_other_warnings_that_come_meanwhile_are_passed_on(
    make_registry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torchyard_implementations(contract: str, minor: int) -> None: ...

    what = deprecation("it", since="0.4", remove_in="0.7", instead="do not")
    spec = hookspecs.hookspec(warn_on_impl=what)(torchyard_implementations)
    monkeypatch.setattr(hookspecs, "torchyard_implementations", spec)
    register = pluggy.PluginManager.register

    def noisy(self: pluggy.PluginManager, *module: Any, **name: Any) -> str | None:
        warnings.warn_explicit("noise", UserWarning, "elsewhere.py", 1)
        return register(self, *module, **name)

    monkeypatch.setattr(pluggy.PluginManager, "register", noisy)
    registry = make_registry(TOY, plugin("noisy", code=_offer("noisy")))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        registry.activate(registry.plugin("noisy"))
    assert [str(item.message).partition(": ")[0] for item in found] == ["noise", "plugin 'noisy'"]
