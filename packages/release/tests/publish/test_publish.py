"""Publishing: whatever an index answers, each file is there once, with the signed bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packages.release.tests.index.faulty_index import STALL_SECONDS, FaultyIndex
from packages.release.tests.wheels import write_wheel
from torchyard_release._errors import ReleaseError
from torchyard_release._index._upload import Index
from torchyard_release._publish._publish import Parcel, Publication, Step

# base <- middle <- top, and lone, which nothing requires.
_REQUIRES = {"base": (), "lone": (), "middle": ("base",), "top": ("middle",)}
_BASE = "base-1.0.0-py3-none-any.whl"


class Lines:
    """A journal in memory."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def append(self, kind: str, /, **data: Any) -> object:
        self.kinds.append(kind)
        return None


@dataclass
class Site:
    """An index and what is to be published to it."""

    index: FaultyIndex
    folder: Path
    parcels: tuple[Parcel, ...]

    def publish(self) -> Publication:
        # Seconds that an index that answers never takes, however busy the machine is.
        patience = STALL_SECONDS / 3 if self.index.stall else 60.0
        remote = Index(self.index.legacy, self.index.simple, timeout=(60.0, patience))
        return Publication(self.folder, self.parcels, remote, Lines(), delays=(0.0, 0.0, 0.05))

    def steps(self) -> dict[str, Step]:
        return {fate.package: fate.step for fate in self.publish().run()}

    def uploads(self) -> list[str]:
        return [name.partition("-")[0] for name in self.index.uploads]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    dist = tmp_path / "dist"
    parcels = tuple(
        Parcel(name, requires, dict([write_wheel(dist, name, "1.0.0", requires=requires)]))
        for name, requires in _REQUIRES.items()
    )
    with FaultyIndex(tmp_path / "index") as index:
        yield Site(index, dist, parcels)


def test_everything_is_published_once_each_after_what_it_requires(site: Site) -> None:
    assert set(site.steps().values()) == {Step.UPLOADED}
    assert site.uploads() == ["base", "lone", "middle", "top"]


def test_a_second_run_uploads_nothing(site: Site) -> None:
    site.steps()
    assert set(site.steps().values()) == {Step.DONE}
    assert len(site.index.asked) == 4


def test_a_dry_run_says_what_would_be_and_writes_nothing(site: Site) -> None:
    publication = site.publish()
    assert {fate.step for fate in publication.plan()} == {Step.PLANNED}
    assert not site.index.asked
    assert isinstance(publication.record, Lines)
    assert not publication.record.kinds


def _answers_500(index: FaultyIndex) -> None:
    index.refuse[_BASE] = [500, 502]


def _hangs_up_after_taking_it(index: FaultyIndex) -> None:
    index.hang_up.add(_BASE)


def _times_out_after_taking_it(index: FaultyIndex) -> None:
    index.stall.add(_BASE)


def _lists_it_late(index: FaultyIndex) -> None:
    index.late[_BASE] = 2


def _takes_it_silently_and_refuses_the_duplicate(index: FaultyIndex) -> None:
    index.hang_up.add(_BASE)
    index.late[_BASE] = 1


@pytest.mark.sweep
@pytest.mark.parametrize(
    "fault",
    [
        _answers_500,
        _hangs_up_after_taking_it,
        _times_out_after_taking_it,
        _lists_it_late,
        _takes_it_silently_and_refuses_the_duplicate,
    ],
)
def test_it_gets_through_where_the_index(site: Site, fault: Callable[[FaultyIndex], None]) -> None:
    fault(site.index)
    assert set(site.steps().values()) == {Step.UPLOADED}
    assert sorted(site.uploads()) == ["base", "lone", "middle", "top"]
    stored = {path.name: path.read_bytes() for path in (site.index.folder / "files").glob("*.whl")}
    assert stored == {path.name: path.read_bytes() for path in site.folder.iterdir()}


def test_a_failed_package_blocks_its_dependents_alone_and_a_second_run_finishes(site: Site) -> None:
    site.index.refuse[_BASE] = [403]
    assert site.steps() == {
        "base": Step.FAILED,
        "lone": Step.UPLOADED,
        "middle": Step.BLOCKED,
        "top": Step.BLOCKED,
    }
    assert site.steps() == {
        "base": Step.UPLOADED,
        "lone": Step.DONE,
        "middle": Step.UPLOADED,
        "top": Step.UPLOADED,
    }
    assert sorted(site.uploads()) == ["base", "lone", "middle", "top"]


def test_an_index_that_keeps_failing_is_given_up_on(site: Site) -> None:
    site.index.refuse[_BASE] = [500] * 9
    assert site.steps()["base"] is Step.FAILED
    assert site.index.asked.count(_BASE) == 3


def test_other_bytes_under_the_name_stop_everything_before_the_first_upload(site: Site) -> None:
    write_wheel(site.index.folder / "files", "top", "1.0.0", text="VALUE = 2\n")
    from torchyard_release._index._folder import write_index

    write_index(site.index.folder)
    with pytest.raises(ReleaseError, match="other bytes under the same name") as caught:
        site.steps()
    assert "cut the next patch release" in caught.value.remedy
    assert not site.index.asked


def test_an_index_that_serves_other_bytes_than_it_lists_is_caught(site: Site) -> None:
    site.index.tampered.add(_BASE)
    with pytest.raises(ReleaseError, match="not what was signed"):
        site.steps()
    assert site.uploads() == ["base"]


@pytest.mark.parametrize("change", [lambda p: p.write_bytes(b"x"), lambda p: p.unlink()])
def test_a_file_here_that_is_not_what_was_signed_stops_everything(
    site: Site, change: Callable[[Path], object]
) -> None:
    change(site.folder / "top-1.0.0-py3-none-any.whl")
    with pytest.raises(ReleaseError, match="which the manifest says") as caught:
        site.steps()
    assert "restore" in caught.value.remedy
    assert not site.index.asked


def test_an_index_that_is_down_stops_with_what_to_do(site: Site) -> None:
    site.index.down = 9
    with pytest.raises(ReleaseError, match="cannot be read from the index") as caught:
        site.steps()
    assert "run the same command again" in caught.value.remedy
    site.index.down = 0
    assert set(site.steps().values()) == {Step.UPLOADED}


@pytest.mark.parametrize(
    "spoil", [lambda p: p[::-1], lambda p: (), lambda p: (Parcel("x", (), {}),)]
)
def test_an_order_that_cannot_be_is_refused(
    site: Site, spoil: Callable[[tuple[Parcel, ...]], tuple[Parcel, ...]]
) -> None:
    site.parcels = spoil(site.parcels)
    with pytest.raises(ReleaseError, match="expected"):
        site.steps()
    assert not site.index.asked
