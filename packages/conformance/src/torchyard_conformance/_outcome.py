"""The exceptions by which a law ends other than as passed."""

from __future__ import annotations

from typing import Final, NoReturn

from torchyard import arguments

# A certificate that says less helps nobody.
_SAY: Final = "say why the law ends here, for the plugin's author"


class NotSupported(Exception):
    """The plugin does not offer what the law is about."""


class Unverified(Exception):
    """The law cannot be tried here."""


class Violated(AssertionError):
    """The plugin breaks the law.

    Args:
        text: what was expected, and what came.
        smallest: the smallest case that shows it; empty: the case that ran.
    """

    def __init__(self, text: str, smallest: str = "") -> None:
        super().__init__(text)
        self.smallest = smallest


def not_supported(reason: str) -> NoReturn:
    """End the law: the plugin does not offer what it is about."""
    raise NotSupported(arguments.text("not_supported", "reason", reason, remedy=_SAY))


def unverified(reason: str) -> NoReturn:
    """End the law: it cannot be tried here, for a reason that is not the plugin's fault."""
    raise Unverified(arguments.text("unverified", "reason", reason, remedy=_SAY))


def violated(text: str, *, smallest: str = "") -> NoReturn:
    """End the law: the plugin breaks it.

    Args:
        text: what was expected and what came, for the plugin's author.
        smallest: the smallest case that shows it, where the law looked for one.
    """
    arguments.text("violated", "text", text, remedy=_SAY)
    arguments.instance("violated", "smallest", smallest, str, "a string")
    raise Violated(text, smallest)
