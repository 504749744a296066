"""Mutants: plugins with one fault each, the law meant for it, and a twin without it."""

from __future__ import annotations

from dataclasses import dataclass

from .distribution import Distribution


@dataclass(frozen=True, slots=True)
class Mutant:
    """A plugin, or one implementation of a plugin, that breaks one law.

    Attributes:
        name: the mutant's.
        fault: what it does, in words.
        law: the law meant for it: the only one that it breaks.
        broken: the distribution that holds it.
        healthy: the one that holds its twin, which breaks none; may be the same where single
            implementations are judged.
        profile: the laws that both are held against.
        implementation: the one that is broken; empty: the whole plugin.
        twin: the one that is healthy; empty: the whole plugin.
    """

    name: str
    fault: str
    law: str
    broken: Distribution
    healthy: Distribution
    profile: str = "core"
    implementation: str = ""
    twin: str = ""
