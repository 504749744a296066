"""The kit that certifies a device or an implementation for torchyard.

Importing it imports nothing but this file: laws measure what importing a plugin costs, and the kit
must not add to it.
"""

from __future__ import annotations

# Importing typing would cost more than everything else here; type checkers know this name.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from torchyard_conformance._law import Law, law
    from torchyard_conformance._outcome import not_supported, unverified, violated
    from torchyard_conformance._profile import Profile, read_profile
    from torchyard_conformance._reports._expectation import Expectation
    from torchyard_conformance._reports._result import LawResult, Report
    from torchyard_conformance._spec import SPEC_VERSION
    from torchyard_conformance._status import Status
    from torchyard_conformance._subjects._subject import Subject

_HOMES = {
    "SPEC_VERSION": "_spec",
    "Expectation": "_reports._expectation",
    "Law": "_law",
    "LawResult": "_reports._result",
    "Profile": "_profile",
    "Report": "_reports._result",
    "Status": "_status",
    "Subject": "_subjects._subject",
    "law": "_law",
    "not_supported": "_outcome",
    "read_profile": "_profile",
    "unverified": "_outcome",
    "violated": "_outcome",
}

__all__ = [
    "SPEC_VERSION",
    "Expectation",
    "Law",
    "LawResult",
    "Profile",
    "Report",
    "Status",
    "Subject",
    "law",
    "not_supported",
    "read_profile",
    "unverified",
    "violated",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'torchyard_conformance' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"torchyard_conformance.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
