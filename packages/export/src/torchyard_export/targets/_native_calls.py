"""The operators that a package of machine code calls, since it does not compile them itself."""

from __future__ import annotations

import re
from typing import Final

from torchyard.evidence import raised_as
from torchyard.evidence.archives import Limits, read_zip
from torchyard_export.contract import TargetError

# Weights among it; what is read of it is small.
PACKAGE_LIMITS: Final = Limits(unpacked=64 << 30)
_CALLS: Final = re.compile(r"[^/]+/data/aotinductor/[^/]+/[^/]+\.wrapper\.json")


def calls_of(data: bytes) -> list[bytes]:
    """Return the tables, as JSON, of the operators that a package calls and does not compile.

    Raises:
        TargetError: it is no package.
    """
    with raised_as(lambda text: TargetError(f"expected an AOTInductor package: {text}")):
        found = read_zip(data, PACKAGE_LIMITS, folders=True, wanted=_CALLS.fullmatch)
    return [member.content for member in found.values()]
