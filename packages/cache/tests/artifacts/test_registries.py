"""An OCI registry holds bundles under names and tags."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from oras.client import OrasClient

from packages.cache.tests.artifacts.registry import debian_registry, small_registry
from torchyard_cache import BundleError, artifacts
from torchyard_cache.artifacts._keys import own_key
from torchyard_cache.artifacts._stores import read_bundle


@pytest.fixture(params=[small_registry, debian_registry])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with request.param(tmp_path) as address:
        yield address


def test_a_tag_names_the_bundle_that_was_saved_last(registry: str, tmp_path: Path) -> None:
    folder = tmp_path / "extra"
    folder.mkdir()
    artifacts.register("extra", folder)
    where = f"oci://{registry}/team/model:cpu"
    for content in (b"old", b"new"):
        (folder / "one.bin").write_bytes(content)
        artifacts.save(where, name="warm", kinds=["extra"])
    artifacts.save(f"oci://{registry}/team/model", name="latest", kinds=["tuned"])

    (folder / "one.bin").unlink()
    assert artifacts.load(where).loaded == 1
    assert (folder / "one.bin").read_bytes() == b"new"
    assert artifacts.inspect(where).signer == own_key().public.hex
    assert artifacts.inspect(f"oci://{registry}/team/model:latest").manifest.name == "latest"


def test_what_is_no_bundle_is_refused(registry: str, tmp_path: Path) -> None:
    where = f"oci://{registry}/team/model:cpu"
    with pytest.raises(BundleError, match=f"load: path: {where} cannot be read"):
        artifacts.load(where)
    (tmp_path / "text").write_text("an image's layer")
    client = OrasClient(hostname=registry, insecure=True)
    client.push(
        f"{registry}/team/model:cpu",
        files=[str(tmp_path / "text")],
        disable_path_validation=True,
        quiet=True,
    )
    with pytest.raises(BundleError, match=r"expected one layer of type .*, got 0 of 1"):
        artifacts.load(where)


def test_a_bundle_that_is_larger_than_allowed_is_not_downloaded(registry: str) -> None:
    where = f"oci://{registry}/team/model:cpu"
    artifacts.save(where, kinds=["tuned"])
    with pytest.raises(BundleError, match="expected at most 10 bytes"):
        read_bundle("load", where, 10)


def test_a_registry_that_is_not_there_is_an_error_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        where = f"oci://127.0.0.1:{taken.getsockname()[1]}/model:cpu"
        begun = time.monotonic()
        with pytest.raises(BundleError, match=f"save: path: {where} cannot be written"):
            artifacts.save(where, kinds=["tuned"])
        assert time.monotonic() - begun < 20


def test_a_blob_that_was_changed_is_refused(tmp_path: Path) -> None:
    blobs: dict[str, bytes] = {}
    with small_registry(tmp_path, blobs) as registry:
        where = f"oci://{registry}/model:cpu"
        artifacts.save(where, kinds=["tuned"])
        data = read_bundle("load", where)
        (path,) = (path for path, blob in blobs.items() if blob == data)
        for other in (data[:-1], data + b"x", data[:-1] + bytes([data[-1] ^ 1])):
            blobs[path] = other
            with pytest.raises(BundleError, match=r"expected the digest sha256:.*, got another"):
                artifacts.load(where)
