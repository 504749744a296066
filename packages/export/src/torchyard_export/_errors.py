"""The errors of export and of artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard import TorchyardError

if TYPE_CHECKING:
    from torchyard_export._finding import Finding


class ExportError(TorchyardError, RuntimeError):
    """A model is not exported, because the program would not do what the model does.

    Attributes:
        findings: what was found, each with its kind and, where it is known, the user's line.
    """

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__("\n".join(finding.render() for finding in findings))
        self.findings = findings


class ArtifactError(TorchyardError, ValueError):
    """An artifact is refused: it is not as it was written, or holds what must not be loaded."""


class InputError(TorchyardError, ValueError):
    """A call of an artifact is refused: an input is not what its manifest says."""
