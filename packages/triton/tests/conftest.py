"""Everything here runs under Triton's interpreter, which must be chosen before any jit function."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
