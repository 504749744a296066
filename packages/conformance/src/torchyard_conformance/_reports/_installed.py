"""Compares the installed files with those that a report certifies."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard import registry
from torchyard_conformance._reports._digests import digests
from torchyard_conformance._reports._result import Report


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of comparing.

    Attributes:
        same: whether every file here is what was certified, and none is missing or there besides.
        text: that in words.
        differing: the files that differ, sorted, each with what is wrong with it.
    """

    same: bool
    text: str
    differing: tuple[str, ...] = ()


def compare_installed(report: Report) -> Comparison:
    """Compare the installed files of a report's plugin with the digests in the report."""
    try:
        source = registry().plugin(report.plugin).source
    except LookupError:
        return Comparison(False, f"not here: no plugin {report.plugin!r} is installed")
    here = digests(source.distribution, source.value.partition(":")[0])
    there = report.digests
    if not here or not there:
        which = "what is installed" if not here else "the report"
        return Comparison(False, f"unknown: {which} has no digests")
    differing = []
    for name in sorted(here.keys() | there.keys()):
        if name not in here:
            differing.append(f"{name}: missing here")
        elif name not in there:
            differing.append(f"{name}: not in what was certified")
        elif here[name] != there[name]:
            differing.append(f"{name}: sha256 {here[name][:16]} here, {there[name][:16]} certified")
    if not differing:
        return Comparison(True, f"the same: all {len(here)} files")
    total = len(here.keys() | there.keys())
    text = f"another: {len(differing)} of {total} files differ from what was certified"
    return Comparison(False, text, tuple(differing))
