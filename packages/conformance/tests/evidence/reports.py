"""Reports that no run made, for what is done with reports."""

from __future__ import annotations

import dataclasses
from typing import Any

from torchyard_conformance import SPEC_VERSION, LawResult, Report, Status, read_profile


def certified_report(profile: str = "core", **changes: Any) -> Report:
    """Return the report of a plugin that passed everything, with some fields changed."""
    found = read_profile(profile)
    mustpass = found.mustpass(())
    results = [LawResult(law, "", Status.PASS, seconds=0.25) for law in mustpass]
    results += [
        LawResult("extra.fast", "cpu", Status.PASS, figures={"microseconds": 1.5, "kind": "warm"}),
        LawResult("extra.fast", "hyper", Status.UNVERIFIED, "no device 'hyper' \u2013 \x1b[0m"),
        LawResult("extra.paged", "", Status.NOT_SUPPORTED, "reads no pages"),
    ]
    report = Report(
        spec=SPEC_VERSION,
        kit_version="0.1.0.dev0",
        plugin="yard",
        distribution="torchyard-yard",
        plugin_version="1.2",
        profile=profile,
        contracts=(),
        devices=("cpu",),
        implementations=(),
        mustpass=mustpass,
        mustpass_digest=found.digest,
        results=tuple(results),
        expectations=(),
        date="2026-11-21",
        environment={"system": "Linux", "machine": "riscv64"},
        versions={"torchyard": "0.1.0.dev0", "torchyard-yard": "1.2"},
        digests={"torchyard_yard/__init__.py": "ab" * 32},
    )
    return dataclasses.replace(report, **changes)


def failed_report() -> Report:
    """Return the report of a plugin that broke a law that must pass."""
    report = certified_report()
    broken = dataclasses.replace(
        report.results[0],
        status=Status.FAIL,
        text="expected 1, got 2",
        reproduce="torchyard certify yard --case x",
    )
    return dataclasses.replace(report, results=(broken, *report.results[1:]))
