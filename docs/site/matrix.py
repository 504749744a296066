"""The matrix of features, devices and evidence, as a page that filters."""

from __future__ import annotations

from html import escape
from typing import Final

from torchyard import Evidence
from torchyard._features.levels import levels

__all__ = ["matrix_page"]

_HEAD: Final = """\
# Features by device and evidence

Each row says how far a feature is proven on a device, by what, and when;
[features](reference/features.md) has what the words mean. Without a date nothing proves it yet.
"""
_COLUMNS: Final = ("feature", "device", "level", "date", "evidence", "figures")


def matrix_page() -> str:
    """Return the page in Markdown, the table in HTML; ``site.js`` filters it."""
    rows = "\n".join(map(_row, levels()))
    heads = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    return f"""{_HEAD}
```{{raw}} html
<form id="matrix-filter" role="search" aria-label="Filter the matrix">
<label>Feature <input id="matrix-text" type="search" autocomplete="off"></label>
<label>Device <select id="matrix-device"><option value="">any</option></select></label>
<label>Level <select id="matrix-level"><option value="">any</option></select></label>
<output id="matrix-count" aria-live="polite"></output>
</form>
<div class="matrix" tabindex="0" role="region" aria-label="Features by device and evidence">
<table id="matrix"><thead><tr>{heads}</tr></thead><tbody>
{rows}
</tbody></table>
</div>
```
"""


def _row(item: Evidence) -> str:
    cells = (item.feature, item.device, str(item.level), item.date, item.tool, item.figures)
    return f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"
