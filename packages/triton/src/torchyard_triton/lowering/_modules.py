"""Generated source as Python modules, one for each text."""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from types import ModuleType

__all__ = ["module_of"]


@lru_cache(maxsize=1024)
def module_of(key: str, source: str) -> ModuleType:
    """Return the module of a generated source; the same one for the same text.

    Triton reads the text of a jit function through linecache, which is given it: no file is
    written. Triton's own cache of compiled kernels is keyed by that text.

    Args:
        key: a hash of the source, which names the module.
        source: its text.
    """
    name = f"torchyard_triton.generated.{key}"
    module = ModuleType(name)
    file = module.__file__ = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    # inspect finds the source of a function by its module.
    sys.modules[name] = module
    exec(compile(source, file, "exec"), module.__dict__)
    return module
