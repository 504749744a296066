"""A package index on the loopback: pip installs from it, upload tools upload to it.

It is for rehearsals, for verification and for tests. It asks nobody who they are, so it listens on
127.0.0.1 alone.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote

from requests_toolbelt.multipart.decoder import (
    ImproperBodyPartContentException,
    MultipartDecoder,
    NonMultipartContentTypeException,
)

from torchyard_release._atomic import write_atomically
from torchyard_release._errors import ReleaseError
from torchyard_release._index._folder import project_and_version, write_index

_JSON: Final = "application/vnd.pypi.simple.v1+json"
_HTML: Final = "text/html; charset=utf-8"
_NO_FORM: Final = (ImproperBodyPartContentException, NonMultipartContentTypeException)
_LIMIT: Final = 2 << 30


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server says: a status, a content and its type. An empty one hangs up instead."""

    status: int
    content: bytes = b""
    kind: str = "text/plain; charset=utf-8"


HANG_UP: Final = Answer(0)


class IndexServer:
    """Serve an index folder while the context lasts.

    Attributes:
        folder: the index's folder, which may be empty at first.
        uploads: the file name of every upload that was accepted, in order.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder = folder
        self.uploads: list[str] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._thread = threading.Thread(
            # How long closing waits, in seconds.
            target=self._server.serve_forever,
            args=(0.02,),
            daemon=True,
        )

    @property
    def simple(self) -> str:
        """The address that pip reads."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/simple/"

    @property
    def legacy(self) -> str:
        """The address that files are uploaded to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/legacy/"

    def __enter__(self) -> Self:
        write_index(self.folder)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self) -> None:
        """Serve until the process is interrupted."""
        self._thread.join()

    def take(self, name: str, content: bytes, said: str) -> Answer:
        """Take an uploaded file, once: the same again is refused, as most indexes do."""
        try:
            project_and_version(name)
        except ReleaseError as error:
            return Answer(HTTPStatus.BAD_REQUEST, str(error).encode())
        path = self.folder / "files" / name
        with self._lock:
            if path.exists():
                return Answer(HTTPStatus.CONFLICT, f"{name}: file already exists".encode())
            if hashlib.sha256(content).hexdigest() != said:
                return Answer(HTTPStatus.BAD_REQUEST, f"{name}: its digest differs".encode())
            write_atomically(path, content)
            write_index(self.folder)
            self.uploads.append(name)
        return Answer(HTTPStatus.OK)

    def give(self, path: str, accepted: str) -> Answer:
        """Return a page or a file, by the path of its address."""
        parts = unquote(path).strip("/").split("/")
        if ".." in parts:
            return Answer(HTTPStatus.NOT_FOUND)
        target = self.folder.joinpath(*parts)
        if parts[0] == "simple":
            as_json = _JSON in accepted
            target /= "index.json" if as_json else "index.html"
            kind = _JSON if as_json else _HTML
        else:
            kind = "application/octet-stream"
        # simple/ and files/ are what there is; whatever else lies in the folder is nobody's.
        if parts[0] not in {"files", "simple"} or not target.is_file():
            return Answer(HTTPStatus.NOT_FOUND, b"no such file here")
        return Answer(HTTPStatus.OK, target.read_bytes(), kind)


def _handler(index: IndexServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(index.give(self.path.partition("?")[0], self.headers.get("Accept", "")))

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            if length > _LIMIT:
                self._answer(Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
                return
            body = self.rfile.read(length)
            try:
                form = _form(body, self.headers.get("Content-Type", ""))
                said, (name, content) = form["sha256_digest"][1].decode(), form["content"]
            except (KeyError, ValueError, *_NO_FORM) as error:
                self._answer(Answer(HTTPStatus.BAD_REQUEST, f"no upload: {error}".encode()))
                return
            self._answer(index.take(name, content, said))

        def _answer(self, answer: Answer) -> None:
            if answer is HANG_UP:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: whoever runs the server prints what matters."""

    return Handler


def _form(body: bytes, kind: str) -> dict[str, tuple[str, bytes]]:
    """Return name -> (file name, content) of a form's fields."""
    fields = {}
    for part in MultipartDecoder(body, kind).parts:
        words = part.headers[b"Content-Disposition"].decode().split("; ")
        said = dict(word.split("=", 1) for word in words if "=" in word)
        fields[said["name"].strip('"')] = (said.get("filename", "").strip('"'), part.content)
    return fields
