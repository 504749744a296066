"""The pytest plugin: laws become tests of one plugin, and tests become results.

It does nothing where ``--torchyard-plugin`` is not given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import pytest

if TYPE_CHECKING:
    from torchyard_conformance._law import Law
    from torchyard_conformance._reports._result import LawResult
    from torchyard_conformance._subjects._subject import Subject

_OPTIONS: Final = (
    ("plugin", "Certify this plugin."),
    ("profile", "Try the laws of these profiles, joined by '+'."),
    ("implementation", "Judge these implementations alone, joined by ','."),
    ("device", "Judge on this device type alone."),
    ("case", "Try this law alone, or this case of it: LAW[CASE]."),
    ("part", "Try this part of the cases alone: NUMBER/COUNT of those that share, or 'alone'."),
    ("results", "Append what happens to this file; leave out what it says to have begun."),
)
# What a law without a single case is given instead of one.
_NOTHING: Final = object()
_NO_CASE: Final = "none"


@dataclass(frozen=True, slots=True)
class _Failed:
    """What came instead of a law's cases."""

    error: Exception


_SESSION: Final = pytest.StashKey["_Session"]()
_FIGURES: Final = pytest.StashKey[dict[str, float | str]]()
_STARTED: Final = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; their defaults leave pytest as it is."""
    group = parser.getgroup("torchyard", "torchyard conformance")
    for name, help in _OPTIONS:
        group.addoption(f"--torchyard-{name}", default="", help=help)


def pytest_configure(config: pytest.Config) -> None:
    """Find the plugin and the profile; a usage error where there is none."""
    name = config.getoption("--torchyard-plugin")
    if not name:
        return
    from torchyard_conformance._profile import ProfileError, default_profile, read_profile
    from torchyard_conformance._subjects._fresh import starter
    from torchyard_conformance._subjects._subject import Subject

    # Before anything imports the plugin, which collecting the laws' cases does.
    starter()
    option = config.getoption
    try:
        found = Subject(name, device=option("--torchyard-device"))
        asked = option("--torchyard-profile")
        profile = read_profile(asked) if asked else default_profile(found.contracts)
    except (LookupError, ProfileError) as error:
        raise pytest.UsageError(str(error)) from error
    only = tuple(filter(None, option("--torchyard-implementation").split(",")))
    found = Subject(name, device=option("--torchyard-device"), only=only, quick=profile.quick)
    config.stash[_SESSION] = _Session(found, profile, option)
    config.pluginmanager.register(config.stash[_SESSION], "torchyard-session")


class _Session:
    """One certification: the hooks that only matter where a plugin is certified."""

    def __init__(self, subject: Subject, profile: Any, option: Callable[[str], Any]) -> None:
        from torchyard_conformance._runs._events import Events

        self.subject: Final = subject
        self._profile = profile
        self._case = str(option("--torchyard-case"))
        self._part = str(option("--torchyard-part"))
        self._device = str(option("--torchyard-device"))
        path = option("--torchyard-results")
        self._events = Events(Path(path)) if path else None
        self._reasons: tuple[str, ...] | None = None
        self.results: list[LawResult] = []

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give a law its cases for this plugin."""
        law = _law(metafunc.function)
        if law is None or law.cases is None or not self._profile.applies(law):
            return
        cases: Mapping[str, object] = {}
        if not self._case or self._case.partition("[")[0] == law.id:
            try:
                cases = law.cases(self.subject)
            # A plugin that cannot even be asked for its cases fails this law and no other.
            except Exception as error:
                cases = {_NO_CASE: _Failed(error)}
        cases = cases or {_NO_CASE: _NOTHING}
        metafunc.parametrize("case", list(cases.values()), ids=list(cases))

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the laws of the profile, or the one that is asked for."""
        kept: list[pytest.Item] = []
        left: list[pytest.Item] = []
        beside = 0
        for item in items:
            law = _law(getattr(item, "function", None))
            wanted = law is not None and self._profile.applies(law)
            if wanted and self._case:
                wanted = self._case in {_name(item), _name(item).partition("[")[0]}
            if wanted and self._part and law is not None:
                beside += not law.alone
                wanted = _in_part(self._part, law, beside)
            if wanted and self._events is not None:
                wanted = _name(item) not in self._events.begun
            (kept if wanted else left).append(item)
        items[:] = kept
        config.hook.pytest_deselected(items=left)
        if self._events is not None:
            self._events.collected([_split(item) for item in kept])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note that a case begins; what kills the process is then this case's failure."""
        item.stash[_STARTED] = time.perf_counter()
        item.stash[_FIGURES] = {}
        if self._events is not None:
            self._events.begin(*_split(item))
        callspec = getattr(item, "callspec", None)
        case = None if callspec is None else callspec.params.get("case")
        if isinstance(case, _Failed):
            raise case.error
        if case is _NOTHING:
            from torchyard_conformance._outcome import not_supported

            not_supported("the plugin offers nothing that this law is about")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Turn what a test ended with into a status of its law."""
        from torchyard_conformance._runs._judgement import judge
        from torchyard_conformance._runs._reproduction import reproduction

        report = yield
        if call.when == "setup" and call.excinfo is None:
            return report
        if call.when == "teardown" and call.excinfo is None:
            return report
        law, case = _split(item)
        figures: dict[str, float | str] = item.stash[_FIGURES]
        result = judge(
            law,
            case,
            call.excinfo,
            report,
            reproduce=reproduction(self.subject, self._profile.name, self._device, _name(item)),
            seconds=time.perf_counter() - item.stash[_STARTED],
            figures=figures,
        )
        self.results.append(result)
        if self._events is not None:
            self._events.result(result)
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Have pytest fail where the plugin is not certified; one case alone certifies nothing."""
        if self._case or session.config.option.collectonly:
            return
        from torchyard_conformance._reports._assembly import assemble

        self._reasons = assemble(self.subject, self._profile, self.results, ()).reasons
        # What pytest itself could not do, such as import a law, says more.
        if self._reasons and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say whether the plugin is certified, and the reasons why not."""
        if self._reasons is None:
            return
        verdict = "not certified" if self._reasons else "certified"
        terminalreporter.section(f"{self.subject.name}: {verdict}, profile {self._profile.name}")
        for reason in self._reasons:
            terminalreporter.line(reason)


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Subject:
    """Return the plugin under certification."""
    return request.config.stash[_SESSION].subject


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[[str, float | str], None]:
    """Return a function that attaches a figure to the result: its name, its value."""
    figures = request.node.stash[_FIGURES]
    return cast(Callable[[str, float | str], None], figures.__setitem__)


@pytest.fixture
def not_supported() -> Callable[[str], NoReturn]:
    """Return a function that ends the law: the plugin does not offer what it is about."""
    from torchyard_conformance._outcome import not_supported

    return not_supported


@pytest.fixture
def unverified() -> Callable[[str], NoReturn]:
    """Return a function that ends the law: it cannot be tried here."""
    from torchyard_conformance._outcome import unverified

    return unverified


def _law(function: object) -> Law | None:
    from torchyard_conformance._law import law_of

    return law_of(function)


def _in_part(part: str, law: Law, place: int) -> bool:
    """Return whether a case, the place-th of those that share the machine, is of a part."""
    number, _, count = part.partition("/")
    if law.alone or not count:
        return law.alone and not count
    return place % int(count) == int(number) % int(count)


def _split(item: pytest.Item) -> tuple[str, str]:
    """Return the ids of an item's law and case."""
    law = _law(getattr(item, "function", None))
    assert law is not None
    callspec = getattr(item, "callspec", None)
    return law.id, "" if callspec is None else str(callspec.id)


def _name(item: pytest.Item) -> str:
    law, case = _split(item)
    return f"{law}[{case}]" if case else law
