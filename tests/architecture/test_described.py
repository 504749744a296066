"""Every package says what it is; its version and its pins are held by `torchyard release check`."""

from __future__ import annotations

import pytest

from tests.architecture.tree import PACKAGES, ROOT, Package


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.import_name)
def test_a_package_is_described_typed_and_licensed(package: Package) -> None:
    folder = ROOT / package.folder
    assert package.project["license"] == "BSD-3-Clause"
    assert package.project["requires-python"] == ">=3.11"
    assert (folder / package.project["readme"]).is_file()
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (folder / "src" / package.import_name / "py.typed").is_file()
