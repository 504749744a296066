"""What one export knows of its call, and the findings that it lets pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.export import ExportedProgram

from torchyard import UnsupportedError
from torchyard_export._audit.parity import Runner, Stage, sweep
from torchyard_export._audit.reference import Case, ModelRefusal, Reference
from torchyard_export._audit.suspects import gru_suspect
from torchyard_export._call import Call
from torchyard_export._capture.dimension import Dynamic, parse_dynamic
from torchyard_export._errors import ArtifactError, ExportError
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._tree import flatten
from torchyard_export.contract import TargetError


class Work:
    """What one export knows, and what it lets pass."""

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        dynamic: Mapping[str, Any] | None,
        accept: Collection[str],
    ) -> None:
        try:
            self._accept = {FindingKind(kind) for kind in accept}
        except ValueError as error:
            known = ", ".join(FindingKind)
            raise ValueError(f"accept: expected kinds of findings ({known}): {error}") from None
        self.call = Call.bind(model, args, kwargs)
        self.dynamic: Dynamic = parse_dynamic(dynamic, self.call.arguments)
        self.device = _device(model, self.call)
        self.namespaces: frozenset[str] = frozenset()
        self.accepted: list[Finding] = []
        self.notes: list[str] = []

    def judge(self, findings: Iterable[Finding], note: str = "") -> None:
        """Keep what is accepted; raise ExportError for the rest."""
        refused: list[Finding] = []
        for finding in findings:
            (self.accepted if finding.kind in self._accept else refused).append(finding)
        if note:
            self.notes.append(f"device: {note}")
        if refused:
            raise ExportError(tuple(refused))

    @contextmanager
    def refusals(self, name: str) -> Iterator[None]:
        """Raise what a target refuses as a finding."""
        try:
            yield
        except (ArtifactError, TargetError, UnsupportedError) as error:
            text = f"{name}: {error}"
            raise ExportError((Finding(FindingKind.TARGET_REFUSES, text),)) from error

    def case(
        self, reference: Reference, sizes: Mapping[str, int], arguments: dict[str, Any]
    ) -> Case:
        """Run the model; a refusal of what its ranges promise is a finding."""
        try:
            return reference.case(sizes, arguments)
        except ModelRefusal as error:
            shown = ", ".join(f"{key}={size}" for key, size in sizes.items())
            text = f"the model itself refuses {shown or 'the example'}: {error}"
            raise ExportError((Finding(FindingKind.MODEL_REFUSES, text, error.where),)) from error

    def stage(
        self,
        name: str,
        runner: Runner,
        cases: Sequence[Case],
        seconds: float,
        program: ExportedProgram,
    ) -> Stage:
        """Compare one form on every case; raise ExportError where it is wrong."""
        suspect = gru_suspect(program, name)
        stage = sweep(name, runner, cases, seconds=seconds, suspect=suspect)
        self.judge(stage.findings)
        return stage


def _device(model: nn.Module, call: Call) -> str:
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [leaf for _, leaf in flatten(call.arguments) if isinstance(leaf, Tensor)]
    kinds = {tensor.device.type for tensor in tensors}
    return next((kind for kind in sorted(kinds) if kind != "cpu"), "cpu")
