"""Assembles a report from results: the subject, the profile, the machine."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distributions, requires, version

from packaging.requirements import InvalidRequirement, Requirement

from torchyard import cpu_model, probe_platform, with_accelerators
from torchyard_conformance._profile import Profile
from torchyard_conformance._reports._digests import digests
from torchyard_conformance._reports._execution import EXECUTION, simulated_devices
from torchyard_conformance._reports._expectation import Expectation
from torchyard_conformance._reports._result import LawResult, Report
from torchyard_conformance._spec import SPEC_VERSION
from torchyard_conformance._subjects._subject import Subject

_KIT = "torchyard-conformance"


def assemble(
    subject: Subject,
    profile: Profile,
    results: Iterable[LawResult],
    expectations: Iterable[Expectation],
) -> Report:
    """Return the report of a run that ended now, on this machine."""
    return Report(
        spec=SPEC_VERSION,
        kit_version=version(_KIT),
        plugin=subject.name,
        distribution=subject.distribution,
        plugin_version=subject.version,
        profile=profile.name,
        contracts=subject.contracts,
        devices=subject.devices,
        implementations=subject.only,
        mustpass=profile.mustpass(subject.contracts),
        mustpass_digest=profile.digest,
        results=tuple(sorted(results, key=lambda result: (result.law, result.case))),
        expectations=tuple(expectations),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        environment=environment(subject.devices),
        versions=versions(subject),
        digests=digests(subject.distribution, subject.package),
    )


def environment(devices: Sequence[str] = ()) -> dict[str, str]:
    """Return the machine in words; nothing in it identifies its owner.

    Args:
        devices: those that took part; whether one is simulated is said.
    """
    machine = probe_platform()
    for device in devices:
        machine = with_accelerators(machine, device)
    accelerators = [
        " ".join(filter(None, (item.name, item.architecture, f"driver {item.driver}")))
        for item in machine.accelerators
        if item.device in devices
    ]
    simulated = sorted(set(devices) & simulated_devices())
    return {
        **({EXECUTION: f"simulated: {', '.join(simulated)}"} if simulated else {}),
        "system": f"{machine.system} {platform.release()}",
        "machine": machine.machine,
        "cpu": cpu_model(),
        "cores": str(machine.cpu_cores),
        **({"accelerators": "; ".join(accelerators)} if accelerators else {}),
        "python": f"{platform.python_implementation()} {machine.python}",
    }


def versions(subject: Subject) -> dict[str, str]:
    """Return the versions of what takes part: the plugin, what it requires, torch, the kit."""
    names = {"torch", "pytest", _KIT, subject.distribution}
    for name in (subject.distribution, _KIT):
        names |= _required(name)
    names |= {
        name
        for item in distributions()
        if (name := str(item.metadata["Name"] or "").lower()).partition("-")[0] == "torchyard"
    }
    found = {}
    for name in sorted(filter(None, names)):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _required(distribution: str) -> set[str]:
    """Return the distributions that one requires without extras."""
    try:
        lines = requires(distribution) or []
    except PackageNotFoundError:
        return set()
    names = set()
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            names.add(requirement.name)
    return names
