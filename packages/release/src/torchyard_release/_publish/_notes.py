"""Release notes and the blog post: from fragments, the table of features, git and the scorecard."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from torchyard import Feature, Stage
from torchyard._errors import MaturityError
from torchyard._features.maturity import parse_features
from torchyard_release._cut._fragments import Fragment, read_fragments
from torchyard_release._errors import ReleaseError
from torchyard_release._gates._scorecard import Scorecard, Status, together
from torchyard_release._repository._history_range import Since, since
from torchyard_release._repository._workspace import Workspace

# The two vocabularies of train.toml: how far a feature has come, or what its API promises, which
# is how torch itself puts it since its release 2.8.
STAGES: Final = {Stage.STABLE: "Stable", Stage.BETA: "Beta", Stage.PROTOTYPE: "Prototype"}
PROMISES: Final = {"stable": "API-Stable", "unstable": "API-Unstable"}


@dataclass(frozen=True, slots=True)
class FeatureLine:
    """A row of the table of features.

    Attributes:
        feature: as it is now.
        stage: its class, in the words of the train.
        change: ``new``, ``was Prototype`` and the like; empty where nothing changed.
    """

    feature: Feature
    stage: str
    change: str


@dataclass(frozen=True, slots=True)
class Notes:
    """What a release has to tell.

    Attributes:
        name: of the project.
        version: that is released.
        since: what git says.
        sections: heading -> items, in the order of the fragments' types.
        features: the table, by class.
        highlights: prose that somebody wrote; empty where nobody did.
        open: rows of the scorecard that are not green, which a reader must know.
    """

    name: str
    version: str
    since: Since
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    features: tuple[FeatureLine, ...]
    highlights: str
    open: tuple[str, ...]

    def release_notes(self) -> str:
        """Return the notes as Markdown."""
        return _render("notes.md.jinja", self)

    def blog(self) -> str:
        """Return the blog post as Markdown: what a user wants to know first."""
        return _render("blog.md.jinja", self)


def notes_of(workspace: Workspace, card: Scorecard | None, *, revision: str = "HEAD") -> Notes:
    """Return what the release has to tell.

    Args:
        workspace: the tree whose fragments and features are read, and its git.
        card: the candidate's scorecard; None before there is one.
        revision: what is released.

    Raises:
        ReleaseError: there are no fragments, or no commits.
    """
    train = workspace.train
    sections = sections_of(read_fragments(workspace.root, train), _kinds(workspace))
    if not sections:
        raise ReleaseError(
            "expected fragments of changes, found none",
            "write them into the folder that [tool.towncrier] names; what no user can notice is "
            "no release",
        )
    highlights = workspace.root / train.notes.highlights if train.notes.highlights else None
    if highlights is not None and not highlights.is_file():
        raise ReleaseError(
            f"{train.notes.highlights}: no such file, but [notes] highlights names it",
            "write the highlights; a candidate's notes are written out of its own tree",
        )
    return Notes(
        name=train.name,
        version=train.release,
        since=since(workspace.git, train.previous, revision, train.notes.bots),
        sections=sections,
        features=_features(workspace),
        highlights=highlights.read_text(encoding="utf-8").strip() if highlights else "",
        open=() if card is None else open_rows(card),
    )


def open_rows(card: Scorecard) -> tuple[str, ...]:
    """Return a line for each reason for which rows of a scorecard are not green."""
    rows = together(row for row in card.rows if row.status is not Status.PASS)
    return tuple(
        f"{row.gate} {', '.join(cells)}".rstrip() + f": {row.before or row.status} ({row.text})"
        for row, cells in rows
    )


def sections_of(
    fragments: Sequence[Fragment], kinds: Mapping[str, str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return heading -> items, in the order of the types; a type without fragments is left out.

    Args:
        fragments: of the changes.
        kinds: type -> heading.
    """
    found = []
    for kind, heading in kinds.items():
        items = [
            f"**{item.package}**: {item.text}"
            + (f" (#{item.change})" if item.change.isdigit() else "")
            for item in sorted(fragments, key=lambda item: (item.package, item.change))
            if item.kind == kind
        ]
        if items:
            found.append((heading, tuple(items)))
    return tuple(found)


def feature_lines(
    now: Sequence[Feature], before: Sequence[Feature], vocabulary: str
) -> tuple[FeatureLine, ...]:
    """Return the rows that a reader is shown, by class and then by name, with what changed."""
    old = {(row.id, row.device): row for row in before}
    lines = []
    for row in now:
        stage = _stage(row, vocabulary)
        was = old.get((row.id, row.device))
        if was is None:
            change = "new" if before else ""
        else:
            said = _stage(was, vocabulary)
            change = f"was {said}" if said != stage else ""
        lines.append(FeatureLine(row, stage, change))
    order = [*STAGES.values(), *PROMISES.values()]
    return tuple(
        sorted(
            lines,
            key=lambda line: (
                order.index(line.stage) if line.stage in order else len(order),
                line.feature.id,
                line.feature.device,
            ),
        )
    )


def _stage(row: Feature, vocabulary: str) -> str:
    if row.stage in {Stage.DEPRECATED, Stage.REMOVED}:
        return f"{row.stage.capitalize()} ({row.remove_in})"
    return STAGES[row.stage] if vocabulary == "beta" else PROMISES[row.api]


def _features(workspace: Workspace) -> tuple[FeatureLine, ...]:
    path = workspace.train.notes.features
    if not path:
        return ()
    previous, git = workspace.train.previous, workspace.git
    had_one = previous and git.succeeds("cat-file", "-e", f"{previous}:{path}")
    try:
        before = parse_features(git.run("show", f"{previous}:{path}")) if had_one else ()
        now = parse_features((workspace.root / path).read_text(encoding="utf-8"))
    except MaturityError as error:
        raise ReleaseError(f"{path}: {error}", "correct the table") from error
    return feature_lines(now, before, workspace.train.notes.vocabulary)


def _kinds(workspace: Workspace) -> dict[str, str]:
    """Return towncrier's types and their headings, in the order in which it writes them."""
    text = (workspace.root / "pyproject.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)["tool"]["towncrier"]["type"]
    return {str(row["directory"]): str(row["name"]) for row in rows}


def _render(template: str, notes: Notes) -> str:
    environment = Environment(
        loader=PackageLoader("torchyard_release", "pages"),
        # Markdown, read by people: nothing in it is run.
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    stages: dict[str, list[FeatureLine]] = {}
    for line in notes.features:
        stages.setdefault(line.stage, []).append(line)
    text = environment.get_template(template).render(notes=notes, stages=stages)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
