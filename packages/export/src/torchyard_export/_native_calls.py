"""The operators that a package of machine code calls, since it does not compile them itself."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO
from typing import Final

from torchyard_export.contract import TargetError

_CALLS: Final = re.compile(r"[^/]+/data/aotinductor/[^/]+/[^/]+\.wrapper\.json")


def calls_of(data: bytes) -> list[bytes]:
    """Return the tables, as JSON, of the operators that a package calls and does not compile.

    Raises:
        TargetError: it is no package.
    """
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            return [archive.read(item) for item in archive.namelist() if _CALLS.fullmatch(item)]
    except zipfile.BadZipFile as error:
        raise TargetError(f"expected an AOTInductor package: {error}") from error
