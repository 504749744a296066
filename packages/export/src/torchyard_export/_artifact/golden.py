"""Golden calls: inputs and right outputs that travel with an artifact, as safetensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import safetensors
import safetensors.torch
from torch import Tensor

from torchyard_export._audit.reference import Case
from torchyard_export._errors import ArtifactError
from torchyard_export._tree import flatten, restored

# Elements of all golden calls together; the recorded one is always kept.
_LIMIT: Final = 4 << 20


def choose(cases: Sequence[Case]) -> list[Case]:
    """Return the cases to keep: in their order, as long as they are small together."""
    kept: list[Case] = []
    room = _LIMIT
    for case in cases:
        size = sum(leaf.numel() for leaf in _tensors(case))
        if not kept or size <= room:
            kept.append(case)
            room -= size
    return kept


def write_golden(cases: Sequence[Case]) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the tensors of cases as safetensors, and what else is known of each, as plain data."""
    tensors: dict[str, Tensor] = {}
    entries = []
    for number, case in enumerate(cases):
        inputs = [leaf for _, leaf in flatten(case.arguments)]
        outputs = [leaf for _, leaf in case.outputs]
        parts = {"in": inputs, "out": outputs, "exact": case.exact}
        plain: dict[str, list[Any]] = {}
        for part, leaves in parts.items():
            plain[part] = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            for index, leaf in enumerate(leaves):
                if isinstance(leaf, Tensor):
                    # Copies: safetensors refuses tensors that share memory.
                    tensors[f"{number}.{part}.{index}"] = leaf.detach().cpu().clone().contiguous()
        entries.append({"sizes": case.sizes, "bounds": case.bounds, "plain": plain})
    return safetensors.torch.save(tensors), entries


def read_golden(
    data: bytes,
    entries: Sequence[dict[str, Any]],
    inputs: Any,
    devices: Sequence[str],
    outputs: Any,
    names: Sequence[str],
) -> list[Case]:
    """Return the cases of an artifact.

    Args:
        data: the safetensors.
        entries: what the manifest says of each case.
        inputs: the structure of the arguments.
        devices: of each leaf of them; empty: the CPU.
        outputs: the structure of the outputs.
        names: the path of each output.

    Raises:
        ArtifactError: a tensor is missing or a form is wrong, or there is no such device.
    """
    try:
        tensors = safetensors.torch.load(data)
        cases = []
        for number, entry in enumerate(entries):
            parts = {
                part: [
                    tensors.get(f"{number}.{part}.{index}", value)
                    for index, value in enumerate(entry["plain"][part])
                ]
                for part in ("in", "out", "exact")
            }
            arguments = restored(inputs, list(map(_placed, parts["in"], devices)))
            sizes = {str(key): int(value) for key, value in entry["sizes"].items()}
            bounds = [float(bound) for bound in entry["bounds"]]
            labelled = list(zip(names, parts["out"], strict=True))
            cases.append(Case(sizes, arguments, labelled, parts["exact"], bounds, outputs))
    except (safetensors.SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"golden calls: {type(error).__name__}: {error}") from error
    return cases


def _placed(leaf: Any, device: str) -> Any:
    """Return an input on the device that it was recorded on."""
    if not isinstance(leaf, Tensor) or not device:
        return leaf
    try:
        return leaf.to(device)
    except (AssertionError, ImportError, NotImplementedError, RuntimeError) as error:
        line = (str(error).strip().splitlines() or [""])[0]
        raise ArtifactError(
            f"golden calls: expected the device {device}, on which the program was recorded; this "
            f"torch says: {line}"
        ) from error


def _tensors(case: Case) -> list[Tensor]:
    leaves = [leaf for _, leaf in [*flatten(case.arguments), *case.outputs]]
    return [leaf for leaf in [*leaves, *case.exact] if isinstance(leaf, Tensor)]
