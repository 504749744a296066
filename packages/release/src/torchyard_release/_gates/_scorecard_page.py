"""The scorecard as one HTML page: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from torchyard_release._gates._scorecard import Scorecard, Status, together

# Beside the word or the colour, for whoever sees only one of them.
_MARKS: Final = {
    Status.PASS: "\N{CHECK MARK}",
    Status.FAIL: "\N{BALLOT X}",
    Status.UNVERIFIED: "?",
    Status.WAIVED: "\N{TILDE OPERATOR}",
}


def _link(evidence: str) -> str:
    """Return where evidence is from a page in a candidate's folder; it may be an earlier one's."""
    return "/".join(("..", *Path(evidence).parts[-3:]))


def scorecard_page(card: Scorecard, command: str) -> str:
    """Return the page.

    Args:
        card: the scorecard.
        command: the one that the candidate waits for.
    """
    environment = Environment(
        loader=PackageLoader("torchyard_release", "pages"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    gates: dict[str, list[object]] = {}
    for row in card.rows:
        gates.setdefault(row.gate, []).append(row)
    text = environment.get_template("scorecard.html.jinja").render(
        card=card,
        command=command,
        counts=card.counts(),
        gates=gates,
        against=sum(row.stops for row in card.rows),
        stopping=together(row for row in card.rows if row.stops),
        statuses=[status.value for status in Status],
        marks={status.value: mark for status, mark in _MARKS.items()},
        link_to=_link,
    )
    return f"{text.rstrip()}\n"
