"""The events of a run, as lines of a file that outlives the process running the laws."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard_conformance._reports._result import LawResult


@dataclass(slots=True)
class Progress:
    """How far a run has come.

    Attributes:
        collected: the (law, case) pairs to run, in order.
        begun: those that began, in order.
        results: those that ended.
    """

    collected: list[tuple[str, str]] = field(default_factory=list)
    begun: list[tuple[str, str]] = field(default_factory=list)
    results: list[LawResult] = field(default_factory=list)

    @property
    def unfinished(self) -> tuple[str, str] | None:
        """The pair that began and did not end."""
        ended = {(result.law, result.case) for result in self.results}
        return next((pair for pair in self.begun if pair not in ended), None)

    @property
    def complete(self) -> bool:
        """Whether everything that was collected has ended."""
        ended = {(result.law, result.case) for result in self.results}
        return bool(self.collected) and ended.issuperset(self.collected)


class Events:
    """Write what happens to a file.

    Args:
        path: the file; what it says already has happened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        before = read_progress(path)
        self.begun = {f"{law}[{case}]" if case else law for law, case in before.begun}

    def collected(self, pairs: list[tuple[str, str]]) -> None:
        """Say which cases will run."""
        self._write({"collected": pairs})

    def begin(self, law: str, case: str) -> None:
        """Say which case begins."""
        self._write({"begin": [law, case]})

    def result(self, result: LawResult) -> None:
        """Say how a case ended."""
        self._write({"result": result.to_json()})

    def _write(self, event: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


def read_progress(path: Path) -> Progress:
    """Read how far a run has come; a last line that is still being written is left out."""
    progress = Progress()
    if not path.is_file():
        return progress
    text = path.read_text(encoding="utf-8")
    for line in text[: text.rfind("\n") + 1].splitlines():
        event = json.loads(line)
        if "collected" in event:
            pairs = [(law, case) for law, case in event["collected"]]
            progress.collected += [pair for pair in pairs if pair not in progress.collected]
        elif "begin" in event:
            law, case = event["begin"]
            progress.begun.append((law, case))
        else:
            progress.results.append(LawResult.from_json(event["result"]))
    return progress
