"""The errors that torchyard raises on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchyard._registry.decision import Decision


class TorchyardError(Exception):
    """Base of every error that torchyard raises on purpose."""


class ManifestError(TorchyardError):
    """A plugin's manifest is missing, unreadable, or says something that is not allowed."""


class PolicyError(TorchyardError, ValueError):
    """A policy (argument, context, environment, configuration or lock) cannot be understood."""


class MaturityError(TorchyardError):
    """A maturity table is inconsistent, or a feature is asked for that it does not list."""


class LockError(TorchyardError):
    """A file of decisions is missing, unreadable, or of another schema."""


class PlatformError(TorchyardError, ValueError):
    """A file that describes a machine is missing, unreadable, or says something not allowed."""


class NotApplicableError(TorchyardError, ValueError):
    """An optimization does not apply to a model; the message says why."""


class OptimizeError(TorchyardError, RuntimeError):
    """A model cannot be optimized, or given back, as asked; the message says why."""


class PlanError(TorchyardError, ValueError):
    """A plan cannot be read, or is not for this model, machine or installation; says which."""


class UnknownContractError(TorchyardError, LookupError):
    """No installed component defines the contract that was asked for."""


class UnknownPluginError(TorchyardError, LookupError):
    """No plugin of the name that was asked for is installed."""


class TransformError(TorchyardError, NotImplementedError):
    """A transform of torch.func, or forward-mode differentiation, does not apply to a call.

    The message names what was called, the transform, and what to do instead.
    """


class UnsupportedError(TorchyardError, RuntimeError):
    """No implementation computes a request. The message holds the whole trace.

    Attributes:
        decision: the decision, with ``chosen`` None and one candidate per implementation.
    """

    def __init__(self, message: str, decision: Decision) -> None:
        super().__init__(message)
        self.decision = decision
