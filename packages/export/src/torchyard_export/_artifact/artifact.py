"""Artifacts: a verified program as one file, and what runs it."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard import UnsupportedError, arguments
from torchyard.evidence import raised_as
from torchyard.evidence.documents import parse_json
from torchyard.evidence.files import read_file
from torchyard.evidence.keys import read_public_key
from torchyard_export._artifact.archive import SIZE_LIMIT, read_archive, write_archive
from torchyard_export._artifact.golden import read_golden
from torchyard_export._artifact.inputs import bind_inputs
from torchyard_export._artifact.manifest import (
    GOLDEN,
    MANIFEST,
    REPORT,
    SIGNATURE,
    Manifest,
    check_digests,
    own_versions,
)
from torchyard_export._artifact.signing import sign, signer
from torchyard_export._artifact.vetting import allowing
from torchyard_export._audit.parity import Runner, Stopwatch, sweep
from torchyard_export._audit.reference import Case
from torchyard_export._errors import ArtifactError
from torchyard_export._find_target import find_target
from torchyard_export._report.report import Report
from torchyard_export._tree import unflatten
from torchyard_export.contract import ExportRequest, Target, TargetError


class Artifact:
    """A program that was verified against its model; called like the model.

    Made by :func:`torchyard_export.export` and :func:`torchyard_export.load`.

    Attributes:
        manifest: names, shapes, ranges, tolerances, versions and digests.
        report: how it was verified when it was made.
        author: the public key that signed it, in hexadecimal; empty where none did, or where none
            was asked for.
    """

    def __init__(
        self,
        members: Mapping[str, bytes],
        *,
        author: str = "",
        made: bool = False,
        namespaces: Collection[str] = (),
    ) -> None:
        of = "Artifact"
        self._members = dict(arguments.mapping(of, "members", members, "a mapping name -> bytes"))
        for name in (MANIFEST, REPORT):
            if name not in self._members:
                raise ArtifactError(f"{of}: members: expected {name!r} among them, it is not there")
        for name, content in self._members.items():
            arguments.text(of, "members", name)
            arguments.instance(of, f"members[{name!r}]", content, bytes)
        arguments.instance(of, "author", author, str, "a string")
        self._trusted = arguments.boolean(of, "made", made) or bool(author)
        self._namespaces = _names(of, namespaces)
        self._runners: dict[str, Runner] = {}
        # Each says its versions for the device that it last loaded for.
        self._found: dict[str, Target] = {}
        self._folders: list[tempfile.TemporaryDirectory[str]] = []
        self.author = author
        self.manifest = Manifest.read(self._members[MANIFEST])
        with raised_as(ArtifactError):
            self.report = Report.from_json(parse_json(self._members[REPORT], REPORT))

    @property
    def targets(self) -> tuple[str, ...]:
        """The forms of the program that it holds; the first one runs calls."""
        return tuple(self.manifest.targets)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program as the model is called.

        Raises:
            InputError: an input is not what the manifest says.
        """
        return self.run(self.targets[0], *args, **kwargs)

    def run(self, target: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call one of the program's forms.

        Raises:
            InputError: an input is not what the manifest says.
            ArtifactError: there is no such target, or it may not be loaded.
        """
        leaves = bind_inputs(self.manifest, args, kwargs)
        return unflatten(self.manifest.output_form, list(self.runner(target)(leaves)))

    def runner(self, target: str) -> Runner:
        """Return what runs one form: leaves of the inputs -> leaves of the outputs."""
        arguments.text("Artifact.runner", "target", target)
        if target not in self._runners:
            files = self.files(target)
            folder = tempfile.TemporaryDirectory(prefix="torchyard-export-")
            self._folders.append(folder)
            try:
                with allowing(self._namespaces):
                    self._runners[target] = self._target(target).load(files, Path(folder.name))
            except (TargetError, UnsupportedError) as error:
                raise ArtifactError(f"target {target!r}: {error}") from error
        return self._runners[target]

    def files(self, target: str) -> dict[str, bytes]:
        """Return a target's files by name."""
        arguments.text("Artifact.files", "target", target)
        if target not in self.manifest.targets:
            raise ArtifactError(
                f"target: expected one of {', '.join(self.targets)}, got {target!r}"
            )
        start = f"targets/{target}/"
        return {
            name.removeprefix(start): content
            for name, content in self._members.items()
            if name.startswith(start)
        }

    @property
    def trusted(self) -> bool:
        """Whether its machine code may run: it was made here, or a key proves its author."""
        return self._trusted

    def golden(self) -> list[Case]:
        """Return the golden calls.

        Raises:
            ArtifactError: a tensor is missing or a form is wrong, or this torch lacks the device of
                an input.
        """
        manifest = self.manifest
        return read_golden(
            self._members[GOLDEN],
            manifest.golden,
            manifest.input_form,
            [leaf.device for leaf in manifest.inputs],
            manifest.output_form,
            [leaf.name for leaf in manifest.outputs],
        )

    def verify(self) -> Report:
        """Run every target on the golden calls, here and now.

        Returns:
            A report with a stage per target; its notes say which versions are others than before.

        Raises:
            ArtifactError: a target may not be loaded.
        """
        manifest = self.manifest
        cases = self.golden()
        stages = []
        for name in self.targets:
            with Stopwatch() as watch:
                runner = self.runner(name)
            stages.append(sweep(name, runner, cases, seconds=watch.seconds))
        found = {**own_versions()}
        for name in self.targets:
            found |= self._target(name).versions()
        notes = [
            f"{key}: made with {manifest.versions[key]}, verified with {found[key]}"
            for key in sorted(found.keys() & manifest.versions.keys())
            if found[key] != manifest.versions[key]
        ]
        notes += _drifts(self.report, stages)
        return Report(
            model=manifest.model,
            dimensions=tuple(map(str, manifest.dimensions.values())),
            ruler=self.report.ruler,
            sizes=tuple(case.sizes for case in cases),
            stages=tuple(stages),
            accepted=self.report.accepted,
            notes=tuple(notes),
            versions=found,
            quantization=self.report.quantization,
        )

    def to_bytes(self, *, key: str | Path | None = None) -> bytes:
        """Return the artifact as one file's bytes; signed where a private key is given.

        Raises:
            TypeError, ValueError: the key is no path.
            ArtifactError: the key cannot be read, or nothing here can sign.
        """
        members = {name: item for name, item in self._members.items() if name != SIGNATURE}
        if key is not None:
            members[SIGNATURE] = sign(
                members[MANIFEST], arguments.path("Artifact.to_bytes", "key", key)
            )
        elif SIGNATURE in self._members:
            members[SIGNATURE] = self._members[SIGNATURE]
        return write_archive(members)

    def save(self, path: str | Path, *, key: str | Path | None = None) -> Path:
        """Write the artifact as one file.

        Args:
            path: of the file; an existing one is replaced.
            key: a PEM file with a private Ed25519 key to sign with.

        Raises:
            TypeError, ValueError: an argument is no path.
            ArtifactError: the key cannot be read, or nothing here can sign.
            OSError: the file cannot be written.
        """
        place = arguments.path("Artifact.save", "path", path)
        place.write_bytes(self.to_bytes(key=key))
        return place

    def _target(self, name: str) -> Target:
        if name in self._found:
            return self._found[name]
        request = ExportRequest(self.manifest.device, loads=True)
        target = find_target(str(self.manifest.targets[name]["implementation"]), request)
        if target.native and not self._trusted:
            raise ArtifactError(
                f"target {name!r}: holds machine code, and nothing proves who made it; sign it, "
                "and load it with key= of its author"
            )
        self._found[name] = target
        return target


def load(
    path: str | Path, *, key: str | Path | None = None, namespaces: Collection[str] = ()
) -> Artifact:
    """Read an artifact from a file.

    Nothing is unpickled, evaluated or written to a disk, and nothing runs yet.

    Args:
        path: of the file.
        key: a PEM file with the author's public Ed25519 key; None asks for no author.
        namespaces: libraries of operators, besides torch's and this tree's, that the program may
            call, such as ``torchvision``.

    Raises:
        TypeError, ValueError: an argument is of another kind, or empty.
        ArtifactError: the file cannot be read, or what was expected and what came.
    """
    of = "load"
    place = arguments.path(of, "path", path)
    known = _names(of, namespaces)
    public = None if key is None else arguments.path(of, "key", key)
    try:
        with raised_as(lambda text: ArtifactError(f"{of}: path: {text}")):
            data = read_file(place, SIZE_LIMIT)
    except OSError as error:
        raise ArtifactError(
            f"{of}: path: expected an artifact's file, got {place}: {error.strerror}"
        ) from error
    members = read_archive(data)
    signature = members.get(SIGNATURE)
    if MANIFEST not in members:
        raise ArtifactError(f"member {MANIFEST!r}: expected, not there")
    manifest = Manifest.read(members[MANIFEST])
    others = {name: item for name, item in members.items() if name not in {MANIFEST, SIGNATURE}}
    check_digests(manifest, others)
    _check_members(manifest, others)
    author = ""
    if public is not None:
        with raised_as(lambda text: ArtifactError(f"{of}: key: {text}")):
            wanted = read_public_key(public).hex
        if signature is None:
            raise ArtifactError(f"signature: expected one of {key}, the artifact is not signed")
        author = signer(signature, members[MANIFEST])
        if author != wanted:
            raise ArtifactError(f"signature: expected one of {key} ({wanted}), got one of {author}")
    return Artifact(members, author=author, namespaces=known)


def _check_members(manifest: Manifest, members: Mapping[str, bytes]) -> None:
    for name in members:
        parts = name.split("/")
        known = name in {REPORT, GOLDEN} or (
            len(parts) == 3 and parts[0] == "targets" and parts[1] in manifest.targets
        )
        if not known:
            raise ArtifactError(f"member {name!r}: expected a report, golden calls and targets")
    if not manifest.targets or not manifest.golden:
        raise ArtifactError("manifest: expected at least one target and one golden call")


def _names(of: str, namespaces: object) -> frozenset[str]:
    """Return the namespaces of operators that a program may call."""
    expected = "a list of names of libraries"
    names = arguments.sequence(
        *(of, "namespaces", namespaces, arguments.text), expected=expected, sets=True
    )
    return frozenset(names)


def _drifts(report: Report, stages: Sequence[Any]) -> list[str]:
    before = {stage.name: stage for stage in report.stages}
    notes = []
    for stage in stages:
        old = before.get(stage.name)
        if old is not None and stage.passed and stage.ratio > max(2 * old.ratio, 0.5):
            notes.append(
                f"{stage.name}: {stage.ratio:.2f} of its bound now, {old.ratio:.2f} when made"
            )
    return notes
