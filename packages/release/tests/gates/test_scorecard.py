"""The scorecard: green only where evidence about these very bytes says so."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from packages.release.tests.prepared import add_candidate, pass_gates, people, train_toml
from torchyard_release._declaration._train import Gate, Waiver
from torchyard_release._errors import ReleaseError
from torchyard_release._gates._scorecard import Scorecard, Status, judge
from torchyard_release._gates._scorecard_page import scorecard_page
from torchyard_release._records._evidence import Evidence, Outcome, read_evidence, write_evidence

_TODAY = datetime.date(2027, 1, 20)
_FILES = {"a.whl": "1" * 64, "b.whl": "2" * 64}
_GATE = Gate("inspect", True, "ann", ("",), "", ())


def _evidence(**changes: Any) -> Evidence:
    fine = Evidence(
        gate="inspect",
        cell="",
        outcome=Outcome.PASS,
        summary="fine",
        artifacts=_FILES,
        whole=True,
        candidate="rc1",
        commit="c" * 40,
        when="2027-01-19T10:00:00+00:00",
        seconds=2.0,
    )
    return replace(fine, **changes)


def _card(
    tmp_path: Path,
    *evidence: Evidence,
    gates: tuple[Gate, ...] = (_GATE,),
    waivers: tuple[Waiver, ...] = (),
    files: dict[str, str] = _FILES,
    today: datetime.date = _TODAY,
) -> Scorecard:
    for number, item in enumerate(evidence):
        write_evidence(tmp_path / str(number), item)
    found = {
        path: item
        for number in range(len(evidence))
        for path, item in read_evidence(tmp_path / str(number)).items()
    }
    rows, notes = judge(gates, waivers, found, files, today=today)
    return Scorecard("yard", "1.0.0", "rc2", "c" * 40, today, files, rows, notes)


def _waiver(expires: datetime.date = _TODAY, **changes: Any) -> Waiver:
    return replace(Waiver("inspect", "", "ann", "known, see #7", expires), **changes)


def test_evidence_about_these_bytes_counts(tmp_path: Path) -> None:
    card = _card(tmp_path, _evidence())
    assert (card.rows[0].status, card.ready) == (Status.PASS, True)
    assert len(card.rows[0].digest) == 64


def test_what_was_not_tried_is_unverified_and_stops(tmp_path: Path) -> None:
    card = _card(tmp_path)
    assert (card.rows[0].status, card.ready) == (Status.UNVERIFIED, False)
    assert "run `torchyard release inspect`" in card.rows[0].text
    other = _card(tmp_path, gates=(replace(_GATE, name="alone"),))
    assert "run `torchyard release verify --gate alone`" in other.rows[0].text


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.UNVERIFIED])
def test_what_is_red_stops(tmp_path: Path, outcome: Outcome) -> None:
    card = _card(tmp_path, _evidence(outcome=outcome))
    assert (card.rows[0].status, card.ready) == (Status(outcome), False)


@pytest.mark.parametrize(
    "files",
    [{**_FILES, "a.whl": "3" * 64}, {**_FILES, "c.whl": "3" * 64}, {"a.whl": "1" * 64}],
    ids=["changed", "one more", "one less"],
)
def test_evidence_about_other_bytes_is_stale(tmp_path: Path, files: dict[str, str]) -> None:
    card = _card(tmp_path, _evidence(), files=files)
    assert (card.rows[0].status, card.rows[0].stale, card.ready) == (Status.UNVERIFIED, True, False)
    assert "stale" in card.rows[0].text


def test_evidence_about_files_that_a_new_candidate_left_alone_still_counts(tmp_path: Path) -> None:
    part = _evidence(artifacts={"a.whl": "1" * 64}, whole=False)
    card = _card(tmp_path, part, files={**_FILES, "b.whl": "3" * 64})
    assert card.rows[0].status is Status.PASS


def test_evidence_about_nothing_proves_nothing(tmp_path: Path) -> None:
    card = _card(tmp_path, _evidence(artifacts={}))
    assert card.rows[0].stale
    assert not card.ready


def test_the_newest_fresh_evidence_counts(tmp_path: Path) -> None:
    later = _evidence(outcome=Outcome.FAIL, when="2027-01-20T09:00:00+00:00")
    assert _card(tmp_path, _evidence(), later).rows[0].status is Status.FAIL
    other = _evidence(artifacts={"x.whl": "9" * 64}, when="2027-01-20T09:30:00+00:00")
    assert _card(tmp_path, _evidence(), other).rows[0].status is Status.PASS


def test_without_a_blocking_row_nothing_is_ready(tmp_path: Path) -> None:
    informing = replace(_GATE, blocking=False)
    assert not _card(tmp_path, _evidence(), gates=(informing,)).ready
    assert not _card(tmp_path, gates=()).ready


def test_an_informing_row_does_not_stop(tmp_path: Path) -> None:
    more = Gate("speed", False, "bob", ("",), "", ())
    assert _card(tmp_path, _evidence(), gates=(_GATE, more)).ready


def test_a_waiver_lets_it_pass_until_it_expires_and_says_what_it_hides(tmp_path: Path) -> None:
    red = _evidence(outcome=Outcome.FAIL, summary="it broke")
    card = _card(tmp_path, red, waivers=(_waiver(),))
    assert (card.rows[0].status, card.rows[0].before, card.ready) == (Status.WAIVED, "fail", True)
    assert "ann" in card.rows[0].text
    assert "it broke" in card.rows[0].text
    yesterday = _waiver(_TODAY - datetime.timedelta(days=1))
    card = _card(tmp_path, red, waivers=(yesterday,))
    assert (card.rows[0].status, card.ready) == (Status.FAIL, False)
    assert "has expired" in card.rows[0].text


def test_a_clock_that_is_behind_prolongs_no_waiver(tmp_path: Path) -> None:
    red = _evidence(outcome=Outcome.FAIL, when="2027-03-01T10:00:00+00:00")
    assert not _card(tmp_path, red, waivers=(_waiver(),), today=_TODAY).ready


def test_a_waiver_that_waives_nothing_is_named(tmp_path: Path) -> None:
    card = _card(tmp_path, _evidence(), waivers=(_waiver(), _waiver(cell="x", gate="inspect")))
    assert any("not needed any more" in note for note in card.notes)
    assert any("matches no row" in note for note in card.notes)


@given(
    outcomes=st.lists(st.sampled_from([*Outcome, None]), min_size=1, max_size=6),
    waived=st.sets(st.integers(0, 5)),
)
def test_it_is_ready_exactly_where_every_row_passes_or_is_waived(
    tmp_path_factory: pytest.TempPathFactory, outcomes: list[Outcome | None], waived: set[int]
) -> None:
    cells = tuple(str(number) for number in range(len(outcomes)))
    card = _card(
        tmp_path_factory.mktemp("card"),
        *(_evidence(cell=c, outcome=o) for c, o in zip(cells, outcomes, strict=True) if o),
        gates=(replace(_GATE, cells=cells),),
        waivers=tuple(_waiver(cell=str(number)) for number in waived),
    )
    fine = all(o is Outcome.PASS or n in waived for n, o in enumerate(outcomes))
    assert card.ready is fine
    assert sum(card.counts().values()) == len(outcomes)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.pop("artifacts"),
        lambda data: data.update(outcome="green"),
        lambda data: data.update(schema=2),
        lambda data: data.update(extra=1),
    ],
    ids=["missing key", "outcome", "schema", "extra key"],
)
def test_a_file_that_is_no_evidence_is_an_error(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], object]
) -> None:
    path = write_evidence(tmp_path, _evidence())
    data = json.loads(path.read_text())
    spoil(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ReleaseError, match="expected evidence"):
        read_evidence(tmp_path)


class _Page(HTMLParser):
    """What a page asks for from elsewhere, and whether its elements are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.places: set[str] = set()
        self.pointed: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"col", "link", "meta", "br", "img"}:
            self.open.append(tag)
        self.fetched += [
            f"{tag} {value}"
            for name, value in attrs
            if name in {"src", "href"} and value and "://" in value
        ]
        self.places |= {value for name, value in attrs if name == "id" and value}
        self.pointed |= {value for name, value in attrs if name == "href" and value}
        assert tag not in {"script", "link", "img", "iframe"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_alone_and_escapes_what_others_wrote(tmp_path: Path) -> None:
    nasty = '<script>alert(1)</script> & "quotes", do `this <now>`'
    card = _card(
        tmp_path, _evidence(outcome=Outcome.FAIL, summary=nasty, details=(nasty,), command=(nasty,))
    )
    page = scorecard_page(card, "torchyard release inspect")
    parser = _Page()
    parser.feed(page)
    parser.close()
    assert not parser.open
    assert not parser.fetched
    within = {place.removeprefix("#") for place in parser.pointed if place.startswith("#")}
    assert {"inspect", "inspect-1"} <= within <= parser.places
    assert "<script" not in page
    assert "url(" not in page
    assert "do <code>this &lt;now&gt;</code>" in page
    assert re.search(r"Not ready.*1 blocking row", page, re.DOTALL)
    assert _FILES["a.whl"] in page


def test_rows_that_say_the_same_stand_against_it_together(tmp_path: Path) -> None:
    page = scorecard_page(_card(tmp_path, gates=(replace(_GATE, cells=("east", "west")),)), "x")
    assert page.count("nothing was tried") == 3
    assert "east, west" in page
    assert re.search(r"Not ready.*2 blocking rows\s+fail", page, re.DOTALL)


def test_the_command_writes_page_and_document_and_tells_by_its_status(
    orchard: Path, release: Callable[..., Result], tmp_path: Path
) -> None:
    train_toml(orchard, **{'version = "1.4.0.dev0"': 'version = "1.4.0"'})
    candidate = add_candidate(orchard)
    pass_gates(orchard, candidate, "check", "build")
    result = release("scorecard")
    assert result.exit_code == 3
    assert "not ready" in result.output
    pass_gates(orchard, candidate, "inspect")
    result = release("scorecard")
    assert (result.exit_code, "rc1: ready: 3 pass" in result.output) == (0, True), result.output
    folder = orchard / ".train" / "1.4.0" / "rc1"
    assert json.loads((folder / "scorecard.json").read_text())["ready"] is True
    assert "Ready." in (folder / "scorecard.html").read_text()
    # A new candidate whose bytes differ in one package makes all of this stale.
    add_candidate(orchard, 2, texts={"orchard": "NAME = 'other'\n"})
    result = release("scorecard")
    assert result.exit_code == 3
    assert result.output.count("unverified, stale") == 3


def test_nobody_approves_what_is_not_green(
    orchard: Path, release: Callable[..., Result], tmp_path: Path
) -> None:
    train_toml(orchard, **{'version = "1.4.0.dev0"': 'version = "1.4.0"'})
    (key,) = people(orchard, tmp_path, "ann", threshold=1)
    candidate = add_candidate(orchard)
    result = release("approve", "--key", str(key))
    assert result.exit_code == 1
    assert "3 blocking rows are not green" in result.output
    pass_gates(orchard, candidate, "check", "build", "inspect")
    assert "1 of 1 signatures" in release("approve", "--key", str(key)).output
