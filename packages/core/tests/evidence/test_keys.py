"""Keys are Ed25519 keys in PEM files; anything else is refused by what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchyard.evidence import KeyFileError, MissingLibraryError, SignatureError
from torchyard.evidence import keys as module
from torchyard.evidence.keys import (
    PrivateKey,
    PublicKey,
    generate_private_key,
    parse_public_key,
    read_private_key,
    read_public_key,
    write_key_pair,
)

_KEY = generate_private_key()
_OTHER = generate_private_key()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a private key; its public one is next to it."""
    path = tmp_path_factory.mktemp("pair") / "key.pem"
    write_key_pair(path)
    return path


def test_a_pair_that_was_written_signs_and_verifies(pair: Path) -> None:
    private, public = read_private_key(pair), read_public_key(pair.with_suffix(".pub"))
    assert private.public == public == parse_public_key(public.hex)
    public.verify(private.sign(b"content"), b"content")
    assert pair.stat().st_mode & 0o777 == 0o600


def test_a_pair_is_never_overwritten(tmp_path: Path) -> None:
    write_key_pair(tmp_path / "key.pem")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for gone in sorted(before):
        (other,) = before.keys() - {gone}
        gone.unlink()
        with pytest.raises(KeyFileError, match=f"{other.name}: expected no such file, a key is"):
            write_key_pair(tmp_path / "key.pem")
        assert not gone.exists()
        assert other.read_bytes() == before[other]
        gone.write_bytes(before[gone])


@given(content=st.binary(max_size=100), data=st.data())
def test_a_signature_holds_for_its_key_and_content_alone(
    content: bytes, data: st.DataObject
) -> None:
    signature = _KEY.sign(content)
    _KEY.public.verify(signature, content)
    assert signature == _KEY.sign(content)
    changed = bytearray(signature)
    changed[data.draw(st.integers(0, 63))] ^= data.draw(st.integers(1, 255))
    short = signature[: data.draw(st.integers(0, 63))]
    for key, said, about in (
        (_OTHER.public, signature, content),
        (_KEY.public, signature, content + b"x"),
        (_KEY.public, bytes(changed), content),
        (_KEY.public, short, content),
        (_KEY.public, signature + b"\0", content),
    ):
        with pytest.raises(SignatureError, match=f"expected one by the key {key.hex}"):
            key.verify(said, about)


def _private_pem(key: object, password: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))  # type: ignore[attr-defined]


def _public_pem(key: object) -> bytes:
    public = key.public_key()  # type: ignore[attr-defined]
    return bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


_ED25519 = _KEY.loaded
_WRONG_KINDS = {
    "RSA": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "EC": ec.generate_private_key(ec.SECP256R1()),
    "Ed448": ed448.Ed448PrivateKey.generate(),
    "X25519": x25519.X25519PrivateKey.generate(),
}


@pytest.mark.parametrize("name", _WRONG_KINDS)
def test_a_key_of_another_kind_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "other.pem"
    path.write_bytes(_private_pem(_WRONG_KINDS[name]))
    with pytest.raises(KeyFileError, match=rf"other\.pem: expected an Ed25519 key, got _?{name}"):
        read_private_key(path)
    path.write_bytes(_public_pem(_WRONG_KINDS[name]))
    with pytest.raises(KeyFileError, match=rf"other\.pem: expected an Ed25519 key, got _?{name}"):
        read_public_key(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (_private_pem(_ED25519, b"open sesame"), "got an encrypted one; `openssl pkey -in"),
        (_public_pem(_ED25519), "expected a private key as PEM, without a password, got: a public"),
        (_private_pem(_ED25519)[:60], "expected a private key as PEM"),
        (_private_pem(_ED25519).replace(b"M", b"N", 1), "expected a private key as PEM"),
        (b"", "expected a private key as PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----", "expected a private key"),
        (b"x" * 70_000, "expected at most 65536 bytes"),
    ],
    ids=["encrypted", "public", "cut", "damaged", "empty", "short", "large"],
)
def test_what_is_no_private_key_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    with pytest.raises(KeyFileError, match=r"key\.pem: ") as caught:
        read_private_key(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (_private_pem(_ED25519), "expected a public key as PEM, got: a private key"),
        (_public_pem(_ED25519)[:50], "expected a public key as PEM"),
        (b"\xff\x00", "expected a public key as PEM"),
    ],
    ids=["private", "cut", "noise"],
)
def test_what_is_no_public_key_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "key.pub"
    path.write_bytes(content)
    with pytest.raises(KeyFileError, match=r"key\.pub: ") as caught:
        read_public_key(path)
    assert said in str(caught.value)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, said in (("pipe", "a regular file"), ("folder", ""), ("absent", "No such file")):
        for read in (read_private_key, read_public_key):
            with pytest.raises(KeyFileError, match=f"{name}: expected a .* key as PEM.*{said}"):
                read(tmp_path / name)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_key_is_refused_or_another_key(tmp_path: Path, data: st.DataObject) -> None:
    for pem, read in (
        (_private_pem(_ED25519), read_private_key),
        (_public_pem(_ED25519), read_public_key),
    ):
        changed = bytearray(pem)
        changed[data.draw(st.integers(0, len(pem) - 1))] = data.draw(st.integers(0, 255))
        (tmp_path / "key").write_bytes(changed)
        said = "key: expected"
        try:
            assert isinstance(read(tmp_path / "key"), PrivateKey | PublicKey)
        except KeyFileError as refused:
            said = str(refused)
        assert "key: expected" in said


@given(text=st.text(max_size=70) | st.binary(min_size=31, max_size=33).map(bytes.hex))
def test_a_key_in_hexadecimal_has_one_spelling(text: str) -> None:
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        assert parse_public_key(text).hex == text
        return
    with pytest.raises(KeyFileError, match="expected 64 hexadecimal digits"):
        parse_public_key(text)


def test_capitals_and_blanks_are_another_spelling() -> None:
    text = "ab" * 32
    assert parse_public_key(text)
    for other in (text.upper(), f" {text}", f"{text}\n", " ".join([text[:32], text[32:]])):
        with pytest.raises(KeyFileError):
            parse_public_key(other)


def test_a_private_key_is_not_shown() -> None:
    assert repr(_KEY) == "PrivateKey()"


def test_without_the_library_the_extra_is_named(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    for use in (
        lambda: read_private_key(pair),
        lambda: read_public_key(pair.with_suffix(".pub")),
        lambda: parse_public_key(_KEY.public.hex),
        lambda: generate_private_key(),
    ):
        with pytest.raises(MissingLibraryError, match=r"pip install 'torchyard\[evidence\]'"):
            use()


def test_importing_evidence_imports_no_library() -> None:
    program = (
        "import sys\n"
        "import torchyard.evidence.archives, torchyard.evidence.documents\n"
        "import torchyard.evidence.files, torchyard.evidence.keys, torchyard.evidence.pickles\n"
        "print({'attr', 'cattrs', 'cryptography', 'securesystemslib', 'torch'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr


def test_openssls_own_file_is_read(tmp_path: Path) -> None:
    # As `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` wrote them.
    (tmp_path / "key.pem").write_text(
        "-----BEGIN PRIVATE KEY-----\n"
        "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
        "-----END PRIVATE KEY-----\n"
    )
    key = read_private_key(tmp_path / "key.pem")
    assert key.loaded.private_bytes_raw() == bytes(range(32))
    expected = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    assert key.public.raw == expected.public_key().public_bytes_raw()
