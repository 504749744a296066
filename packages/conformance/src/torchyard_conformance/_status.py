"""The outcome of a law."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How a law ended for a plugin, or one case of it.

    ``not-supported``: the plugin does not offer what the law is about. ``unverified``: the law
    could not be tried here, for example because the device is absent; never a pass.
    """

    PASS = "pass"
    FAIL = "fail"
    NOT_SUPPORTED = "not-supported"
    UNVERIFIED = "unverified"

    @classmethod
    def of_all(cls, cases: frozenset[Status]) -> Status:
        """Return how a law ended whose cases ended so.

        One failure fails it, one unverified case leaves it unverified; a case that is not supported
        takes nothing from those that passed.
        """
        for status in (cls.FAIL, cls.UNVERIFIED, cls.PASS):
            if status in cases:
                return status
        return cls.NOT_SUPPORTED
