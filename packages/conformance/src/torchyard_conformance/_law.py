"""Laws: what a plugin must do, each a test with a stable name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from torchyard import arguments

if TYPE_CHECKING:
    from torchyard_conformance._subjects._subject import Subject

T = TypeVar("T", bound=Callable[..., Any])
Cases = Callable[["Subject"], Mapping[str, object]]

# Under this name a test function carries its law.
_ATTRIBUTE: Final = "torchyard_law"
_ID: Final = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")
_PARTS: Final = re.compile(
    r"(?P<summary>[^\n]+)\n\n(?P<what>.*?)Why: (?P<why>.+?)\n\nFix: (?P<fix>.+)", re.DOTALL
)
_PAGE: Final = "docs/plugins/laws.md"


@dataclass(frozen=True, slots=True)
class Law:
    """One law.

    Attributes:
        id: ``family.name``; stable, it is what certificates and expectations say.
        summary: one sentence: what the plugin keeps.
        profiles: the profiles under which it applies, without those that include these.
        doc: the whole docstring: what, why, how to fix.
        cases: from the plugin to the law's cases, id to value; None for a law without cases.
        alone: whether nothing else of the kit may run beside it.
    """

    id: str
    summary: str
    profiles: tuple[str, ...]
    doc: str
    cases: Cases | None = None
    alone: bool = False

    @property
    def family(self) -> str:
        """The part of the id before the dot."""
        return self.id.partition(".")[0]

    @property
    def what(self) -> str:
        """What is tried, beyond the summary; may be empty."""
        return self._part("what")

    @property
    def why(self) -> str:
        """Who is hurt where the law is broken."""
        return self._part("why")

    @property
    def fix(self) -> str:
        """What the plugin's author does about it."""
        return self._part("fix")

    @property
    def anchor(self) -> str:
        """Where the documentation explains the law."""
        return f"{_PAGE}#{self.id.replace('.', '')}"

    def _part(self, name: str) -> str:
        match = _PARTS.fullmatch(self.doc)
        assert match is not None
        return " ".join(match[name].split())


def law(
    id: str, *, profiles: tuple[str, ...], cases: Cases | None = None, alone: bool = False
) -> Callable[[T], T]:
    """Make a test function a law.

    Its docstring is the law's documentation: a sentence, then perhaps a paragraph on what is tried,
    then a paragraph that begins with ``Why:`` and one that begins with ``Fix:``. The function
    takes fixtures of the plugin, ``subject`` first; a law with cases takes ``case`` as well, one
    value of what ``cases`` returned.

    Args:
        id: ``family.name``, never changed once released.
        profiles: the profiles under which it applies.
        cases: from the plugin to the law's cases, by their ids: stable and readable, without
            blanks and brackets. It may import torch and the component. No case means that the
            plugin offers nothing that the law is about.
        alone: whether nothing else of the kit may run beside it (``torchyard certify --jobs``),
            since it measures time or memory, or starts a process for each core itself.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: the id or the docstring has another form, or there is no profile.
    """
    if not _ID.fullmatch(arguments.text("law", "id", id)):
        raise arguments.wrong_value("law", "id", "an id such as 'registration.quiet'", repr(id))
    names = arguments.sequence(
        *("law", "profiles", profiles, arguments.text),
        expected="a tuple of names of profiles",
        least=1,
        remedy="name the profiles under which it applies, such as ('core',)",
    )
    if cases is not None:
        arguments.function("law", "cases", cases)
    arguments.boolean("law", "alone", alone)

    def marked(function: T) -> T:
        doc = inspect.cleandoc(function.__doc__ or "")
        match = _PARTS.fullmatch(doc)
        if match is None:
            raise ValueError(
                f"law {id!r}: expected a docstring of a sentence, then 'Why:' and 'Fix:' as "
                f"paragraphs of their own"
            )
        setattr(function, _ATTRIBUTE, Law(id, match["summary"], names, doc, cases, alone))
        return function

    return marked


def law_of(function: object) -> Law | None:
    """Return the law that a test function is; None where it is none."""
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, Law) else None


def all_laws() -> tuple[Law, ...]:
    """Import the modules of laws and return every law, sorted; neither torch nor a plugin is."""
    package = importlib.import_module("torchyard_conformance._laws")
    found: dict[str, Law] = {}
    for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not entry.name.rpartition(".")[2].startswith("test_"):
            continue
        module = importlib.import_module(entry.name)
        for item in filter(None, map(law_of, vars(module).values())):
            if found.setdefault(item.id, item) is not item:
                raise ValueError(f"law {item.id!r}: expected one function, found two")
    return tuple(found[id] for id in sorted(found))
