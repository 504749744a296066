"""Decisions of a registry, as data to keep: what ``torchyard decisions dump`` writes."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard._contracts.contract import ContractId
from torchyard._errors import LockError
from torchyard._failure import describe
from torchyard._registry.lock import DecisionDump
from torchyard._registry.measured import digest_of
from torchyard._registry.registry import Registry, registry


def dump_decisions(known: Registry, devices: Iterable[str]) -> DecisionDump:
    """Decide every representative case of every installed contract.

    Args:
        known: what is installed, and the machine.
        devices: torch device types.

    Raises:
        LockError: a component's cases are broken, or one of its buckets would need two decisions.
    """
    decisions: dict[str, dict[str, str | None]] = {}
    kept = sorted(set(devices))
    for contract in known.contracts():
        buckets = decisions.setdefault(str(contract), {})
        definition = known.definition(contract)
        for device in kept:
            try:
                cases = [(request, str(request.bucket())) for request in definition.cases(device)]
            except Exception as error:
                raise LockError(
                    f"contract {contract}: cases({device!r}) raised {describe(error)}; report it "
                    f"to the author of the component"
                ) from error
            for request, bucket in cases:
                name = known.decide(contract, request).name or None
                if buckets.setdefault(bucket, name) != name:
                    raise LockError(
                        f"contract {contract}: two cases of bucket {bucket!r} are decided for "
                        f"{buckets[bucket]} and by {name}; the component's bucket() must tell "
                        f"them apart"
                    )
    return DecisionDump(_made_with(known), decisions)


def decision_digest(contract: str) -> str:
    """Return a digest of what a contract's decisions depend on in this process, besides requests.

    Of the machine, the installed versions, plugins out of use, settings, what the context demands,
    and decisions that are locked or were measured. For keys of what was built by decisions, such as
    a compiled graph.

    Args:
        contract: ``op/version``.

    Raises:
        TypeError, ValueError: it is not of that form.
        UnknownContractError: no installed component defines it.
    """
    known, parsed = registry(), ContractId.parse(contract)
    known.definition(parsed)
    policy = known.policy(parsed)
    return digest_of(
        (
            *(f"{name}={value}" for name, value in sorted(_made_with(known).items())),
            repr(policy.use),
            repr(sorted(policy.enlist)),
            repr(sorted(policy.locked)),
            repr(sorted(policy.tuned)),
        )
    )


def _made_with(known: Registry) -> dict[str, str]:
    from torchyard._version import __version__

    platform = known.platform
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
    for plugin in known.plugins:
        state = "" if plugin.usable else f" ({plugin.state})"
        made_with[f"plugin {plugin.name}"] = f"{plugin.source.version}{state}"
    settings = known.settings()
    for name, value in zip(("use", "enlist", "lock", "tuned"), settings, strict=True):
        if value:
            made_with[f"TORCHYARD_{name.upper()}"] = value
    return made_with
