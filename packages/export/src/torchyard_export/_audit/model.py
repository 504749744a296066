"""Behaviour of the model that no program can have: found on a copy, before recording."""

from __future__ import annotations

import dis
import random
import re
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from torchyard_export._audit.reference import copied as copy_of
from torchyard_export._call import Call
from torchyard_export._capture.frames import calling_line, is_users, raising_line
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._torch_compat import version_of
from torchyard_export._tree import flatten, map_leaves, packed_in


class _Watch(TorchFunctionMode):
    """Record the lines that change tensors in place or draw random numbers."""

    def __init__(self, watched: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._versions = {name: (tensor, version_of(tensor)) for name, tensor in watched.items()}
        self._state = torch.get_rng_state()
        self.changed: dict[str, str] = {}
        self.random = ""
        self.drawing = ""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for name, (tensor, version) in self._versions.items():
            if name not in self.changed and version_of(tensor) != version:
                self.changed[name] = calling_line()
        if not self.random and not torch.equal(self._state, torch.get_rng_state()):
            self.random = calling_line()
            self.drawing = getattr(func, "__name__", "")
        return found


@torch.no_grad()
def audit_model(model: nn.Module, call: Call, arguments: Mapping[str, Any]) -> list[Finding]:
    """Judge a model by what two calls of a copy do, and by what its code reads.

    The random states of torch and Python are put back.
    """
    findings = _training(model)
    copied = copy_of(model)
    fixed = {name: _plain(module) for name, module in copied.named_modules()}
    given = map_leaves(dict(arguments), _clone)
    state = {f"buffer {name}": tensor for name, tensor in copied.state_dict(keep_vars=True).items()}
    inputs = {f"input {n}": leaf for n, leaf in flatten(given) if isinstance(leaf, Tensor)}
    inputs |= {f"input {path}": packed.data for path, packed in packed_in(given)}
    before = random.getstate()
    rng = torch.get_rng_state()
    watch = _Watch({**state, **inputs})
    try:
        args, kwargs = call.spread(given)
        with watch:
            first = copied(*args, **kwargs)
        python_random = random.getstate() != before
        args, kwargs = call.spread(map_leaves(dict(arguments), _clone))
        second = copied(*args, **kwargs)
    except Exception as error:
        text = f"the model itself refuses its inputs: {type(error).__name__}: {str(error)[:400]}"
        return [*findings, Finding(FindingKind.MODEL_REFUSES, text, raising_line(error))]
    finally:
        random.setstate(before)
        torch.set_rng_state(rng)
    for name, line in watch.changed.items():
        kind = FindingKind.INPUT_MUTATION if name.startswith("input") else FindingKind.STALE_BUFFER
        findings.append(Finding(kind, f"forward changes {name} in place", line))
    if watch.random and "dropout" in watch.drawing:
        text = "dropout stays on, although the model is in evaluation mode"
        if not findings:
            findings.append(Finding(FindingKind.TRAINING_BEHAVIOUR, text, watch.random))
    elif watch.random:
        text = "forward draws from torch's random generator"
        findings.append(Finding(FindingKind.RANDOM_STATE, text, watch.random))
    elif python_random:
        text = "forward draws from Python's random: the program would hold the number drawn"
        findings.append(Finding(FindingKind.RANDOM_STATE, text, _forward_line(model)))
    findings += _attributes(model, copied, fixed)
    findings += _globals(model)
    if not findings and not _same(first, second):
        text = "two calls with the same inputs give different outputs"
        findings.append(Finding(FindingKind.STALE_BUFFER, text, _forward_line(model)))
    return findings


def _training(model: nn.Module) -> list[Finding]:
    trained = [(name or "the model", module) for name, module in model.named_modules()]
    first = next(((n, m) for n, m in trained if m.training), None)
    if first is None:
        return []
    drops = next((n for n, m in trained if m.training and float(getattr(m, "p", 0) or 0)), first[0])
    text = f"{drops} is in training mode: dropout and batch statistics stay on"
    return [Finding(FindingKind.TRAINING_BEHAVIOUR, text)]


def _plain(module: nn.Module) -> dict[str, Any]:
    hidden = {"_parameters", "_buffers", "_modules", "_flat_weights", "_flat_weight_refs"}
    return {key: value for key, value in vars(module).items() if key not in hidden}


def _attributes(
    model: nn.Module, copied: nn.Module, before: Mapping[str, dict[str, Any]]
) -> list[Finding]:
    findings = []
    for name, module in copied.named_modules():
        for key, value in _plain(module).items():
            old = before.get(name, {})
            if key in old and (old[key] is value or _equal(old[key], value)):
                continue
            path = f"{name}.{key}" if name else key
            text = f"forward sets self.{path}, and a program keeps no such state"
            findings.append(Finding(FindingKind.STALE_BUFFER, text, _store_line(module, key)))
    return findings


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        return False
    try:
        return type(left) is type(right) and bool(left == right)
    except Exception:  # comparing is the user's own code; what cannot be compared may have changed
        return False


def _store_line(module: nn.Module, attribute: str) -> str:
    for kind in type(module).__mro__:
        for item in vars(kind).values():
            code = getattr(item, "__code__", None)
            if code is None or not is_users(code.co_filename) or item.__name__ == "__init__":
                continue
            for step in dis.get_instructions(code):
                if step.opname == "STORE_ATTR" and step.argval == attribute and step.positions:
                    return f"{code.co_filename}:{step.positions.lineno}"
    return _forward_line(module)


def _forward_line(module: nn.Module) -> str:
    code = getattr(type(module).forward, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return ""
    return f"{code.co_filename}:{code.co_firstlineno}"


def _globals(model: nn.Module) -> list[Finding]:
    """Find variables outside of the model that the user's forward functions read."""
    findings: dict[tuple[str, str], Finding] = {}
    waiting = [type(module).forward for module in model.modules()]
    seen: set[Any] = set()
    while waiting:
        function = waiting.pop()
        code = getattr(function, "__code__", None)
        if code is None or code in seen or not is_users(code.co_filename):
            continue
        seen.add(code)
        if _is_library(function):
            # A library's module variables are its own constants.
            continue
        for name, value, line in _reads(function):
            if isinstance(value, types.FunctionType):
                waiting.append(value)
            elif _is_data(value) and not name.isupper():
                text = f"forward reads the variable {name!r} ({_shown(value)}) from outside of it"
                where = f"{code.co_filename}:{line}"
                findings.setdefault((name, where), Finding(FindingKind.HIDDEN_GLOBAL, text, where))
    return list(findings.values())


def _is_library(function: Any) -> bool:
    # This tree's packages are libraries wherever they lie, a checkout included.
    package = str(function.__module__).partition(".")[0]
    return "site-packages" in function.__code__.co_filename or bool(
        re.fullmatch(r"torchyard(_\w+)?", package)
    )


def _reads(function: Any) -> list[tuple[str, Any, int]]:
    scope = getattr(function, "__globals__", {})
    cells = dict(
        zip(
            function.__code__.co_freevars, getattr(function, "__closure__", None) or (), strict=True
        )
    )
    found = []
    for step in dis.get_instructions(function.__code__):
        line = step.positions.lineno if step.positions and step.positions.lineno else 0
        if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"} and step.argval in scope:
            found.append((step.argval, scope[step.argval], line))
        elif step.opname == "LOAD_DEREF" and step.argval in cells:
            try:
                found.append((step.argval, cells[step.argval].cell_contents, line))
            except ValueError:
                continue
    return found


def _is_data(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex, list, dict, set, Tensor))


def _shown(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:40]


def _same(first: Any, second: Any) -> bool:
    left, right = ([leaf for _, leaf in flatten(item)] for item in (first, second))
    return len(left) == len(right) and all(map(_same_leaf, left, right))


def _same_leaf(left: Any, right: Any) -> bool:
    if not (isinstance(left, Tensor) and isinstance(right, Tensor)):
        return left is right or _equal(left, right)
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(left.nan_to_num(), right.nan_to_num())


def _clone(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf
