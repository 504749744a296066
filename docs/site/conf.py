"""The configuration of Sphinx, which ``nox -s docs`` runs."""

from __future__ import annotations

import tomllib
from pathlib import Path

from docs.site.versions import LISTED, folder_of

_TRAIN = tomllib.loads((Path(__file__).parents[2] / "train.toml").read_text(encoding="utf-8"))

project = _TRAIN["train"]["name"]
author = _TRAIN["train"]["owner"]
copyright = author
version = release = _TRAIN["train"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
exclude_patterns: list[str] = []
nitpicky = False

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
# A name that two packages have, and headings that begin below the first level.
suppress_warnings = ["myst.header", "ref.python"]

autodoc_member_order = "alphabetical"
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_use_rtype = False
napoleon_use_ivar = True

# What the theme of torch's own pages is made from; it asks no other host for anything.
html_theme = "pydata_sphinx_theme"
html_title = f"{project} {version}"
html_static_path = [str(Path(__file__).parent / "assets")]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_extra_path = [str(Path(__file__).parent / "root")]
html_favicon = str(Path(__file__).parent / "assets" / "icon.svg")
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    # It is next to the folders of the versions, which Sphinx does not write.
    "switcher": {"json_url": f"../{LISTED}", "version_match": folder_of(release)},
    "check_switcher": False,
    "show_version_warning_banner": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "search_bar_text": "Search",
    "footer_start": ["copyright"],
    "footer_end": [],
}
