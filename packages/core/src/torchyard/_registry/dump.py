"""Decisions of a registry, as data to keep: what ``torchyard decisions dump`` writes."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard._environ import decision_settings
from torchyard._errors import LockError
from torchyard._failure import describe
from torchyard._registry.lock import DecisionDump
from torchyard._registry.registry import Registry


def dump_decisions(registry: Registry, devices: Iterable[str]) -> DecisionDump:
    """Decide every representative case of every installed contract.

    Args:
        registry: what is installed, and the machine.
        devices: torch device types.

    Raises:
        LockError: a component's cases are broken, or one of its buckets would need two decisions.
    """
    decisions: dict[str, dict[str, str | None]] = {}
    kept = sorted(set(devices))
    for contract in registry.contracts():
        buckets = decisions.setdefault(str(contract), {})
        definition = registry.definition(contract)
        for device in kept:
            try:
                cases = [(request, str(request.bucket())) for request in definition.cases(device)]
            except Exception as error:
                raise LockError(
                    f"contract {contract}: cases({device!r}) raised {describe(error)}; report it "
                    f"to the author of the component"
                ) from error
            for request, bucket in cases:
                name = registry.decide(contract, request).name or None
                if buckets.setdefault(bucket, name) != name:
                    raise LockError(
                        f"contract {contract}: two cases of bucket {bucket!r} are decided for "
                        f"{buckets[bucket]} and by {name}; the component's bucket() must tell "
                        f"them apart"
                    )
    return DecisionDump(_made_with(registry), decisions)


def _made_with(registry: Registry) -> dict[str, str]:
    from torchyard._version import __version__

    platform = registry.platform
    made_with = {
        "torchyard": __version__,
        "torch": platform.torch or "none",
        "python": platform.python,
        "machine": f"{platform.system} {platform.machine}",
        "cpu_features": " ".join(sorted(platform.cpu_features)),
    }
    for item in platform.accelerators:
        made_with[f"accelerator {item.device}"] = f"{item.architecture} {item.name}".strip()
    for name, version in platform.libraries:
        made_with[f"library {name}"] = version
    for plugin in registry.plugins:
        state = "" if plugin.usable else f" ({plugin.state})"
        made_with[f"plugin {plugin.name}"] = f"{plugin.source.version}{state}"
    settings = decision_settings(registry.environ)
    for name, value in zip(("use", "enlist", "lock", "tuned"), settings, strict=True):
        if value:
            made_with[f"TORCHYARD_{name.upper()}"] = value
    return made_with
