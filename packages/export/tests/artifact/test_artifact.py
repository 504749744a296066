"""An artifact proves itself again, and says who made it where a key does."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from packages.export.tests.models.small import factory
from torchyard_export import Artifact, ArtifactError, InputError, Report, export, load
from torchyard_export._artifact.archive import read_archive, write_archive
from torchyard_export._artifact.manifest import GOLDEN, MANIFEST
from torchyard_export._artifact.signing import signer
from torchyard_export._report.html import html


def keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a pair of keys; return the private and the public one."""
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def _forged(packed: bytes, member: str, content: bytes) -> bytes:
    """Change a member, and make its digest right again, as anybody can without a key."""
    import hashlib

    members = {**read_archive(packed), member: content}
    said = json.loads(members[MANIFEST])
    said["digests"][member] = hashlib.sha256(content).hexdigest()
    members[MANIFEST] = json.dumps(said, indent=1).encode() + b"\n"
    return write_archive(members)


def test_the_same_members_are_the_same_bytes(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tya"
    path.write_bytes(packed)
    assert load(path).to_bytes() == packed


def _recorded_on(packed: bytes, device: str, folder: Path) -> Artifact:
    """Return an artifact whose inputs were on a device; on one without a name, as older ones say.

    Its manifest is no member that a digest protects.
    """
    members = read_archive(packed)
    said = json.loads(members[MANIFEST])
    for leaf in said["inputs"]:
        assert leaf["device"] == "cpu"
        leaf |= {"device": device}
        if not device:
            del leaf["device"]
    members[MANIFEST] = json.dumps(said, indent=1).encode() + b"\n"
    path = folder / f"on-{device}.tya"
    path.write_bytes(write_archive(members))
    return load(path)


def test_an_input_on_another_device_is_refused(packed: bytes, tmp_path: Path) -> None:
    # Machine code for that device would read the memory of this one.
    artifact = _recorded_on(packed, "hpu", tmp_path)
    inputs = _recorded_on(packed, "", tmp_path).golden()[0].arguments
    with pytest.raises(InputError, match=r"expected a tensor on hpu, got one on cpu; move it"):
        artifact(**inputs)


def test_golden_calls_of_a_device_that_is_not_here(packed: bytes, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="golden calls: expected the device hpu"):
        _recorded_on(packed, "hpu", tmp_path).verify()


def test_an_artifact_that_says_no_device_of_its_inputs_is_read(
    packed: bytes, tmp_path: Path
) -> None:
    assert _recorded_on(packed, "", tmp_path).verify().passed


def test_a_loaded_artifact_proves_itself(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tya"
    path.write_bytes(packed)
    report = load(path).verify()
    assert report.passed
    assert [stage.name for stage in report.stages] == ["pt2"]
    assert report.stages[0].cases == len(report.sizes) > 3
    assert not report.notes


def test_an_artifact_whose_golden_outputs_are_others_does_not_hold(
    packed: bytes, tmp_path: Path
) -> None:
    tensors = safetensors.torch.load(read_archive(packed)[GOLDEN])
    tensors["1.out.0"] = tensors["1.out.0"] + 1e-3
    tensors["1.exact.0"] = tensors["1.exact.0"] + 1e-3
    path = tmp_path / "a.tya"
    path.write_bytes(_forged(packed, GOLDEN, safetensors.torch.save(tensors)))
    report = load(path).verify()
    assert not report.passed
    assert report.stages[0].wrong == 1
    assert "from float64, allowed" in report.stages[0].findings[0].text


def test_verification_names_changed_versions(packed: bytes, tmp_path: Path) -> None:
    members = read_archive(packed)
    said = json.loads(members[MANIFEST])
    said["versions"]["torch"] = "2.0.0"
    path = tmp_path / "a.tya"
    path.write_bytes(
        write_archive({**members, MANIFEST: json.dumps(said, indent=1).encode() + b"\n"})
    )
    notes = load(path).verify().notes
    assert notes == (f"torch: made with 2.0.0, verified with {torch.__version__}",)


def test_golden_calls_in_another_form_are_refused(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tya"
    path.write_bytes(_forged(packed, GOLDEN, b"not safetensors"))
    with pytest.raises(ArtifactError, match="golden calls"):
        load(path).verify()


def test_a_signature_names_its_author(artifact: Artifact, tmp_path: Path) -> None:
    private, public = keys(tmp_path, "author")
    _, other = keys(tmp_path, "other")
    path = artifact.save(tmp_path / "a.tya", key=private)
    loaded = load(path, key=public)
    assert len(loaded.author) == 64
    assert load(path).author == ""
    with pytest.raises(ArtifactError, match=r"signature: expected one of .*other\.pub"):
        load(path, key=other)
    assert loaded.to_bytes() == path.read_bytes()


def test_a_signature_of_another_manifest_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    private, public = keys(tmp_path, "author")
    path = artifact.save(tmp_path / "a.tya", key=private)
    path.write_bytes(_forged(path.read_bytes(), "report.json", b"{}"))
    with pytest.raises(ArtifactError, match="got one by another key or of other content"):
        load(path, key=public)
    unsigned = artifact.save(tmp_path / "b.tya")
    with pytest.raises(ArtifactError, match="the artifact is not signed"):
        load(unsigned, key=public)
    with pytest.raises(ArtifactError, match="expected a public key as PEM"):
        load(path, key=private)
    with pytest.raises(ArtifactError, match="expected a private key as PEM"):
        artifact.save(path, key=public)


def test_a_report_is_the_same_after_writing_and_reading(artifact: Artifact) -> None:
    report = artifact.report
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report
    assert "passed" in report.render()
    page = html(report)
    assert page.startswith("<!doctype html>")
    assert all(stage.name in page for stage in report.stages)
    assert "<script" not in html(
        Report("<script>", (), "x", (), report.stages, (), ("<script>",), {})
    )


def test_an_artifact_does_not_grow_with_time() -> None:
    call = factory()
    sizes = []
    for most in (16, 1000):
        call["dynamic"] = {"x": {0: "batch:1..2", 1: f"time:1..{most}"}}
        members = read_archive(export(**call).to_bytes())
        program = zipfile.ZipFile(io.BytesIO(members["targets/pt2/program.pt2"]))
        # Of what is in the records: each is padded to 64 bytes, by what comes before it.
        sizes.append(sum(record.file_size for record in program.infolist()))
    assert abs(sizes[0] - sizes[1]) < 64


def test_operators_of_another_library_are_allowed_by_the_caller_of_load(tmp_path: Path) -> None:
    @torch.library.custom_op("torchyard_export_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = torch.ops.torchyard_export_tests.twice(x)
            return found

    x = torch.randn(3)
    path = export(Twice().eval(), (x,)).save(tmp_path / "a.tya")
    with pytest.raises(ArtifactError, match="name others with namespaces="):
        load(path)(x)
    assert torch.equal(load(path, namespaces=["torchyard_export_tests"])(x), x * 2)


def test_another_target_is_named_with_those_that_are_there(artifact: Artifact) -> None:
    with pytest.raises(ArtifactError, match="target: expected one of pt2, got 'onnx'"):
        artifact.run("onnx", torch.zeros(2, 2, 4))


def test_a_member_that_was_signed_before_is_still_a_signature() -> None:
    # As artifacts have it that were saved before torchyard.evidence; the key is bytes 0 to 31.
    public = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    signature = (
        "9a9d593dd3aa0f0cd18e5d6a05e005659d3a2287cc0b1de94e4c8aec9d9a91c5"
        "110a4047051ccd8f6ae9456cb7d7cb51348b1ac777c1b5b49dcaf8547b44dc00"
    )
    member = f'{{\n "key": "{public}",\n "signature": "{signature}"\n}}\n'.encode()
    assert signer(member, b"content") == public
    with pytest.raises(ArtifactError, match=r"signature\.key: expected a string, got 3"):
        signer(b'{"key": 3, "signature": ""}', b"content")
