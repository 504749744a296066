"""Errors of the release train; each has a remedy."""

from __future__ import annotations

from torchyard import TorchyardError


class ReleaseError(TorchyardError):
    """Base of every error of the train.

    Args:
        text: what is wrong, with what was expected and what was found.
        remedy: what to do next, in the imperative.

    Attributes:
        text: as given.
        remedy: as given; never empty.
    """

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(f"{text}; {remedy}")
        self.text = text
        self.remedy = remedy


class TrainError(ReleaseError):
    """The declaration train.toml is missing, unreadable or inconsistent."""


class WorkspaceError(ReleaseError):
    """The repository does not hold what train.toml declares."""


class CycleError(WorkspaceError):
    """Packages require one another in a circle."""


class GitError(ReleaseError):
    """git refused, or the repository is in a state in which a step may not begin."""


class LockedError(ReleaseError):
    """Another operator is at work on this train."""


class JournalError(ReleaseError):
    """The journal cannot be written, or is not what was written."""


class CandidateError(ReleaseError):
    """A candidate's record is missing, or does not describe the files that are there."""
