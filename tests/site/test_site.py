"""The site in a browser: readers find pages, filter the matrix, and nothing is broken or hidden."""

from __future__ import annotations

import shutil
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from docs.site.versions import add_version, folder_of

_ROOT = Path(__file__).parents[2]
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PAGES = (
    *("docs/index", "docs/getting-started", "docs/attention", "docs/matrix"),
    *("docs/reference/settings", "docs/reference/api/torchyard_attention", "docs/plugins/cuda"),
    "docs/measurements/plots",
)
# What a user would type, and the page that answers.
_SEARCHES = {
    "sliding window": "masks",
    "alibi": "attention",
    "quantise": "quantisation",
    "hang": "flight-recorder",
    "H200": "measurements/cuda",
    "E_HEAD_DIM": "reference/reason-codes",
    "TORCHYARD_USE": "reference/settings",
    "page key-value cache": "inference",
}
_PHONE, _DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


class _Links(HTMLParser):
    """Collect what a page links to, and the places in it that can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.places |= {value for key in ("id", "name") if (value := named.get(key))}
        for key in ("href", "src"):
            if value := named.get(key):
                self.links.append(value)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site(pytestconfig: pytest.Config) -> Path:
    """Return the folder of this version of the built site."""
    folder = Path(pytestconfig.option.site or "")
    version = tomllib.loads((_ROOT / "train.toml").read_text(encoding="utf-8"))["train"]["version"]
    site = folder / folder_of(version)
    if not (site / "docs" / "index.html").is_file():
        pytest.fail(f"--site: expected the folder of built sites, got {str(folder)!r}")
    return site


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Return the address at which this machine shows this version of the site."""
    with _served(site.parent) as found:
        yield f"{found}/{site.name}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a Chromium of this machine."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.fail(f"UNVERIFIED: this machine has none of {', '.join(_NAMES)}")
    with sync_playwright() as started:
        launched = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Return a page of a desk's width; an error on its console, or a lost file, fails the test."""
    opened = browser.new_page(viewport=_DESK)
    said: list[str] = []

    def note(wrong: bool, text: str) -> None:
        if wrong:
            said.append(text)

    opened.on("console", lambda message: note(message.type == "error", message.text))
    opened.on("pageerror", lambda error: note(True, str(error)))
    opened.on("requestfailed", lambda request: note(True, f"failed: {request.url}"))
    opened.on("response", lambda found: note(found.status >= 400, f"{found.status} {found.url}"))
    yield opened
    opened.close()
    assert not said, said


def test_no_link_is_broken(site: Path) -> None:
    read: dict[Path, _Links] = {}
    # The theme's own files are no pages.
    for file in [*site.glob("*.html"), *site.glob("[!_]*/**/*.html")]:
        read[file] = links = _Links()
        links.feed(file.read_text(encoding="utf-8"))
    assert len(read) > 100
    broken = []
    for file, links in read.items():
        for link in links.links:
            target, place = urldefrag(link)
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            path = (file.parent / unquote(urlsplit(target).path)).resolve() if target else file
            if not path.exists():
                broken.append(f"{file.relative_to(site)} -> {link}")
            elif place and path in read and unquote(place) not in read[path].places:
                broken.append(f"{file.relative_to(site)} -> {link}: no such place")
    assert not broken, "\n".join(broken)


def test_nothing_comes_from_another_host(page: Any, address: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in _PAGES:
        page.goto(f"{address}/{name}.html", wait_until="networkidle")
    assert asked
    host = address.rpartition("/")[0]
    assert not [url for url in asked if not url.startswith((host, "data:"))]


@pytest.mark.parametrize("words", _SEARCHES)
def test_a_search_finds_the_page(page: Any, address: str, words: str) -> None:
    page.goto(f"{address}/search.html?q={words.replace(' ', '+')}")
    # Results come one by one; the summary says when all are there.
    page.wait_for_function(
        "/finished/i.test(document.querySelector('.search-summary')?.textContent ?? '')",
        timeout=30_000,
    )
    found = page.eval_on_selector_all(
        "#search-results li a", "links => links.map(link => link.getAttribute('href'))"
    )
    assert any(f"{_SEARCHES[words]}.html" in link for link in found), found


def test_versions_are_listed_and_lead_to_the_same_page(
    browser: Any, site: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "docs").mkdir(parents=True)
    for name in ("index", "attention"):
        (other / "docs" / f"{name}.html").write_text(f"<h1>{name} of 99.0.0</h1>")
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / site.name).symlink_to(site)
    assert add_version(other, "99.0.0", versions) == ["99.0.0", site.name]
    page = browser.new_page(viewport=_DESK)
    with _served(versions) as address:
        page.goto(f"{address}/", wait_until="networkidle")
        assert page.url == f"{address}/99.0.0/docs/index.html"
        page.goto(f"{address}/{site.name}/docs/attention.html", wait_until="networkidle")
        page.click(".version-switcher__button >> visible=true")
        page.click("a:has-text('99.0.0 (newest)') >> visible=true")
        page.wait_for_url(f"{address}/99.0.0/docs/attention.html")
        assert page.inner_text("h1") == "attention of 99.0.0"
    page.close()


def test_plots_are_shown_with_their_commands(page: Any, address: str) -> None:
    page.goto(f"{address}/docs/measurements/plots.html")
    pictures = page.locator("article img")
    assert pictures.count() == page.locator("article pre", has_text="python -m benchmarks").count()
    assert pictures.count() > 0
    for picture in pictures.all():
        picture.scroll_into_view_if_needed()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
        assert "times torch" in picture.get_attribute("alt")


def test_the_matrix_filters(page: Any, address: str) -> None:
    page.goto(f"{address}/docs/matrix.html")
    shown = "#matrix tbody tr:not([hidden])"
    everything = page.locator(shown).count()
    assert everything > 20
    page.fill("#matrix-text", "flex_attention")
    few = page.locator(shown).count()
    assert 0 < few < everything
    page.select_option("#matrix-device", "cpu")
    assert page.locator(shown).count() == 1
    assert "right on the device" in page.locator(shown).inner_text()
    assert page.locator("#matrix-count").inner_text() == f"1 of {everything} rows"
    page.fill("#matrix-text", "")
    page.select_option("#matrix-device", "")
    assert page.locator(shown).count() == everything


@pytest.mark.parametrize("size", [_PHONE, _DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("name", _PAGES)
def test_a_page_fits_its_width(
    page: Any, address: str, name: str, size: dict[str, int], tmp_path: Path
) -> None:
    page.set_viewport_size(size)
    page.goto(f"{address}/{name}.html", wait_until="networkidle")
    page.screenshot(path=tmp_path / f"{name.replace('/', '-')}.png")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= size["width"], f"{width} pixels"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", _PAGES)
def test_a_page_is_accessible(page: Any, address: str, name: str, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/{name}.html", wait_until="networkidle")
    # Without it, axe asks for what style sheets import as if the page did.
    found = Axe().run(page, options={"preload": False}).response["violations"]
    grave = [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in {"serious", "critical"}
    ]
    assert not grave, "\n".join(grave)


def test_the_keyboard_reaches_text_and_search(page: Any, address: str) -> None:
    page.goto(f"{address}/docs/index.html", wait_until="networkidle")
    page.keyboard.press("Tab")
    assert "main content" in page.evaluate("document.activeElement.textContent").lower()
    page.keyboard.press("Control+k")
    page.keyboard.type("alibi")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=alibi*")
