"""A plugin, its state, and the reason for that state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from torchyard._contracts.implementation import ReasonCode
from torchyard._plugins.manifest import Manifest


class PluginState(StrEnum):
    """The states of a plugin.

    ``discovered``: its manifest was read and nothing of it was needed yet. ``blocked``: the user
    switched it off. ``incompatible``: it was made for other versions, or contradicts another
    plugin. ``unavailable``: something that it needs is not here. ``active``: code of it was
    loaded. ``failed``: its manifest or its code is broken.
    """

    DISCOVERED = "discovered"
    BLOCKED = "blocked"
    INCOMPATIBLE = "incompatible"
    UNAVAILABLE = "unavailable"
    ACTIVE = "active"
    FAILED = "failed"


USABLE_STATES = frozenset({PluginState.DISCOVERED, PluginState.ACTIVE})


@dataclass(frozen=True, slots=True)
class PluginSource:
    """Where a plugin was announced: an entry point, as data.

    Attributes:
        name: the entry point's name.
        value: ``package:file.toml``.
        distribution: the distribution that announces it.
        version: that distribution's version.
        problem: why the announcement itself cannot be read; empty where it can.
    """

    name: str
    value: str
    distribution: str
    version: str
    problem: str = ""


@dataclass(slots=True)
class Plugin:
    """A plugin and its state. Changed by the registry only.

    Attributes:
        source: where it was announced.
        state: whether it is used, and if not, what kind of reason there is.
        code: the reason for a state that is neither discovered nor active.
        reason: one line for a person.
        hint: what to do about it; empty where nothing is wrong.
        manifest: its manifest, where that could be read.
        traceback: the traceback of the failure, where there was one.
        notes: what else is worth knowing: slow imports, prints.
        import_seconds: seconds that each imported module took.
        discovery_seconds: seconds that finding and parsing its manifest took.
    """

    source: PluginSource
    state: PluginState = PluginState.DISCOVERED
    code: ReasonCode | None = None
    reason: str = ""
    hint: str = ""
    manifest: Manifest | None = None
    traceback: str = ""
    notes: list[str] = field(default_factory=list)
    import_seconds: dict[str, float] = field(default_factory=dict)
    discovery_seconds: float = 0.0

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.source.name

    @property
    def usable(self) -> bool:
        """Whether its implementations may be asked for."""
        return self.state in USABLE_STATES

    @property
    def ranks(self) -> bool:
        """Whether its lists count.

        They do while it is broken, so that a decision shows what it went without; not where the
        user switched it off or another plugin keeps what it claims.
        """
        return (
            self.usable
            or self.state in {PluginState.FAILED, PluginState.UNAVAILABLE}
            or self.code is ReasonCode.VERSION
        )

    def retire(
        self, state: PluginState, code: ReasonCode, reason: str, hint: str, traceback: str = ""
    ) -> None:
        """Take the plugin out of use and keep why."""
        self.state = state
        self.code = code
        self.reason = reason
        self.hint = hint
        self.traceback = traceback
