"""Assumptions in a recorded program that its model does not make."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node

from torchyard_export._audit.parity import Runner, compare
from torchyard_export._audit.reference import Case, ModelRefusal, Reference
from torchyard_export._audit.reference import copied as copy_of
from torchyard_export._call import Call
from torchyard_export._capture.frames import is_users, raising_line
from torchyard_export._capture.observer import Observer
from torchyard_export._capture.recurrent import recording
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._torch_compat import FakeTensorMode
from torchyard_export._tree import flatten, map_leaves, structure, unflatten

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')
# Devices that a program is not recorded on; nothing runs on them. What the first cannot show,
# because a build without it lacks a function, the second may.
_ELSEWHERE: Final = ("cuda", "meta")
_MIXED: Final = re.compile(r"two different devices|on the same device|devices? .* but got", re.I)


def audit_program(program: ExportedProgram) -> list[Finding]:
    """Judge a program's graph: what it changes, draws, and widens."""
    findings = []
    signature = program.graph_signature
    for name in signature.user_inputs_to_mutate.values():
        text = f"the program changes its input {name!r}"
        findings.append(Finding(FindingKind.INPUT_MUTATION, text))
    for name in signature.buffers_to_mutate.values():
        text = f"the program changes the buffer {name!r}"
        findings.append(Finding(FindingKind.STALE_BUFFER, text))
    for node in program.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded not in tags:
            continue
        name = str(node.target)
        if "dropout" in name:
            if _dropout_is_on(node):
                text = f"{name} stays on in the program"
                findings.append(Finding(FindingKind.TRAINING_BEHAVIOUR, text, node_line(node)))
        elif not _draws_nothing(node):
            text = f"{name} draws other numbers at every call"
            findings.append(Finding(FindingKind.RANDOM_STATE, text, node_line(node)))
    return findings + _promotions(program)


def node_line(node: Node) -> str:
    """Return the user's innermost line that a node was recorded at."""
    trace = str(node.meta.get("stack_trace") or "")
    lines = [f"{name}:{number}" for name, number in _FRAME.findall(trace) if is_users(name)]
    return lines[-1] if lines else ""


def audit_layout(
    reference: Reference, case: Case, runner: Runner, observer: Observer
) -> list[Finding]:
    """Give inputs whose elements lie in another order; a program must do what the model does."""
    for change in (_transposed, _spread):
        arguments = map_leaves(case.arguments, change)
        try:
            expected = reference.case(case.sizes, arguments)
        except ModelRefusal:
            # What the model itself refuses, no program promises.
            continue
        # Made again: the model may change what it is given.
        leaves = [leaf for _, leaf in flatten(map_leaves(case.arguments, change))]
        try:
            with torch.no_grad():
                wrong = compare(expected, list(runner(leaves))).wrong
        except Exception as error:
            wrong = f"raised {type(error).__name__}: {str(error)[:200]}"
        if wrong:
            how = change.__name__.strip("_")
            text = f"with a {how} input the model and its program differ: {wrong}"
            where = observer.layouts[-1] if observer.layouts else ""
            return [Finding(FindingKind.LAYOUT_ASSUMPTION, text, where)]
    return []


@torch.no_grad()
def audit_device(model: nn.Module, call: Call, case: Case) -> tuple[list[Finding], str]:
    """Move a fake copy of the model and of a call elsewhere: everything must go there.

    Returns:
        Findings, and why nothing could be concluded; empty where something could.
    """
    note = ""
    for device in _ELSEWHERE:
        findings, note = _moved_to(device, model, call, case)
        if not note:
            return findings, ""
    return [], note


def _moved_to(device: str, model: nn.Module, call: Call, case: Case) -> tuple[list[Finding], str]:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    copied = copy_of(model)
    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()):

        def moved(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=device)

        state = {
            **{name: moved(item) for name, item in copied.named_parameters(remove_duplicate=False)},
            **{name: moved(item) for name, item in copied.named_buffers(remove_duplicate=False)},
        }
        lengths = {id(leaf) for _, leaf in flatten(case.arguments) if _stays_on_the_host(leaf)}
        arguments = unflatten(
            structure(case.arguments),
            [
                torch.empty_like(leaf) if id(leaf) in lengths else moved(leaf)
                for _, leaf in flatten(case.arguments)
            ],
        )
        args, kwargs = call.spread(arguments)
        try:
            with warnings.catch_warnings(), recording(), Observer():
                # Of a build without the libraries of a device that nothing runs on.
                warnings.simplefilter("ignore")
                outputs = torch.func.functional_call(copied, state, args, kwargs, strict=False)
        except Exception as error:
            if _MIXED.search(str(error)):
                text = f"on another device the model mixes devices: {str(error)[:200]}"
                return [Finding(FindingKind.BAKED_DEVICE, text, raising_line(error))], ""
            return [], f"not judged: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    stayed = [
        path or "the output"
        for path, leaf in flatten(outputs)
        if isinstance(leaf, Tensor) and leaf.device.type != device and not _stays_on_the_host(leaf)
    ]
    if stayed:
        text = f"on another device {', '.join(stayed)} stays on the CPU"
        return [Finding(FindingKind.BAKED_DEVICE, text)], ""
    return [], ""


def _stays_on_the_host(leaf: Any) -> bool:
    # Lengths of a packed sequence are on the CPU by torch's own rule.
    return isinstance(leaf, Tensor) and leaf.dtype == torch.int64 and leaf.dim() <= 1


def _promotions(program: ExportedProgram) -> list[Finding]:
    own = {
        tensor.dtype
        for tensor in [*program.state_dict.values(), *_inputs(program)]
        if isinstance(tensor, Tensor) and tensor.is_floating_point()
    }
    if not own:
        return []
    widest = max(torch.finfo(dtype).bits for dtype in own)
    outputs = next(node for node in program.graph.nodes if node.op == "output")
    wide = [node for node in outputs.all_input_nodes if _bits(node) > widest]
    if not wide:
        return []
    first = next(
        node for node in program.graph.nodes if node.op == "call_function" and _bits(node) > widest
    )
    text = (
        f"output {wide[0].name} is {wide[0].meta['val'].dtype}, and the model and its inputs are "
        f"{', '.join(sorted(map(str, own)))}"
    )
    return [Finding(FindingKind.DTYPE_PROMOTION, text, node_line(first))]


def _inputs(program: ExportedProgram) -> Sequence[Any]:
    names = set(program.graph_signature.user_inputs)
    return [node.meta.get("val") for node in program.graph.nodes if node.name in names]


def _bits(node: Node) -> int:
    value = node.meta.get("val")
    if isinstance(value, Tensor) and value.is_floating_point():
        return torch.finfo(value.dtype).bits
    return 0


def _dropout_is_on(node: Node) -> bool:
    given = _named(node)
    return bool(given.get("train", given.get("training", True))) and bool(given.get("p", 1.0))


def _draws_nothing(node: Node) -> bool:
    # Attention and recurrent layers draw for their dropout alone.
    given = _named(node)
    return "dropout_p" in given and not given["dropout_p"]


def _named(node: Node) -> Mapping[str, Any]:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return dict(node.kwargs)
    named = {item.name: item.default_value for item in schema.arguments if item.has_default_value()}
    named.update(zip((item.name for item in schema.arguments), node.args, strict=False))
    return {**named, **node.kwargs}


def _transposed(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor) or leaf.dim() < 2:
        return leaf.clone() if isinstance(leaf, Tensor) else leaf
    return leaf.transpose(0, 1).contiguous().transpose(0, 1)


def _spread(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor) or leaf.dim() < 2:
        return leaf.clone() if isinstance(leaf, Tensor) else leaf
    wide = leaf.new_zeros(*leaf.shape[:-1], 2 * leaf.shape[-1])
    wide[..., ::2] = leaf
    return wide[..., ::2]
