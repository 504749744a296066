"""A signature says whose a bundle is; without a key nobody is believed to have made it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from torchyard.evidence import KeyFileError
from torchyard_conformance._evidence._archive import BundleError, read_archive, write_archive
from torchyard_conformance._evidence._bundle import SIGNATURE, bundle, manifest_of
from torchyard_conformance._evidence._signature import signer
from torchyard_conformance._evidence._verify import Authorship, verify

from .reports import certified_report


def _write(
    folder: Path,
    name: str,
    key: ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey,
    encryption: KeySerializationEncryption | None = None,
) -> tuple[Path, Path]:
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    private.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the files of the author's private and public key."""
    folder = tmp_path_factory.mktemp("author")
    return _write(folder, "author", ed25519.Ed25519PrivateKey.generate())


@pytest.fixture(scope="module")
def signed(author: tuple[Path, Path]) -> bytes:
    """Return a bundle that the author signed."""
    return bundle(certified_report(), key=author[0])


def test_the_authors_key_proves_the_author(author: tuple[Path, Path], signed: bytes) -> None:
    verified = verify(signed, key=author[1])
    assert verified.authorship is Authorship.PROVEN
    assert verified.report == certified_report()
    assert len(verified.key) == 64


def test_a_signed_bundle_without_a_key_to_ask_for_proves_nobody(signed: bytes) -> None:
    assert verify(signed).authorship is Authorship.UNKNOWN_KEY


def test_a_bundle_is_signed_the_same_way_each_time(
    author: tuple[Path, Path], signed: bytes
) -> None:
    assert bundle(certified_report(), key=author[0]) == signed


def test_an_unsigned_bundle_and_a_strangers_are_refused_where_a_key_is_named(
    author: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match=r"expected one of .*, the bundle is not signed"):
        verify(bundle(certified_report()), key=author[1])
    stranger, _ = _write(tmp_path, "stranger", ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(BundleError, match=r"signature: expected one of .*, got one of"):
        verify(bundle(certified_report(), key=stranger), key=author[1])


def test_a_signature_does_not_fit_another_report(signed: bytes) -> None:
    forged = read_archive(bundle(certified_report(plugin_version="9.9")))
    forged[SIGNATURE] = read_archive(signed)[SIGNATURE]
    with pytest.raises(BundleError, match="got one by another key or of other content"):
        verify(write_archive(forged))


@given(st.data())
def test_any_byte_of_the_signature_counts(
    author: tuple[Path, Path], signed: bytes, data: st.DataObject
) -> None:
    members = read_archive(signed)
    line = bytearray(members[SIGNATURE])
    line[data.draw(st.integers(0, len(line) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BundleError, match=r"^signature: "):
        verify(write_archive({**members, SIGNATURE: bytes(line)}), key=author[1])


def test_a_signature_that_the_manifest_names_is_no_signature(signed: bytes) -> None:
    members = read_archive(signed)
    named = {name: text for name, text in members.items() if not name.startswith("MANIFEST")}
    manifest = manifest_of({**named, SIGNATURE: members[SIGNATURE]})
    with pytest.raises(BundleError, match=r"expected by MANIFEST\.sha256, not there"):
        verify(write_archive({**members, "MANIFEST.sha256": manifest}))


@pytest.mark.parametrize("text", [b"", b"ed25519", b"rsa aa bb\n", b"ed25519 zz zz\n", b"\xff\n"])
def test_a_signature_of_another_form_is_refused(signed: bytes, text: bytes) -> None:
    with pytest.raises(BundleError, match=r"^signature: "):
        verify(write_archive({**read_archive(signed), SIGNATURE: text}))


def test_keys_of_another_kind_are_refused_by_name(
    author: tuple[Path, Path], signed: bytes, tmp_path: Path
) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = _write(tmp_path, "rsa", other)
    locked, _ = _write(
        tmp_path,
        "locked",
        ed25519.Ed25519PrivateKey.generate(),
        BestAvailableEncryption(b"open sesame"),
    )
    (tmp_path / "no.pem").write_text("no key\n")
    for path, words in [
        (private, "expected an Ed25519 key, got RSAPrivateKey"),
        (locked, "expected a private key as PEM, without a password"),
        (author[1], "expected a private key as PEM"),
        (tmp_path / "no.pem", "expected a private key as PEM"),
        (tmp_path / "absent.pem", "expected a private key as PEM"),
    ]:
        with pytest.raises(KeyFileError) as caught:
            bundle(certified_report(), key=path)
        assert str(path) in str(caught.value)
        assert words in str(caught.value)
    for path, words in [(public, "got RSAPublicKey"), (author[0], "expected a public key as PEM")]:
        with pytest.raises(KeyFileError, match=words):
            verify(signed, key=path)


def test_where_nothing_can_check_a_signature_it_proves_nothing(
    author: tuple[Path, Path], signed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setattr("torchyard.evidence.keys.find_spec", lambda name: None)
    assert verify(signed).authorship is Authorship.UNCHECKED
    assert verify(bundle(certified_report())).authorship is Authorship.UNSIGNED
    for demand in (
        lambda: verify(signed, key=author[1]),
        lambda: bundle(certified_report(), key=author[0]),
    ):
        with pytest.raises(KeyFileError, match=r"pip install 'torchyard\[evidence\]'"):
            demand()


def test_a_line_that_was_signed_before_is_still_a_signature() -> None:
    # By the kit before torchyard.evidence; the key is bytes 0 to 31.
    public = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    signature = (
        "9a9d593dd3aa0f0cd18e5d6a05e005659d3a2287cc0b1de94e4c8aec9d9a91c5"
        "110a4047051ccd8f6ae9456cb7d7cb51348b1ac777c1b5b49dcaf8547b44dc00"
    )
    assert signer(f"ed25519 {public} {signature}\n", b"content") == public
