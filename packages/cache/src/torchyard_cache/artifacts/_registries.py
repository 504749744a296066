"""Bundles in an OCI registry, beside the images that load them: ``oci://registry/name:tag``."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any, Final

from torchyard_cache._errors import BundleError, CacheError

__all__ = ["SCHEME", "pull_bundle", "push_bundle"]

SCHEME: Final = "oci://"
# Of the layer that is the bundle: what else an artifact of OCI has is not read.
_MEDIA_TYPE: Final = "application/vnd.torchyard.artifacts.v1"
_NAME: Final = "artifacts.bundle"
# As other clients of registries have it, the machine itself is asked without TLS.
_PLAIN: Final = ("localhost", "127.0.0.1", "[::1]")
_SECONDS: Final = 10.0
_CHUNK: Final = 1 << 20
_FOUND: Final = 200


def push_bundle(where: str, data: bytes) -> None:
    """Upload a bundle, and let the tag name it: a reader finds the old one or the new one.

    Credentials are those of ``docker login`` or ``oras login``.

    Raises:
        CacheError: oras is needed and absent, or the name is none of a registry.
        Exception: of requests or oras: it cannot be uploaded.
    """
    client, container = _client(where)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, _NAME)
        file.write_bytes(data)
        # From where it is: a path with a colon in it would be read as a path and a media type.
        client.push(
            container.uri,
            files=[f"{file}:{_MEDIA_TYPE}"],
            disable_path_validation=True,
            quiet=True,
        )


def pull_bundle(where: str, most: int) -> bytes:
    """Download a bundle of at most so many bytes, whose digest is that of the tag's manifest.

    Raises:
        BundleError: what the tag names is no bundle, or it is larger, or its digest is another.
        CacheError: oras is needed and absent, or the name is none of a registry.
        Exception: of requests or oras: it cannot be downloaded.
    """
    client, container = _client(where)
    layers = client.get_manifest(container).get("layers", [])
    found = [layer for layer in layers if layer.get("mediaType") == _MEDIA_TYPE]
    if len(found) != 1:
        raise BundleError(
            f"expected one layer of type {_MEDIA_TYPE}, got {len(found)} of {len(layers)}: the tag "
            "names something else; save the bundle under another"
        )
    digest, size = str(found[0].get("digest")), int(found[0].get("size") or 0)
    if size > most:
        raise BundleError(f"expected at most {most} bytes, got {size}")
    data = bytearray()
    with client.get_blob(container, digest, stream=True) as response:
        if response.status_code != _FOUND:
            raise BundleError(f"{digest}: the registry answers {response.status_code}")
        for chunk in response.iter_content(_CHUNK):
            data += chunk
            if len(data) > size:
                break
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise BundleError(f"expected the digest {digest}, got another: save the bundle again")
    return bytes(data)


def _client(where: str) -> tuple[Any, Any]:
    """Return oras's client, and the name of an artifact; the registry has answered."""
    try:
        from oras.client import OrasClient
        from oras.container import Container
    except ImportError as error:
        raise CacheError(
            f"{where}: a registry needs oras: pip install 'torchyard-cache[registries]'"
        ) from error
    try:
        container = Container(where.removeprefix(SCHEME))
    except ValueError as error:
        raise CacheError(f"{where}: expected oci://registry/name:tag") from error
    registry = str(container.registry)
    plain = registry.rpartition(":")[0] in _PLAIN or registry in _PLAIN
    client: Any = OrasClient(hostname=registry, insecure=plain)
    # oras tries for two minutes what cannot be reached.
    client.session.get(f"{client.prefix}://{registry}/v2/", timeout=_SECONDS)
    return client, container
