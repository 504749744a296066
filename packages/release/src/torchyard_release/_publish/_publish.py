"""Publishing: each file once, in order, by its digest; a later run continues where one stopped.

What an index answers to an upload proves nothing; what it lists and serves afterwards does. So
every step asks the index first, and a second run is the same as the first that went through:

- same name, same sha256: done, whoever uploaded it, and however often this is asked;
- same name, other sha256: everything stops, because an index keeps a name for ever;
- not listed: uploaded, and done when the index lists it and serves the same bytes.

A package whose file fails blocks what depends on it, and nothing else.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from torchyard_release._errors import ReleaseError
from torchyard_release._index._upload import Listed, Reply, Told
from torchyard_release._records._candidate import sha256

# How often an index is asked for one file, and the seconds before each time. An index may list a
# file a little after it took it.
DELAYS: Final = (0.0, 1.0, 3.0, 10.0, 30.0)


class Remote(Protocol):
    """An index as publishing uses it, such as :class:`torchyard_release._index._upload.Index`."""

    repository: str

    def upload(self, path: Path) -> Told:
        """Upload a file once."""

    def listed(self, project: str, *, again: bool = False) -> Mapping[str, Listed]:
        """Return what the index lists of a project, by file name."""

    def fetch(self, listed: Listed) -> bytes:
        """Return a file's content as the index serves it."""


class Record(Protocol):
    """Where each step is written down before the next begins."""

    def append(self, kind: str, /, **data: Any) -> object:
        """Write one line, durably."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A package and its files.

    Attributes:
        package: the distribution's name.
        requires: the distributions of the train that it requires.
        files: file name -> sha256 of the manifest.
    """

    package: str
    requires: tuple[str, ...]
    files: Mapping[str, str]


class _Stopped(ReleaseError):
    """Bytes differ: going on would spread them."""


class Step(StrEnum):
    """What became of a file, or would."""

    DONE = "done"
    UPLOADED = "uploaded"
    PLANNED = "would be uploaded"
    FAILED = "failed"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Fate:
    """One file's end.

    Attributes:
        file: its name.
        package: the distribution that it belongs to.
        step: what became of it.
        reason: why, where it is not on the index.
    """

    file: str
    package: str
    step: Step
    reason: str = ""


@dataclass(slots=True)
class Publication:
    """One run of publishing.

    Attributes:
        folder: where the files are.
        parcels: the packages, each after what it requires.
        remote: the index.
        record: the journal.
        delays: how often an index is asked for one file, and the seconds before each time.
        say: told each file's fate as it comes.
    """

    folder: Path
    parcels: Sequence[Parcel]
    remote: Remote
    record: Record
    delays: Sequence[float] = DELAYS
    say: Callable[[Fate], object] = field(default=lambda fate: None)

    def plan(self) -> tuple[Fate, ...]:
        """Return what a run would do now, without writing anywhere."""
        self._check_order()
        return tuple(
            Fate(name, parcel.package, self._standing(parcel.package, name, digest) or Step.PLANNED)
            for parcel in self.parcels
            for name, digest in sorted(parcel.files.items())
        )

    def run(self) -> tuple[Fate, ...]:
        """Publish what is not published yet.

        Raises:
            ReleaseError: a file here or on the index has other bytes than the manifest says.
        """
        try:
            # Before the first upload, so that a name that is taken stops all while it is cheap.
            self.plan()
            return self._run()
        except _Stopped as error:
            self.record.append("publish.stopped", reason=str(error))
            raise

    def _run(self) -> tuple[Fate, ...]:
        stuck: dict[str, str] = {}
        fates: list[Fate] = []
        for parcel in self.parcels:
            blocker = next((name for name in parcel.requires if name in stuck), "")
            for name, digest in sorted(parcel.files.items()):
                if blocker:
                    fate = Fate(name, parcel.package, Step.BLOCKED, f"waits for {blocker}")
                    self.record.append("publish.blocked", file=name, waits_for=blocker)
                else:
                    fate = self._publish(parcel.package, name, digest)
                if fate.step in {Step.BLOCKED, Step.FAILED}:
                    stuck[parcel.package] = fate.reason
                fates.append(fate)
                self.say(fate)
        return tuple(fates)

    def _publish(self, package: str, name: str, digest: str) -> Fate:
        if self._standing(package, name, digest, again=True):
            self._verify(package, name, digest)
            self.record.append("publish.done", file=name, sha256=digest, found="there already")
            return Fate(name, package, Step.DONE)
        path = self.folder / name
        told = Told(Reply.UNCLEAR, "")
        for attempt, delay in enumerate(self.delays):
            # After an unclear answer the file may be there; after a clear one it soon is.
            if told.reply is Reply.UNCLEAR:
                self.record.append("publish.sending", file=name, sha256=digest, attempt=attempt)
                told = self.remote.upload(path)
                self.record.append("publish.answer", file=name, reply=told.reply, text=told.text)
            time.sleep(delay)
            if self._standing(package, name, digest, again=True):
                self._verify(package, name, digest)
                self.record.append("publish.done", file=name, sha256=digest, found="uploaded")
                return Fate(name, package, Step.UPLOADED)
            if told.reply is Reply.REFUSED:
                break
        reason = f"{self.remote.repository} {told.reply} it ({told.text}) and does not list it"
        self.record.append("publish.failed", file=name, sha256=digest, reason=reason)
        return Fate(name, package, Step.FAILED, reason)

    def _standing(
        self, package: str, name: str, digest: str, *, again: bool = False
    ) -> Step | None:
        """Return DONE where the index has these bytes, None where it has no such file."""
        path = self.folder / name
        if not path.is_file() or (here := sha256(path)) != digest:
            found = here if path.is_file() else "no such file"
            raise _Stopped(
                f"{path}: expected sha256 {digest}, which the manifest says, got {found}; "
                "nothing more was uploaded",
                remedy="restore the candidate's dist folder from where it was signed; what is "
                "published is never built again",
            )
        listed = self.remote.listed(package, again=again).get(name)
        if listed is None:
            return None
        found = listed.sha256 or hashlib.sha256(self.remote.fetch(listed)).hexdigest()
        if found != digest:
            raise _Stopped(
                f"{name}: expected sha256 {digest} on {self.remote.repository}, it has {found}: "
                "other bytes under the same name; nothing more was uploaded",
                remedy="find out who uploaded it (see `torchyard release history`); a name is "
                "never used twice: yank it there, cut the next patch release, publish that",
            )
        return Step.DONE

    def _verify(self, package: str, name: str, digest: str) -> None:
        """Fetch a file as a user would; the page's digest alone says nothing about the bytes."""
        found = hashlib.sha256(self.remote.fetch(self.remote.listed(package)[name])).hexdigest()
        if found != digest:
            raise _Stopped(
                f"{name}: {self.remote.repository} serves sha256 {found}, but {digest} was "
                "uploaded: what users get is not what was signed; nothing more was uploaded",
                remedy="warn users, ask the index's operators, and publish again when "
                "`torchyard release audit` is green",
            )

    def _check_order(self) -> None:
        seen: set[str] = set()
        names = {parcel.package for parcel in self.parcels}
        for parcel in self.parcels:
            early = (names & set(parcel.requires)) - seen
            if early or not parcel.files:
                what = f"{', '.join(sorted(early))} before it" if early else "files"
                raise ReleaseError(
                    f"{parcel.package}: expected {what} in the order of publishing, found none",
                    remedy="run `torchyard release inspect`; the candidate is not complete",
                )
            seen.add(parcel.package)
        if not seen:
            raise ReleaseError(
                "publish: expected packages to publish, got none",
                remedy="build a candidate first: `torchyard release build`",
            )
