"""Registries for the tests: Debian's, and the requests of the distribution specification alone."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

__all__ = ["debian_registry", "small_registry"]


@contextmanager
def debian_registry(folder: Path) -> Iterator[str]:
    """Start the registry of the distribution project, and give its address."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("UNVERIFIED: no registry; install docker-registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config = folder / "registry.yml"
    config.write_text(
        "version: 0.1\n"
        f"storage:\n  filesystem:\n    rootdirectory: {folder / 'registry'}\n"
        f"http:\n  addr: {address}\n"
    )
    process = subprocess.Popen(
        [program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        host, _, port = address.partition(":")
        for _ in range(200):
            try:
                socket.create_connection((host, int(port)), 0.1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield address
    finally:
        process.kill()
        process.wait()


@contextmanager
def small_registry(folder: Path, blobs: dict[str, bytes] | None = None) -> Iterator[str]:
    """Answer uploads and downloads of blobs and manifests as the specification says.

    Args:
        folder: not used: blobs are in memory.
        blobs: where they are kept, by path.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Requests)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.blobs = {} if blobs is None else blobs  # type: ignore[attr-defined]
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Requests(BaseHTTPRequestHandler):
    server: Any

    def log_message(self, format: str, *values: Any) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/v2/":
            return self._answer(200)
        found = self.server.blobs.get(self.path)
        return self._answer(404) if found is None else self._answer(200, found)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(202, Location=f"{self.path}{uuid.uuid4()}?state=new")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urllib.parse.urlsplit(self.path)
        if "/manifests/" in address.path:
            self.server.blobs[address.path] = body
            return self._answer(201)
        digest = urllib.parse.parse_qs(address.query)["digest"][0]
        if digest != f"sha256:{hashlib.sha256(body).hexdigest()}":
            return self._answer(400)
        blobs = address.path.partition("/uploads/")[0]
        self.server.blobs[f"{blobs}/{digest}"] = body
        return self._answer(201, Location=f"{blobs}/{digest}")
