"""torchyard: components that run on the best implementation the machine has, and say why.

``import torchyard`` imports nothing but this file: every public name is loaded when it is first
used, and torch is never imported by the registry itself.
"""

from __future__ import annotations

from torchyard._version import __version__

# Importing typing would cost more than everything else here; type checkers know this name.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from torchyard._check import Check, CheckStatus
    from torchyard._claim import Claim
    from torchyard._contract import ContractDefinition, ContractId, Request, RequestField
    from torchyard._decision import Candidate, Decision, Outcome, Source
    from torchyard._deprecation import PluginDeprecationWarning
    from torchyard._device import DeviceStatus
    from torchyard._environ import child_environ, plugin_setting, restart_count, setting
    from torchyard._errors import (
        LockError,
        ManifestError,
        MaturityError,
        PolicyError,
        TorchyardError,
        TransformError,
        UnknownContractError,
        UnsupportedError,
    )
    from torchyard._implementation import Implementation
    from torchyard._lock import DecisionChange, DecisionDump, diff_dumps, read_dump
    from torchyard._manifest import Manifest
    from torchyard._maturity import Feature, PrototypeWarning, Stage, features, note_use
    from torchyard._measured import MeasuredFile, digest_of
    from torchyard._operators import Operators
    from torchyard._platform import Platform, cpu_model, probe_platform
    from torchyard._plugin import Plugin, PluginSource, PluginState
    from torchyard._policy import Policy
    from torchyard._registry import Registry, registry, resolve, use
    from torchyard._resolver import decide, require
    from torchyard._transforms import active_transform, differentiable_jvp, is_batch_of_gradients
    from torchyard._uncompiled import uncompiled
    from torchyard._verdict import ReasonCode, Verdict
    from torchyard._workload import SpeedLimits, Workload
    from torchyard.hookspecs import hookimpl

_HOMES = {
    "Candidate": "_decision",
    "Check": "_check",
    "CheckStatus": "_check",
    "Claim": "_claim",
    "ContractDefinition": "_contract",
    "ContractId": "_contract",
    "Decision": "_decision",
    "DecisionChange": "_lock",
    "DecisionDump": "_lock",
    "DeviceStatus": "_device",
    "Feature": "_maturity",
    "Implementation": "_implementation",
    "LockError": "_errors",
    "Manifest": "_manifest",
    "ManifestError": "_errors",
    "MaturityError": "_errors",
    "MeasuredFile": "_measured",
    "Operators": "_operators",
    "Outcome": "_decision",
    "Platform": "_platform",
    "Plugin": "_plugin",
    "PluginDeprecationWarning": "_deprecation",
    "PluginSource": "_plugin",
    "PluginState": "_plugin",
    "Policy": "_policy",
    "PolicyError": "_errors",
    "PrototypeWarning": "_maturity",
    "ReasonCode": "_verdict",
    "Registry": "_registry",
    "Request": "_contract",
    "RequestField": "_contract",
    "Source": "_decision",
    "SpeedLimits": "_workload",
    "Stage": "_maturity",
    "TorchyardError": "_errors",
    "TransformError": "_errors",
    "UnknownContractError": "_errors",
    "UnsupportedError": "_errors",
    "Verdict": "_verdict",
    "Workload": "_workload",
    "active_transform": "_transforms",
    "child_environ": "_environ",
    "cpu_model": "_platform",
    "decide": "_resolver",
    "diff_dumps": "_lock",
    "differentiable_jvp": "_transforms",
    "digest_of": "_measured",
    "features": "_maturity",
    "hookimpl": "hookspecs",
    "is_batch_of_gradients": "_transforms",
    "note_use": "_maturity",
    "plugin_setting": "_environ",
    "probe_platform": "_platform",
    "read_dump": "_lock",
    "registry": "_registry",
    "require": "_resolver",
    "resolve": "_registry",
    "restart_count": "_environ",
    "setting": "_environ",
    "uncompiled": "_uncompiled",
    "use": "_registry",
}

__all__ = [
    "Candidate",
    "Check",
    "CheckStatus",
    "Claim",
    "ContractDefinition",
    "ContractId",
    "Decision",
    "DecisionChange",
    "DecisionDump",
    "DeviceStatus",
    "Feature",
    "Implementation",
    "LockError",
    "Manifest",
    "ManifestError",
    "MaturityError",
    "MeasuredFile",
    "Operators",
    "Outcome",
    "Platform",
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
    "diff_dumps",
    "differentiable_jvp",
    "digest_of",
    "features",
    "hookimpl",
    "is_batch_of_gradients",
    "note_use",
    "plugin_setting",
    "probe_platform",
    "read_dump",
    "registry",
    "require",
    "resolve",
    "restart_count",
    "setting",
    "uncompiled",
    "use",
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
