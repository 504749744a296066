"""The command that runs one case again."""

from __future__ import annotations

import shlex

from torchyard_conformance._subjects._subject import Subject


def reproduction(subject: Subject, profile: str, device: str, name: str) -> str:
    """Return a command that runs one case alone.

    Args:
        subject: the plugin, and the part of it that is judged.
        profile: the profile's name: a quick one has fewer cases.
        device: the device type asked for; empty: the plugin's.
        name: ``law`` or ``law[case]``.
    """
    words = ["torchyard", "certify", subject.name, "--case", name]
    for option, value in (
        ("--profile", profile),
        ("--implementation", ",".join(subject.only)),
        ("--device", device),
    ):
        words += [option, value] if value else []
    return shlex.join(words)
