"""One certification: the laws run in processes of their own, which the plugin may crash."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

from torchyard import probe_platform
from torchyard_conformance._law import all_laws
from torchyard_conformance._profile import Profile
from torchyard_conformance._reports._assembly import assemble
from torchyard_conformance._reports._expectation import Expectation
from torchyard_conformance._reports._result import LawResult, Report
from torchyard_conformance._runs._events import Progress
from torchyard_conformance._runs._share import Share
from torchyard_conformance._subjects._subject import Subject

_ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be tried.

    Attributes:
        subject: the plugin, and the part of it that is judged.
        profile: the laws.
        device: the device type asked for; empty: the plugin's.
        case: this law or ``law[case]`` alone; empty: all.
        jobs: processes at once; laws that measure time or memory then come last, alone.
    """

    subject: Subject
    profile: Profile
    device: str = ""
    case: str = ""
    jobs: int = 1

    def certify(
        self, expectations: tuple[Expectation, ...], watch: Callable[[Progress], None]
    ) -> Report:
        """Run the laws and return the report.

        Args:
            expectations: the failures that the plugin's author expects.
            watch: called again and again while the laws run.

        Raises:
            RunError: the laws could not be collected; the message holds pytest's words.
        """
        self.profile.check(all_laws())
        with tempfile.TemporaryDirectory(prefix="torchyard-certify-") as folder:
            results = self._results(Path(folder), watch)
        return assemble(self.subject, self.profile, results, expectations)

    def _results(self, folder: Path, watch: Callable[[Progress], None]) -> list[LawResult]:
        if self.jobs == 1:
            return self._share("", Event()).results(folder, watch)
        parts = [f"{number}/{self.jobs}" for number in range(1, self.jobs + 1)]
        seen, stopped = _Seen(watch), Event()

        def results(part: str) -> list[LawResult]:
            own = folder / part.replace("/", "-")
            own.mkdir()
            return self._share(part, stopped).results(own, seen.of(part))

        with ThreadPoolExecutor(self.jobs) as pool:
            together = [pool.submit(results, part) for part in parts]
            try:
                ended = [result for future in as_completed(together) for result in future.result()]
            except BaseException:
                # Else the pool would wait for the others' cases, after an interrupt too.
                stopped.set()
                raise
        return [*ended, *results(_ALONE)]

    def _share(self, part: str, stopped: Event) -> Share:
        # Alone as in a run of one job, since laws compare times with those of the whole machine.
        beside = part not in {"", _ALONE}
        threads = max(1, probe_platform().cpu_cores // self.jobs) if beside else 0
        return Share(
            *(self.subject, self.profile.name, self.device, self.case),
            part=part,
            threads=threads,
            stopped=stopped,
        )


class _Seen:
    """Adds up how far the processes of a run have come."""

    def __init__(self, watch: Callable[[Progress], None]) -> None:
        self._watch = watch
        self._lock = Lock()
        self._parts: dict[str, Progress] = {}

    def of(self, part: str) -> Callable[[Progress], None]:
        """Return a function that takes the progress of one of them."""

        def note(progress: Progress) -> None:
            with self._lock:
                # Last, so that the case that began last in this process is the last of all.
                self._parts.pop(part, None)
                self._parts[part] = progress
                every = self._parts.values()
                self._watch(
                    Progress(
                        collected=[pair for each in every for pair in each.collected],
                        begun=[pair for each in every for pair in each.begun],
                        results=[result for each in every for result in each.results],
                    )
                )

        return note
