"""Write the golden decisions again: ``python -m tests.platforms [NAME ...]``."""

from __future__ import annotations

import sys

from tests.platforms.dumps import FOLDER, NAMES, current, golden

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or NAMES:
        golden(name).write_text(current(name), encoding="utf-8")
        print(golden(name).relative_to(FOLDER.parents[2]))
    for path in FOLDER.glob("*.txt"):
        if path.stem not in NAMES:
            path.unlink()
