"""torchyard: components that run on the best implementation the machine has, and say why.

``import torchyard`` imports nothing but this file: every public name is loaded when it is first
used, and torch is never imported by the registry itself.
"""

from __future__ import annotations

from torchyard._version import __version__

# Importing typing would cost more than everything else here; type checkers know this name.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from torchyard._contracts.compilation import Compilation
    from torchyard._contracts.contract import ContractDefinition, ContractId, Request, RequestField
    from torchyard._contracts.implementation import (
        Claim,
        Implementation,
        ReasonCode,
        Verdict,
        round_size,
    )
    from torchyard._environ import child_environ, plugin_setting, restart_count, setting
    from torchyard._errors import (
        LockError,
        ManifestError,
        MaturityError,
        PlatformError,
        PolicyError,
        TorchyardError,
        TransformError,
        UnknownContractError,
        UnsupportedError,
    )
    from torchyard._features.levels import Evidence, EvidenceLevel, evidence_of
    from torchyard._features.maturity import Feature, PrototypeWarning, Stage, features, note_use
    from torchyard._ops.graph_call import GraphCall
    from torchyard._ops.operators import Operators, sources_digest
    from torchyard._ops.transforms import (
        active_transform,
        differentiable_jvp,
        is_batch_of_gradients,
    )
    from torchyard._ops.uncompiled import uncompiled
    from torchyard._platforms.accelerators import with_accelerators
    from torchyard._platforms.files import PlatformFile, read_platform_file
    from torchyard._platforms.host import host_problem
    from torchyard._platforms.platform import Accelerator, Platform, cpu_model, probe_platform
    from torchyard._plugins.check import Check, CheckStatus
    from torchyard._plugins.deprecation import PluginDeprecationWarning
    from torchyard._plugins.device_status import DeviceStatus
    from torchyard._plugins.manifest import Manifest
    from torchyard._plugins.plugin import Plugin, PluginSource, PluginState
    from torchyard._plugins.workload import SpeedLimits, Workload
    from torchyard._registry.decision import Candidate, Decision, Outcome, Source
    from torchyard._registry.dump import decision_digest
    from torchyard._registry.lock import DecisionChange, DecisionDump, diff_dumps, read_dump
    from torchyard._registry.measured import MeasuredFile, digest_of
    from torchyard._registry.policy import Policy
    from torchyard._registry.recording import DecisionRecord, record_decisions
    from torchyard._registry.registry import Registry, registry, resolve
    from torchyard._registry.resolver import decide, require
    from torchyard._registry.use import use
    from torchyard.hookspecs import hookimpl
    from torchyard.optimization._api import optimize

_HOMES = {
    "Accelerator": "_platforms.platform",
    "Candidate": "_registry.decision",
    "Check": "_plugins.check",
    "CheckStatus": "_plugins.check",
    "Claim": "_contracts.implementation",
    "Compilation": "_contracts.compilation",
    "ContractDefinition": "_contracts.contract",
    "ContractId": "_contracts.contract",
    "Decision": "_registry.decision",
    "DecisionChange": "_registry.lock",
    "DecisionDump": "_registry.lock",
    "DecisionRecord": "_registry.recording",
    "DeviceStatus": "_plugins.device_status",
    "Evidence": "_features.levels",
    "EvidenceLevel": "_features.levels",
    "Feature": "_features.maturity",
    "GraphCall": "_ops.graph_call",
    "Implementation": "_contracts.implementation",
    "LockError": "_errors",
    "Manifest": "_plugins.manifest",
    "ManifestError": "_errors",
    "MaturityError": "_errors",
    "MeasuredFile": "_registry.measured",
    "Operators": "_ops.operators",
    "Outcome": "_registry.decision",
    "Platform": "_platforms.platform",
    "PlatformError": "_errors",
    "PlatformFile": "_platforms.files",
    "Plugin": "_plugins.plugin",
    "PluginDeprecationWarning": "_plugins.deprecation",
    "PluginSource": "_plugins.plugin",
    "PluginState": "_plugins.plugin",
    "Policy": "_registry.policy",
    "PolicyError": "_errors",
    "PrototypeWarning": "_features.maturity",
    "ReasonCode": "_contracts.implementation",
    "Registry": "_registry.registry",
    "Request": "_contracts.contract",
    "RequestField": "_contracts.contract",
    "Source": "_registry.decision",
    "SpeedLimits": "_plugins.workload",
    "Stage": "_features.maturity",
    "TorchyardError": "_errors",
    "TransformError": "_errors",
    "UnknownContractError": "_errors",
    "UnsupportedError": "_errors",
    "Verdict": "_contracts.implementation",
    "Workload": "_plugins.workload",
    "active_transform": "_ops.transforms",
    "child_environ": "_environ",
    "cpu_model": "_platforms.platform",
    "decide": "_registry.resolver",
    "decision_digest": "_registry.dump",
    "diff_dumps": "_registry.lock",
    "differentiable_jvp": "_ops.transforms",
    "digest_of": "_registry.measured",
    "evidence_of": "_features.levels",
    "features": "_features.maturity",
    "hookimpl": "hookspecs",
    "host_problem": "_platforms.host",
    "is_batch_of_gradients": "_ops.transforms",
    "note_use": "_features.maturity",
    "optimize": "optimization._api",
    "plugin_setting": "_environ",
    "probe_platform": "_platforms.platform",
    "read_dump": "_registry.lock",
    "read_platform_file": "_platforms.files",
    "record_decisions": "_registry.recording",
    "registry": "_registry.registry",
    "require": "_registry.resolver",
    "resolve": "_registry.registry",
    "restart_count": "_environ",
    "round_size": "_contracts.implementation",
    "setting": "_environ",
    "sources_digest": "_ops.operators",
    "uncompiled": "_ops.uncompiled",
    "use": "_registry.use",
    "with_accelerators": "_platforms.accelerators",
}

__all__ = [
    "Accelerator",
    "Candidate",
    "Check",
    "CheckStatus",
    "Claim",
    "Compilation",
    "ContractDefinition",
    "ContractId",
    "Decision",
    "DecisionChange",
    "DecisionDump",
    "DecisionRecord",
    "DeviceStatus",
    "Evidence",
    "EvidenceLevel",
    "Feature",
    "GraphCall",
    "Implementation",
    "LockError",
    "Manifest",
    "ManifestError",
    "MaturityError",
    "MeasuredFile",
    "Operators",
    "Outcome",
    "Platform",
    "PlatformError",
    "PlatformFile",
    "Plugin",
    "PluginDeprecationWarning",
    "PluginSource",
    "PluginState",
    "Policy",
    "PolicyError",
    "PrototypeWarning",
    "ReasonCode",
    "Registry",
    "Request",
    "RequestField",
    "Source",
    "SpeedLimits",
    "Stage",
    "TorchyardError",
    "TransformError",
    "UnknownContractError",
    "UnsupportedError",
    "Verdict",
    "Workload",
    "__version__",
    "active_transform",
    "child_environ",
    "cpu_model",
    "decide",
    "decision_digest",
    "diff_dumps",
    "differentiable_jvp",
    "digest_of",
    "evidence_of",
    "features",
    "hookimpl",
    "host_problem",
    "is_batch_of_gradients",
    "note_use",
    "optimize",
    "plugin_setting",
    "probe_platform",
    "read_dump",
    "read_platform_file",
    "record_decisions",
    "registry",
    "require",
    "resolve",
    "restart_count",
    "round_size",
    "setting",
    "sources_digest",
    "uncompiled",
    "use",
    "with_accelerators",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'torchyard' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"torchyard.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
