"""The manifest of an artifact: what it takes and gives, and the digest of everything in it."""

from __future__ import annotations

import hashlib
import inspect
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import cpu_model
from torchyard.evidence import raised_as
from torchyard.evidence.documents import parse_json, structure
from torchyard_export._call import read_signature
from torchyard_export._capture.dimension import Dimension
from torchyard_export._errors import ArtifactError

SCHEMA: Final = 1
MANIFEST: Final = "manifest.json"
REPORT: Final = "report.json"
GOLDEN: Final = "golden.safetensors"
SIGNATURE: Final = "signature.json"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor, or one number that stays.

    Attributes:
        name: its path, such as ``x`` or ``state.0``.
        dtype: of a tensor, such as ``float32``; empty for a number that stays.
        shape: sizes, and names of dimensions; None where only the rank is known.
        value: the number that stays.
        device: of an input that is a tensor: the type of the device that it was on; empty in
            artifacts that do not say it.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] = ()
    value: Any = None
    device: str = ""

    @classmethod
    def of(cls, name: str, leaf: Any, axes: Mapping[int, str]) -> Leaf:
        """Describe an input."""
        if not isinstance(leaf, Tensor):
            return cls(name, "", (), leaf)
        shape = tuple(axes.get(axis, size) for axis, size in enumerate(leaf.shape))
        return cls(name, str(leaf.dtype).removeprefix("torch."), shape, None, leaf.device.type)


@dataclass(frozen=True, slots=True)
class _Said:
    """A manifest as its member has it."""

    schema: int
    model: str
    device: str
    signature: tuple[tuple[str, str], ...]
    inputs: tuple[Leaf, ...]
    input_form: Any
    outputs: tuple[Leaf, ...]
    output_form: Any
    dimensions: dict[str, tuple[int, int | None]]
    targets: dict[str, dict[str, Any]]
    golden: list[dict[str, Any]]
    versions: dict[str, str]
    digests: dict[str, str]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artifact says of itself.

    Attributes:
        model: the class of the model.
        device: what it was recorded on.
        signature: of a call.
        inputs, outputs: their leaves; ``input_form`` and ``output_form`` are their structures.
        dimensions: by name.
        targets: name -> what is known of it, its native code and versions among it.
        golden: what is known of each golden call, see :mod:`torchyard_export._artifact.golden`.
        versions: of what made it.
        digests: member -> sha256 in hexadecimal.
    """

    model: str
    device: str
    signature: inspect.Signature
    inputs: tuple[Leaf, ...]
    input_form: Any
    outputs: tuple[Leaf, ...]
    output_form: Any
    dimensions: dict[str, Dimension]
    targets: dict[str, dict[str, Any]]
    golden: list[dict[str, Any]]
    versions: dict[str, str]
    digests: dict[str, str]

    def to_bytes(self) -> bytes:
        """Return the member ``manifest.json``."""
        data = {
            "schema": SCHEMA,
            "model": self.model,
            "device": self.device,
            "signature": [[p.name, p.kind.name] for p in self.signature.parameters.values()],
            "inputs": [_leaf_json(leaf) for leaf in self.inputs],
            "input_form": self.input_form,
            "outputs": [_leaf_json(leaf) for leaf in self.outputs],
            "output_form": self.output_form,
            "dimensions": {d.name: [d.min, d.max] for d in self.dimensions.values()},
            "targets": self.targets,
            "golden": self.golden,
            "versions": self.versions,
            "digests": self.digests,
        }
        return json.dumps(data, indent=1, ensure_ascii=True).encode() + b"\n"

    @classmethod
    def read(cls, data: bytes) -> Manifest:
        """Read the member.

        Raises:
            ArtifactError: it is not as this version writes it.
        """
        with raised_as(ArtifactError):
            text = parse_json(data, "manifest")
            schema = text.get("schema") if isinstance(text, dict) else None
            if schema != SCHEMA:
                raise ArtifactError(
                    f"manifest: expected schema {SCHEMA}, got {schema!r}; read it with the "
                    f"torchyard-export that its versions name"
                )
            said = structure(text, _Said, "manifest")
        try:
            signature = read_signature(said.signature)
            dimensions = {
                name: Dimension(name, low, high) for name, (low, high) in said.dimensions.items()
            }
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"manifest: {type(error).__name__}: {error}") from error
        found = cls(
            model=said.model,
            device=said.device,
            signature=signature,
            inputs=said.inputs,
            input_form=said.input_form,
            outputs=said.outputs,
            output_form=said.output_form,
            dimensions=dimensions,
            targets=said.targets,
            golden=said.golden,
            versions=said.versions,
            digests=said.digests,
        )
        if found.to_bytes() != data:
            raise ArtifactError("manifest: expected what this version writes, and no more")
        return found


def digests(members: Mapping[str, bytes]) -> dict[str, str]:
    """Return the sha256 of each member in hexadecimal."""
    return {name: hashlib.sha256(members[name]).hexdigest() for name in sorted(members)}


def check_digests(manifest: Manifest, members: Mapping[str, bytes]) -> None:
    """Compare the members with the digests; raises ArtifactError that names the first."""
    found = digests(members)
    for name in sorted(found.keys() | manifest.digests.keys()):
        if name not in found:
            raise ArtifactError(f"member {name!r}: expected by the manifest, not there")
        if found[name] != manifest.digests.get(name):
            raise ArtifactError(
                f"member {name!r}: expected sha256 {manifest.digests.get(name, 'none')}, got "
                f"{found[name]}"
            )


def own_versions() -> dict[str, str]:
    """Return what took part here."""
    return {
        "torch": torch.__version__,
        "torchyard-export": version("torchyard-export"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
    }


def _leaf_json(leaf: Leaf) -> dict[str, Any]:
    said = {"name": leaf.name, "dtype": leaf.dtype, "shape": list(leaf.shape), "value": leaf.value}
    return {**said, "device": leaf.device} if leaf.device else said
