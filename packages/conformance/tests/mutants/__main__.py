"""Print the table of mutants: ``nox -s mutants``. Ends with status 1 where one slips."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from .table import MUTANTS, judge_all


def main() -> int:
    """Certify all of them and print what caught each."""
    judged = judge_all(MUTANTS)
    table = Table(box=None, pad_edge=False)
    for heading in ("mutant", "fault", "caught by", "twin"):
        table.add_column(heading, overflow="fold")
    for item in judged:
        caught = ", ".join(item.broken) or "nothing"
        words = caught if item.caught else f"{caught} (meant: {item.mutant.law})"
        healthy = "passes" if item.certified else f"breaks {', '.join(item.twin) or 'something'}"
        table.add_row(item.mutant.name, item.mutant.fault, words, healthy)
    console = Console(markup=False, highlight=False, width=150)
    console.print(table)
    slipped = [item.mutant.name for item in judged if not item.caught]
    console.print(f"{len(judged)} mutants, {len(judged) - len(slipped)} caught by their law alone")
    return 1 if slipped else 0


if __name__ == "__main__":
    sys.exit(main())
