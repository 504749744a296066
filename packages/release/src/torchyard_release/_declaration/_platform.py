"""The platform of a wheel by its tag: any, this machine's, or one that is compiled for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Platform", "platform_of"]

_PROCESSORS: Final = {"amd64": "x86_64", "arm64": "aarch64"}
# Wheels' words -> those of zig, whose compiler pins a version of glibc as it does an architecture.
_TARGETS: Final[Mapping[re.Pattern[str], Callable[[re.Match[str]], str]]] = {
    re.compile(r"manylinux_(\d+)_(\d+)_(x86_64|aarch64)"): (
        lambda tag: f"{tag[3]}-linux-gnu.{tag[1]}.{tag[2]}"
    ),
    re.compile(r"macosx_(\d+)_(\d+)_(x86_64|arm64)"): (
        lambda tag: f"{_PROCESSORS.get(tag[3], tag[3])}-macos.{tag[1]}.{tag[2]}"
    ),
    re.compile(r"win_(amd64|arm64)"): lambda tag: f"{_PROCESSORS[tag[1]]}-windows-gnu",
}
# Not compiled at all, or by the compiler of the machine that builds.
_HERE: Final = re.compile(r"any|linux_\w+")


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform that every machine can compile for.

    Attributes:
        tag: as wheels' names have it, such as ``manylinux_2_28_aarch64``.
        target: as zig names it, such as ``aarch64-linux-gnu.2.28``.
    """

    tag: str
    target: str

    @property
    def windows(self) -> bool:
        """Whether its libraries are of Windows."""
        return "-windows-" in self.target

    @property
    def glibc(self) -> bool:
        """Whether its tag promises a version of glibc."""
        return "-linux-gnu." in self.target


def platform_of(wheel: str) -> Platform | None:
    """Return the platform that the tag of a wheel asks for.

    Args:
        wheel: its tag, such as ``cp311-abi3-manylinux_2_28_aarch64``.

    Returns:
        None for a wheel of any platform, and for one of the machine that builds
        (``linux_x86_64``), which public indexes refuse.

    Raises:
        ValueError: there is no compiler for it.
    """
    tag = wheel.rpartition("-")[2]
    if _HERE.fullmatch(tag):
        return None
    for pattern, target in _TARGETS.items():
        if found := pattern.fullmatch(tag):
            return Platform(tag, target(found))
    raise ValueError(
        "a platform such as any, manylinux_2_28_x86_64, manylinux_2_28_aarch64, "
        "macosx_11_0_arm64 or win_amd64, or linux_x86_64 for the machine that builds"
    )
