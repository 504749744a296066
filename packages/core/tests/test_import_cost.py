"""What ``import torchyard`` and ``registry()`` cost, in fresh interpreters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from .distribution import run
from .toys import GOOD, TOY

# Ten times what it takes; a bound on mistakes, not a measurement.
_IMPORT_MILLISECONDS = 50.0


def _imported() -> tuple[float, list[str]]:
    """Return the milliseconds and the modules of a cold ``import torchyard``."""
    program = [sys.executable, "-X", "importtime", "-c", "import site; import torchyard"]
    lines = subprocess.run(program, capture_output=True, text=True).stderr.splitlines()
    rows = [
        (int(found[1]), found[2])
        for line in lines
        if (found := re.fullmatch(r"import time: +\d+ \| +(\d+) \| +(\S+)", line))
    ]
    start = next(place for place, row in enumerate(rows) if row[1] == "site")
    return rows[-1][0] / 1e3, [name for _, name in rows[start + 1 :]]


def test_the_package_imports_two_small_modules_of_its_own() -> None:
    runs = [_imported() for _ in range(3)]
    for _, modules in runs:
        # Some installers' site hooks have imported __future__ already; later Pythons import
        # linecache for the program's own text.
        assert [name for name in modules if name not in ("__future__", "linecache")] == [
            "torchyard._version",
            "torchyard",
        ]
    assert min(milliseconds for milliseconds, _ in runs) < _IMPORT_MILLISECONDS


def test_the_registry_imports_no_plugin_and_no_torch(tmp_path: Path) -> None:
    for distribution in (TOY, GOOD):
        distribution.install(tmp_path)
    program = """
import json, sys
import torchyard
assert {plugin.name for plugin in torchyard.registry().plugins} >= {"toy", "good"}
torchyard.registry().contracts(), torchyard.registry().commands(), torchyard.registry().devices()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    packages = json.loads(run(["-c", program], tmp_path).stdout)
    assert "torch" not in packages
    assert [name for name in packages if name.startswith("torchyard")] == ["torchyard"]
    assert not {"pluggy", "rich", "click"} & set(packages)


def test_every_public_name_is_there_and_no_other() -> None:
    program = """
import torchyard
for name in torchyard.__all__:
    assert getattr(torchyard, name) is not None
assert dir(torchyard) == torchyard.__all__
try:
    torchyard.resolv
except AttributeError as error:
    assert "module 'torchyard' has no attribute 'resolv'" in str(error)
else:
    raise AssertionError
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
