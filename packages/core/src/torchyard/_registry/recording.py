"""``record_decisions``: which implementation computed each call, in a profile's trace as well."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from torchyard import arguments
from torchyard._errors import TorchyardError
from torchyard._platforms.platform import imported_torch
from torchyard._registry.decision import Decision
from torchyard._registry.registry import registry

__all__ = ["DecisionRecord", "record_decisions"]

_PREFIX: Final = "torchyard::"


class DecisionRecord:
    """The decisions that calls inside of :func:`record_decisions` were computed by."""

    def __init__(self) -> None:
        self._calls: dict[Decision, int] = {}
        self._labels: dict[Decision, str] = {}
        self._lock = threading.Lock()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Each decision once, in the order of the first call."""
        return tuple(self._calls)

    def calls(self, decision: Decision) -> int:
        """Return how many calls a decision computed; 0 of one that is not in the record."""
        arguments.instance("DecisionRecord.calls", "decision", decision, Decision)
        return self._calls.get(decision, 0)

    def label(self, decision: Decision) -> str:
        """Return the name of a decision's ranges in a trace.

        ``torchyard::<op> -> <implementation>``, with what stood before it and refused, and the
        decision's number in this record: two requests of one op have two.

        Raises:
            ValueError: the record has no call of it.
        """
        arguments.instance("DecisionRecord.label", "decision", decision, Decision)
        found = self._labels.get(decision)
        if found is None:
            raise ValueError(
                f"DecisionRecord.label: decision: expected one of this record's "
                f"{len(self._calls)}, got another of {decision.contract}"
            )
        return found

    def render(self) -> str:
        """Return a line per decision with its number of calls, then its whole trace."""
        return "\n".join(
            f"{self._labels[decision]}: {calls} call{'' if calls == 1 else 's'}\n"
            f"{decision.render()}"
            for decision, calls in self._calls.items()
        )

    def annotate(self, trace: str | Path, out: str | Path | None = None) -> int:
        """Write each decision, with request and reasons, into its ranges in a Chrome trace.

        A viewer shows them as the arguments of a range that is chosen.

        Args:
            trace: a file that ``torch.profiler.profile.export_chrome_trace`` wrote, ``.json`` or
                ``.json.gz``.
            out: where to write it; None: to the same file.

        Returns:
            How many ranges were annotated.

        Raises:
            TorchyardError: the file is no such trace, or has no range of this record, as where the
                profile did not run inside of ``record_decisions``.
        """
        source = arguments.path("DecisionRecord.annotate", "trace", trace)
        target = source if out is None else arguments.path("DecisionRecord.annotate", "out", out)
        content = _read(source)
        known = {label: decision for decision, label in self._labels.items()}
        annotated = 0
        for event in content["traceEvents"]:
            decision = known.get(str(event.get("name")))
            # A device's copy of a range has the same name.
            if decision is not None and event.get("ph") == "X":
                event.setdefault("args", {}).update(_arguments(decision))
                annotated += 1
        if not annotated:
            raise TorchyardError(
                f"DecisionRecord.annotate: {source}: expected ranges of these {len(known)} "
                "decisions, found none; profile inside of the block of record_decisions()"
            )
        _write(target, content)
        return annotated

    def _observe(self, decision: Decision) -> AbstractContextManager[Any]:
        """Count a call, and name it where a profile runs."""
        with self._lock:
            self._calls[decision] = self._calls.get(decision, 0) + 1
            label = self._labels.get(decision)
            if label is None:
                label = self._labels[decision] = _label(decision, len(self._labels) + 1)
        torch = imported_torch()
        if torch is None:
            return nullcontext()
        from torchyard.torch_compat import is_profiling

        # Without a profile torch's range would do nothing, and take a microsecond.
        named: Callable[[str], AbstractContextManager[Any]] = torch.profiler.record_function
        return named(label) if is_profiling() else nullcontext()


@contextmanager
def record_decisions() -> Iterator[DecisionRecord]:
    """Record which implementations compute calls inside of a ``with`` block, in all threads.

    In a profile by torch.profiler that runs in it, each call is a range besides the op's own::

        with torch.profiler.profile() as profile, torchyard.record_decisions() as record:
            model(x)
        profile.export_chrome_trace("trace.json")
        record.annotate("trace.json")

    Outside of a block nothing is recorded, and calls cost what they did. In one, and at the first
    call of each kind after it, decisions are looked up again, and repeated calls take the way
    through torch's dispatcher, so times in it are not those of a run without.

    Yields:
        The record, which grows until the block ends.
    """
    record = DecisionRecord()
    with registry().observe(record._observe):
        yield record


def _label(decision: Decision, number: int) -> str:
    skipped = ", ".join(f"{item.name} {item.verdict.code}" for item in decision.skipped())
    why = f" ({skipped})" if skipped else ""
    return f"{_PREFIX}{decision.contract.partition('/')[0]} -> {decision.name}{why} #{number}"


def _arguments(decision: Decision) -> dict[str, str]:
    """Return a decision as a viewer shows it."""
    data = decision.to_json()
    found = {
        "torchyard contract": decision.contract,
        "torchyard implementation": decision.name,
        "torchyard decided by": str(decision.source),
        "torchyard request": ", ".join(f"{k}={v}" for k, v in data["request"].items()),
    }
    for item in data["trace"]:
        reason = item["text"] if item["code"] is None else f"{item['code']}: {item['text']}"
        found[f"torchyard candidate {item['name']}"] = f"{item['outcome']}: {reason}"
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        content: object = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (OSError, ValueError, EOFError) as error:
        raise TorchyardError(f"DecisionRecord.annotate: {path}: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise TorchyardError(
            f"DecisionRecord.annotate: {path}: expected a Chrome trace with 'traceEvents', got "
            "other JSON; torch.profiler.profile.export_chrome_trace writes one"
        )
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
