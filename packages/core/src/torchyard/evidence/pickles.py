"""Pickles of plain containers, read without ever looking up a name."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Final, NoReturn

from torchyard.evidence._errors import DocumentError

__all__ = ["read_pickle"]

# Numbers, texts, None, lists, tuples, dicts, and the memo: nothing that names or calls anything.
_PLAIN: Final = frozenset(
    "APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPUT BINSTRING BINUNICODE BINUNICODE8 "
    "DICT EMPTY_DICT EMPTY_LIST EMPTY_TUPLE FRAME GET INT LIST LONG1 LONG_BINGET LONG_BINPUT MARK "
    "MEMOIZE NEWFALSE NEWTRUE NONE PROTO PUT SETITEM SETITEMS SHORT_BINSTRING SHORT_BINUNICODE "
    "STOP TUPLE TUPLE1 TUPLE2 TUPLE3 UNICODE".split()
)


class _Plain(pickle.Unpickler):
    """Refuse what the scan has refused already."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise DocumentError(f"a pickle that names {module_name}.{global_name} is not read")

    def persistent_load(self, pid: object) -> NoReturn:
        raise DocumentError("a pickle with persistent names is not read")


def read_pickle(data: bytes, source: str) -> object:
    """Return what a pickle of plain containers holds.

    Every opcode is checked before the first is carried out, so that a hostile file has no effect.

    Args:
        data: the pickle.
        source: the file's name, for errors.

    Raises:
        DocumentError: it is damaged, or holds more than plain containers.
    """
    try:
        for opcode, _, place in pickletools.genops(data):
            position = place or 0
            if opcode.name not in _PLAIN:
                raise DocumentError(
                    f"{source}: expected a pickle of plain containers, got the opcode "
                    f"{opcode.name} at byte {position}; nothing of it was carried out"
                )
            if opcode.name == "STOP" and position != len(data) - 1:
                raise DocumentError(
                    f"{source}: expected one pickle, got {len(data) - 1 - position} bytes after it"
                )
        return _Plain(io.BytesIO(data)).load()
    except DocumentError:
        raise
    except Exception as error:
        # What pickle raises on damaged data is any of a dozen types.
        raise DocumentError(
            f"{source}: expected a pickle of plain containers, got a damaged file: {error}"
        ) from error
