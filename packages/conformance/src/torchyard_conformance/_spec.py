"""The version of the specification that a certificate refers to."""

from __future__ import annotations

from typing import Final

# Of the laws and the lists of those that must pass. It changes when a plugin that was certified
# might not be again: the list of a released version is never edited, a new version gets new lists.
SPEC_VERSION: Final = "1.0"
