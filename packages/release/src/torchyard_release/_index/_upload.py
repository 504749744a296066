"""Uploads one file, and reads back the index's listing."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import requests
from packaging.utils import canonicalize_name
from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedContentTypeError
from requests.adapters import HTTPAdapter
from twine.exceptions import TwineException
from twine.package import PackageFile
from twine.settings import Settings

from torchyard_release._errors import ReleaseError

# Seconds to connect, and between two pieces of an answer. An index that takes longer may have
# taken the file all the same, which reading back shows.
_TIMEOUT: Final = (30.0, 300.0)


class Reply(StrEnum):
    """What an index said to an upload. None of them proves what it holds now."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Told:
    """An index's reply, and its words."""

    reply: Reply
    text: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as an index lists it.

    Attributes:
        name: its file name.
        sha256: what the index says; empty where it says none.
        url: where it is fetched from.
        yanked: whether it is yanked.
    """

    name: str
    sha256: str
    url: str
    yanked: bool


class _Patient(HTTPAdapter):
    """Requests that end: the upload library itself waits for ever."""

    def __init__(self, timeout: tuple[float, float]) -> None:
        self._timeout = timeout
        super().__init__()

    def send(self, request: requests.PreparedRequest, *args: Any, **more: Any) -> Any:
        more["timeout"] = more.get("timeout") or self._timeout
        return super().send(request, *args, **more)


class Index:
    """An index to publish to and to read back from.

    Args:
        repository: an address to upload to, or the name of a section of ``.pypirc``.
        simple: the address of its simple pages.
        timeout: seconds to connect and to wait for a piece of an answer.
    """

    def __init__(
        self, repository: str, simple: str, *, timeout: tuple[float, float] = _TIMEOUT
    ) -> None:
        self.repository, self.simple = repository, simple
        self._timeout = timeout
        self._pages: dict[str, dict[str, Listed]] = {}
        self._session = requests.Session()
        self._client = PyPISimple(simple, session=self._session)

    def upload(self, path: Path) -> Told:
        """Upload a file once; credentials come from ``.pypirc``, keyring or TWINE_ variables."""
        # It warns of each answer 5xx, which the state below says once.
        logging.getLogger("twine").setLevel(logging.ERROR)
        try:
            session = self._settings().create_repository()
            for scheme in ("http://", "https://"):
                session.session.mount(scheme, _Patient(self._timeout))
            # Once: left alone it sends again after 5xx without asking what the index then has.
            with contextlib.redirect_stdout(io.StringIO()):
                answer = session.upload(PackageFile.from_filename(str(path), None), 1)
        except requests.RequestException as error:
            return Told(Reply.UNCLEAR, f"{type(error).__name__}: {error}")
        except TwineException as error:
            raise ReleaseError(
                f"{path.name}: cannot be uploaded to {self.repository}: {error}",
                remedy="correct [indexes] of train.toml or ~/.pypirc, then publish again",
            ) from error
        text = f"{answer.status_code} {answer.reason}: {answer.text.strip()[:300]}".rstrip(": ")
        if answer.ok:
            return Told(Reply.ACCEPTED, text)
        unclear = answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
        return Told(Reply.UNCLEAR if unclear else Reply.REFUSED, text)

    def listed(self, project: str, *, again: bool = False) -> Mapping[str, Listed]:
        """Return what the index lists of a project, by file name; nothing where it knows none.

        Args:
            again: ask the index now, whatever it said before.
        """
        project = canonicalize_name(project)
        if again or project not in self._pages:
            self._pages[project] = self._read(project)
        return self._pages[project]

    def fetch(self, listed: Listed) -> bytes:
        """Return a file's content as the index serves it."""
        try:
            answer = self._session.get(listed.url, timeout=self._timeout)
            answer.raise_for_status()
        except requests.RequestException as error:
            raise _unread(listed.url, error) from error
        return answer.content

    def metadata(self, listed: Listed) -> bytes:
        """Return the core metadata of a wheel, which a PEP 658 index serves beside it."""
        return self.fetch(replace(listed, url=f"{listed.url.partition('#')[0]}.metadata"))

    def _read(self, project: str) -> dict[str, Listed]:
        try:
            page = self._client.get_project_page(project, timeout=self._timeout)
        except NoSuchProjectError:
            return {}
        except (requests.RequestException, UnsupportedContentTypeError) as error:
            raise _unread(f"{self.simple}{project}/", error) from error
        return {
            package.filename: Listed(
                package.filename,
                package.digests.get("sha256", ""),
                package.url,
                bool(package.is_yanked),
            )
            for package in page.packages
        }

    def _settings(self) -> Settings:
        # Through its parser, which is what reads the TWINE_ variables.
        parser = argparse.ArgumentParser()
        Settings.register_argparse_arguments(parser)
        words = ["--non-interactive", "--disable-progress-bar"]
        words += ["--repository-url" if "://" in self.repository else "--repository"]
        words += [self.repository]
        # A loopback asks for no name, and nobody is there to be asked for one.
        if self.repository.startswith("http://127.0.0.1:"):
            words += ["--username", "rehearsal", "--password", "none"]
        return Settings.from_argparse(parser.parse_args(words))


def _unread(what: str, error: Exception) -> ReleaseError:
    return ReleaseError(
        f"{what}: cannot be read from the index: {type(error).__name__}: {error}",
        remedy="see whether the index is up, then run the same command again",
    )
