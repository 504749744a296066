"""The site's versions lie side by side, and the list of them is what is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.site.versions import LISTED, add_version


def _site(folder: Path, text: str) -> Path:
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "index.html").write_text(text, encoding="utf-8")
    return folder


def test_a_version_is_put_beside_the_others_newest_first(tmp_path: Path) -> None:
    folder = tmp_path / "versions"
    for version in ("0.9.0", "0.11.0.dev0", "0.10.0", "0.12.0rc1"):
        names = add_version(_site(tmp_path / version, version), version, folder, "/docs/")
    assert names == ["0.10.0", "0.9.0", "0.12.0rc1", "dev"]
    rows = json.loads((folder / LISTED).read_text(encoding="utf-8"))
    assert [row["url"] for row in rows] == [f"/docs/{name}/" for name in names]
    assert [row["version"] for row in rows if row["preferred"]] == ["0.10.0"]
    assert "url=0.10.0/docs/index.html" in (folder / "index.html").read_text(encoding="utf-8")
    # What is being developed replaces itself; what is no version stays, and is not listed.
    _site(folder / "drafts", "")
    assert add_version(_site(tmp_path / "next", "next"), "0.12.0.dev0", folder) == names
    assert (folder / "dev" / "docs" / "index.html").read_text(encoding="utf-8") == "next"


def test_nothing_but_a_site_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "versions"
    (folder / "1.0.0").mkdir(parents=True)
    (folder / "1.0.0" / "kept.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="expected a built site or nothing in"):
        add_version(_site(tmp_path / "site", ""), "1.0.0", folder)
    assert (folder / "1.0.0" / "kept.txt").read_text(encoding="utf-8") == "mine"
    with pytest.raises(ValueError, match="expected the folder of a built site"):
        add_version(tmp_path, "1.0.0", folder)
