"""A local index is one that pip and upload tools take for an index."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from packages.release.tests.wheels import write_wheel
from torchyard_release._errors import ReleaseError
from torchyard_release._gates._clean_room import CleanRoom
from torchyard_release._index._folder import project_and_version, read_yanked, write_index, yank
from torchyard_release._index._server import IndexServer
from torchyard_release._index._upload import Index, Reply


@pytest.fixture
def index(tmp_path: Path) -> Iterator[IndexServer]:
    with IndexServer(tmp_path / "index") as server:
        yield server


def _upload(index: IndexServer, path: Path) -> Reply:
    return Index(index.legacy, index.simple).upload(path).reply


def test_what_is_uploaded_is_listed_with_its_digest_and_served(
    index: IndexServer, tmp_path: Path
) -> None:
    name, digest = write_wheel(tmp_path, "base-thing", "1.0.0")
    assert _upload(index, tmp_path / name) is Reply.ACCEPTED
    remote = Index(index.legacy, index.simple)
    listed = remote.listed("Base.Thing")[name]
    assert (listed.sha256, listed.yanked) == (digest, False)
    assert remote.fetch(listed) == (tmp_path / name).read_bytes()
    assert b"Name: base-thing" in remote.metadata(listed)
    assert remote.listed("other") == {}


def test_both_forms_of_a_page_say_the_same(index: IndexServer, tmp_path: Path) -> None:
    name, digest = write_wheel(index.folder / "files", "base", "1.0.0", requires_python=">=3.11")
    yank(index.folder, {name: "it eats data"})
    page = requests.get(f"{index.simple}base/", headers={"Accept": "text/html"}, timeout=60).text
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    data = requests.get(f"{index.simple}base/", headers=accept, timeout=60).json()
    (file,) = data["files"]
    assert f"{name}#sha256={digest}" in page
    assert (file["hashes"], file["yanked"]) == ({"sha256": digest}, "it eats data")
    assert 'data-yanked="it eats data"' in page
    assert 'data-requires-python="&gt;=3.11"' in page
    assert file["requires-python"] == ">=3.11"
    assert data["versions"] == ["1.0.0"]
    assert read_yanked(index.folder) == {name: "it eats data"}


def test_the_same_name_again_is_refused_and_the_first_stays(
    index: IndexServer, tmp_path: Path
) -> None:
    name, _ = write_wheel(tmp_path, "base", "1.0.0")
    first = (tmp_path / name).read_bytes()
    assert _upload(index, tmp_path / name) is Reply.ACCEPTED
    write_wheel(tmp_path, "base", "1.0.0", text="VALUE = 2\n")
    assert _upload(index, tmp_path / name) is Reply.REFUSED
    assert (index.folder / "files" / name).read_bytes() == first


@pytest.mark.parametrize("path", ["../secret", "files/../../secret", "yanked.json", "simple/none/"])
def test_nothing_but_pages_and_files_is_served(index: IndexServer, path: str) -> None:
    (index.folder.parent / "secret").write_text("x")
    (index.folder / "yanked.json").write_text("{}")
    root = index.simple.removesuffix("simple/")
    request = requests.Request("GET", root).prepare()
    # As it is: a client would shorten the path.
    request.url = f"{root}{path}"
    with requests.Session() as session:
        assert session.send(request, timeout=60).status_code == 404


def test_an_upload_that_is_none_is_refused(index: IndexServer) -> None:
    answer = requests.post(index.legacy, data={"x": "y"}, timeout=60)
    assert answer.status_code == 400


@pytest.mark.parametrize("name", ["nothing", "a-b.whl", "a.tar.gz", "a-1.0-py3-none-any.whl.txt"])
def test_a_file_that_is_no_distribution_is_refused(name: str) -> None:
    with pytest.raises(ReleaseError, match="expected the name of a wheel or of an sdist"):
        project_and_version(name)


def test_a_project_whose_files_are_gone_has_no_page(tmp_path: Path) -> None:
    name, _ = write_wheel(tmp_path / "files", "base", "1.0.0")
    assert write_index(tmp_path) == ("base",)
    (tmp_path / "files" / name).unlink()
    assert write_index(tmp_path) == ()
    assert not list((tmp_path / "simple").glob("base/index.*"))


def test_pip_installs_from_it_what_is_asked_for_and_says_which_bytes(
    index: IndexServer, tmp_path: Path
) -> None:
    store = index.folder / "files"
    write_wheel(store, "zz-base", "1.0.0")
    _, digest = write_wheel(store, "zz-base", "1.1.0")
    write_wheel(store, "zz-top", "1.0.0", requires=["zz-base>=1.0"])
    yanked, _ = write_wheel(store, "zz-base", "1.2.0")
    yank(index.folder, {yanked: "bad"})
    room = CleanRoom(tmp_path / "room").make()
    installed = {item.name: item for item in room.install("zz-top", overlay=index.simple)}
    assert (installed["zz-base"].version, installed["zz-base"].sha256) == ("1.1.0", digest)
    assert room.smoke(["zz-base", "zz-top"]) == {}
    assert room.check() == ()


def test_a_folder_is_served_by_the_command_until_it_is_interrupted(tmp_path: Path) -> None:
    write_wheel(tmp_path / "files", "base", "1.0.0")
    program = "from torchyard_release._cli import command; command()"
    words = [sys.executable, "-c", program, "index", "serve", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        simple = process.stdout.readline().removeprefix("simple ").strip()
        assert Index("x", simple).listed("base")
        process.terminate()
