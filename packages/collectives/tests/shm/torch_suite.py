"""torch's own tests of backends, from its wheel, on one backend: ``torch_suite.py --backend shm``.

Each test runs as torch runs it, on fresh processes with a fresh group, but these are forked from
one process that has imported torch. Prints one JSON line per test, and the counts at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path
from typing import Any


class _Backend(str):
    """A backend's name, which the suite takes for gloo's where it asks what a backend can do."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def load(backend: str, world: int, folder: Path, patience: int) -> Any:
    """Return the suite's test case for a backend.

    The suite chooses its tests when it is imported, as gloo's; it asks for the backend later.
    """
    for name in ("barrier", "test_dir", "init_dir"):
        (folder / name).mkdir()
    os.environ |= {
        "BACKEND": "gloo",
        "WORLD_SIZE": str(world),
        "TEMP_DIR": str(folder),
        "GLOO_SOCKET_IFNAME": "lo",
        "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(patience),
    }
    import torch

    import torchyard_collectives  # noqa: F401  (registers its backend)

    torch.set_num_threads(1)
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test as suite

    common_distributed.TIMEOUT_OVERRIDE.clear()
    suite.default_pg_timeout = patience
    suite.Barrier.sync.__func__.__defaults__ = (None, patience)
    suite.BACKEND, os.environ["BACKEND"] = _Backend(backend), backend
    for backends in common_distributed.DistTestCases.backend_feature.values():
        if "gloo" in backends:
            backends.add(backend)

    class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        """The tests, on processes that are forked."""

        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Suite


class _Lines(unittest.TestResult):
    """Prints a line for each test that is over."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._began = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._began = time.monotonic()

    def _line(self, test: unittest.TestCase, outcome: str, text: str = "") -> None:
        self.counts[outcome] += 1
        seconds = round(time.monotonic() - self._began, 1)
        name = test.id().rpartition(".")[2]
        line = {"test": name, "outcome": outcome, "seconds": seconds, "text": text}
        print(json.dumps(line), file=sys.__stdout__, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._line(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._line(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._line(test, "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

    addError = addFailure


def main() -> int:
    """Run the suite, or some of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="shm")
    parser.add_argument("--world", type=int, default=2, help="how many ranks")
    parser.add_argument("--patience", type=int, default=300, help="seconds that a test may take")
    parser.add_argument("tests", nargs="*", help="names; all of them by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        kind = load(arguments.backend, arguments.world, Path(scratch), arguments.patience)
        names = arguments.tests or unittest.defaultTestLoader.getTestCaseNames(kind)
        result = _Lines()
        # What the suite prints is not the table.
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            sys.stdout = nowhere
            kind.setUpClass()
            for name in names:
                kind(name).run(result)
            sys.stdout = sys.__stdout__
    print(json.dumps(dict(result.counts)))
    return 1 if result.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
