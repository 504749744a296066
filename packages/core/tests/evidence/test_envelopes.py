"""An envelope counts the signatures of different known keys over one payload and its type."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.evidence import SignatureError
from torchyard.evidence.envelopes import Envelope
from torchyard.evidence.keys import generate_private_key, parse_public_key

_TYPE = "application/vnd.example+json"
_KEYS = [generate_private_key() for _ in range(4)]
_PUBLIC = [key.public for key in _KEYS]


def _signed(payload: bytes, *who: int, kind: str = _TYPE) -> bytes:
    envelope = Envelope(payload, kind)
    for number in who:
        envelope.sign(_KEYS[number])
    return envelope.to_bytes()


def _spelled(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


@settings(max_examples=40)
@given(
    payload=st.binary(max_size=200),
    who=st.lists(st.integers(0, 3), max_size=6),
    known=st.lists(st.integers(0, 3), max_size=6),
    threshold=st.integers(1, 4),
)
def test_the_threshold_counts_different_known_keys(
    payload: bytes, who: list[int], known: list[int], threshold: int
) -> None:
    envelope = Envelope.parse(_signed(payload, *who), payload_type=_TYPE)
    assert envelope.payload == payload
    assert envelope.count == len(set(who))
    keys = [_PUBLIC[number] for number in known]
    expected = {_PUBLIC[number] for number in set(who) & set(known)}
    if len(expected) >= threshold:
        found = envelope.require(keys, threshold)
        assert (set(found), len(found)) == (expected, len(expected))
    else:
        with pytest.raises(SignatureError, match=rf"{threshold} valid.*found {len(expected)}$"):
            envelope.require(keys, threshold)


@given(payload=st.binary(max_size=60), other=st.binary(max_size=60))
def test_a_changed_payload_is_signed_by_nobody(payload: bytes, other: bytes) -> None:
    data = json.loads(_signed(payload, 0, 1))
    data["payload"] = base64.b64encode(other).decode()
    envelope = Envelope.parse(_spelled(data), payload_type=_TYPE)
    assert envelope.signers(_PUBLIC) == (tuple(_PUBLIC[:2]) if other == payload else ())


def test_a_payload_of_one_type_is_not_taken_for_one_of_another() -> None:
    data = _signed(b"{}", 0, kind="application/other")
    with pytest.raises(SignatureError, match="expected a payload of type "):
        Envelope.parse(data, payload_type=_TYPE)
    # Nor where the file says that it is of the right one.
    renamed = Envelope.parse(data.replace(b"application/other", _TYPE.encode()), payload_type=_TYPE)
    with pytest.raises(SignatureError, match="found 0"):
        renamed.require(_PUBLIC, 1)


def test_a_signature_under_another_keys_name_counts_for_neither() -> None:
    data = json.loads(_signed(b"x", 0, 1))
    first, second = data["signatures"]
    first["keyid"], second["keyid"] = second["keyid"], first["keyid"]
    assert Envelope.parse(_spelled(data), payload_type=_TYPE).signers(_PUBLIC) == ()


def test_a_signature_by_a_wrong_key_does_not_hide_the_others() -> None:
    data = json.loads(_signed(b"x", 0, 1, 2))
    data["signatures"][1]["sig"] = json.loads(_signed(b"y", 1))["signatures"][0]["sig"]
    envelope = Envelope.parse(_spelled(data), payload_type=_TYPE)
    assert envelope.require(_PUBLIC, 2) == (_PUBLIC[0], _PUBLIC[2])


def test_signing_again_changes_nothing() -> None:
    envelope = Envelope.parse(_signed(b"x", 0), payload_type=_TYPE)
    envelope.sign(_KEYS[0])
    assert envelope.to_bytes() == _signed(b"x", 0)


def test_a_threshold_of_none_is_refused() -> None:
    with pytest.raises(SignatureError, match="threshold: expected at least 1, got 0"):
        Envelope(b"x", _TYPE).require(_PUBLIC, 0)


@settings(max_examples=40)
@given(data=st.data())
def test_any_changed_byte_is_refused(data: st.DataObject) -> None:
    changed = bytearray(_signed(b'{"a": 1}', 0))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SignatureError):
        Envelope.parse(bytes(changed), payload_type=_TYPE).require(_PUBLIC[:1], 1)


def _again(change: Any) -> bytes:
    data = json.loads(_signed(b"x", 0))
    change(data)
    return _spelled(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (_signed(b"x", 0) + b"\n", "are not the ones that this tool writes"),
        (_signed(b"x", 0).replace(b"\n", b"\r\n"), "are not the ones"),
        (_again(lambda data: data.update(more=1)), "are not the ones"),
        (_again(lambda data: data["signatures"].append(data["signatures"][0])), "cannot be read"),
        (_again(lambda data: data.pop("payload")), "cannot be read: KeyError"),
        (_again(lambda data: data.update(signatures=[1])), "cannot be read"),
        (_again(lambda data: data.update(payload=3)), "cannot be read"),
        (b"[" * 100_000, "cannot be read: RecursionError"),
        (b"", "cannot be read"),
    ],
    ids="line blanks key twice lacking number payload deep empty".split(),
)
def test_another_spelling_or_form_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(SignatureError, match=said):
        Envelope.parse(data, payload_type=_TYPE)


# Written by the release train before it read envelopes by this package; the key is bytes 0 to 31.
_WRITTEN_BEFORE = b"""{
 "payload": "eyJhIjogMX0=",
 "payloadType": "application/vnd.example+json",
 "signatures": [
  {
   "keyid": "63d00ee3cf4f5c61ad94efa696c68f13b608fe56ecea13fb144a6fd18e9235b9",
   "sig": "5xhDORsqN4QGgbe1+MPehYZ14wA4xA2lSNHu9StH9EU+39uZIr4tZXv3ZXI/cL/6ygAhwJI9PoCVJ7gxlleOBA=="
  }
 ]
}
"""


def test_an_envelope_that_was_signed_before_is_still_signed() -> None:
    key = parse_public_key("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
    envelope = Envelope.parse(_WRITTEN_BEFORE, payload_type=_TYPE)
    assert envelope.require([key], 1) == (key,)
    assert envelope.payload == b'{"a": 1}'
