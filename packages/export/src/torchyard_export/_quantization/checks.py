"""Checks of what a model is quantized by; each message names argument, expected, got, remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from torchyard import arguments
from torchyard_export._capture.packed import has_packed
from torchyard_export._quantization.backend import (
    ACTIVATIONS,
    DEVICES,
    Activations,
    QuantizationTarget,
)
from torchyard_export._tree import flatten, structure
from torchyard_export._work import Work

__all__ = ["check_calls", "check_model", "chosen"]

_OF: Final = "quantize"


def chosen(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    target: str,
    activations: str,
    keep: Sequence[str],
) -> tuple[QuantizationTarget, Activations, tuple[str, ...]]:
    """Check what is said of the model and its call; return target, activations and keep."""
    if isinstance(model, torch.jit.ScriptModule):
        raise arguments.wrong_kind(
            _OF, "model", "a torch.nn.Module", model, "pass the module that was scripted"
        )
    arguments.instance(_OF, "model", model, nn.Module, "a torch.nn.Module")
    if not isinstance(args, (list, tuple)) or isinstance(args, PackedSequence):
        raise arguments.wrong_kind(_OF, "args", "a call's arguments as (x,)", args)
    if kwargs is not None:
        arguments.instance(_OF, "kwargs", kwargs, Mapping)
    target = arguments.choice(_OF, "target", target, DEVICES)
    activations = arguments.choice(_OF, "activations", activations, ACTIVATIONS)
    if target == "xpu" and activations == "dynamic":
        raise arguments.wrong_value(
            *(_OF, "activations", "'static' for target 'xpu'", "'dynamic'"),
            "torchao's quantizer for Intel's GPUs has static scales alone",
        )
    keep = arguments.sequence(_OF, "keep", keep, arguments.text, expected="a list of names")
    modules = {name for name, _ in model.named_modules() if name}
    for name in keep:
        if name not in modules:
            raise arguments.wrong_value(
                *(_OF, "keep", "names of the model's modules", repr(name)),
                f"the model has {', '.join(sorted(modules)[:8]) or 'none'}",
            )
    return cast(QuantizationTarget, target), cast(Activations, activations), keep


def check_calls(calibration: object, evaluation: object, activations: Activations) -> None:
    """Check that calls are iterables, and that there are those that scales are found by."""
    for name, given in (("calibration", calibration), ("evaluation", evaluation)):
        single = isinstance(given, (Tensor, Mapping, str)) or not isinstance(given, Iterable)
        if given is not None and single:
            raise arguments.wrong_kind(_OF, name, "an iterable of calls, such as [(x,)]", given)
    if calibration is None and activations == "static":
        raise arguments.wrong_value(
            *(_OF, "calibration", "calls that static scales are found by", "none"),
            "pass calibration=[(x,), ...], or activations='dynamic'",
        )


def check_model(model: nn.Module, work: Work, target: QuantizationTarget) -> None:
    """Check the model's device, its dtype, and its inputs'."""
    if work.device not in DEVICES[target]:
        raise arguments.wrong_value(
            *(_OF, "model", f"a model on {' or '.join(DEVICES[target])} for target {target!r}"),
            *(f"one on {work.device}", "move it with model.to('cpu')"),
        )
    if has_packed(structure(work.call.arguments)):
        raise arguments.wrong_kind(
            *(_OF, "args", "tensors", PackedSequence),
            "pad packed sequences first; recurrent layers stay in float anyway",
        )
    tensors = [*model.named_parameters(), *model.named_buffers(), *flatten(work.call.arguments)]
    for name, tensor in tensors:
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            continue
        if tensor.dtype != torch.float32:
            raise arguments.wrong_value(
                *(_OF, "model", "float32 weights and inputs", f"{tensor.dtype} in {name}"),
                "the quantizers round float32: call model.float(), and convert the inputs",
            )
