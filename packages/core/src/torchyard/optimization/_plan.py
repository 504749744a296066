"""A plan: what was kept for a model, for another process or machine to apply without trials."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torchyard import arguments
from torchyard._errors import PlanError
from torchyard._platforms.platform import cpu_model

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Plan", "PlanStep", "described_machine", "described_model", "read_plan"]

_SCHEMA: Final = 1
# Of a plan's file; ours are a kilobyte.
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A variant of a plugin's optimization.

    Attributes:
        plugin, version: whose, and the version of its distribution.
        optimization, variant: their names.
    """

    plugin: str
    version: str
    optimization: str
    variant: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What was kept of the trials for a model.

    Attributes:
        goal: that it was made for.
        model: the class and a digest of the names, shapes and dtypes of parameters and buffers.
        machine: what the measurements depend on, by name: torch, processor, accelerator.
        steps: in order.
        seconds_before, seconds_after: of a call of the example where the plan was made.
        schema: of the file.
    """

    goal: str
    model: Mapping[str, str]
    machine: Mapping[str, str]
    steps: tuple[PlanStep, ...]
    seconds_before: float
    seconds_after: float
    schema: int = _SCHEMA

    def save(self, path: str | Path) -> None:
        """Write the plan to a file, as JSON."""
        text = json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"
        arguments.path("Plan.save", "path", path).write_text(text, encoding="utf-8")

    def check(self, model: nn.Module, *, elsewhere: bool) -> None:
        """Raise PlanError where the plan is not for a model, or not for this machine."""
        _compare("model", self.model, described_model(model), "")
        if not elsewhere:
            remedy = "; make a plan here, or apply it with elsewhere=True"
            _compare("machine", self.machine, described_machine(model), remedy)


def read_plan(path: str | Path) -> Plan:
    """Return the plan that a file holds.

    Raises:
        TypeError, ValueError: ``path`` is none.
        PlanError: the file cannot be read, or is no plan; says where in it.
    """
    from torchyard.evidence import EvidenceError
    from torchyard.evidence.documents import parse_json, structure
    from torchyard.evidence.files import read_file

    found = arguments.path("read_plan", "path", path)
    try:
        data = parse_json(read_file(found, _MOST_BYTES), str(found))
        plan = structure(data, Plan, str(found))
    except (OSError, EvidenceError) as error:
        raise PlanError(
            f"read_plan: path: expected a file that Plan.save wrote, got {found}: {error}"
        ) from error
    if plan.schema != _SCHEMA:
        raise PlanError(
            f"{found}: schema: expected {_SCHEMA}, got {plan.schema}; make the plan again"
        )
    return plan


def described_model(model: nn.Module) -> dict[str, str]:
    """Return a model's class, and a digest of what its tensors are called and look like."""
    digest = hashlib.sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(f"{name} {list(tensor.shape)} {tensor.dtype}\n".encode())
    kind = type(model)
    return {"class": f"{kind.__module__}.{kind.__qualname__}", "tensors": digest.hexdigest()}


def described_machine(model: nn.Module) -> dict[str, str]:
    """Return what measurements of a model depend on, by name."""
    from torchyard._registry.registry import registry

    device = next((tensor.device.type for tensor in model.parameters()), "cpu")
    platform = registry().platform
    accelerator = platform.accelerator(device)
    features = " ".join(sorted(platform.cpu_features)).encode()
    return {
        "torch": platform.torch or "",
        "processor": f"{platform.machine} {cpu_model()}",
        "processor features": hashlib.sha256(features).hexdigest()[:16],
        "cores": str(platform.cpu_cores),
        "device": device,
        "accelerator": "" if accelerator is None else accelerator.name,
    }


def _compare(what: str, wanted: Mapping[str, str], found: Mapping[str, str], remedy: str) -> None:
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise PlanError(
                f"plan: {what}: {name}: expected {wanted.get(name, 'nothing')!r}, got "
                f"{found.get(name, 'nothing')!r}{remedy}"
            )
