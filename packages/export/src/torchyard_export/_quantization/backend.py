"""torchao's part: its quantizers, observers and conversion, found by their names.

torchao is imported when a model is quantized, and not before. Tried on torchao 0.18.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Literal, cast

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

__all__ = ["ACTIVATIONS", "DEVICES", "Activations", "Backend", "QuantizationTarget", "backend_of"]

QuantizationTarget = Literal["x86", "xpu"]
Activations = Literal["static", "dynamic"]

ACTIVATIONS: Final = ("static", "dynamic")
# Where a model may be. Calibration runs float kernels of torch: a CPU is enough for both.
DEVICES: Final = {"x86": ("cpu",), "xpu": ("cpu", "xpu")}

_REMEDY: Final = "pip install 'torchyard-export[pt2e]'"
_FLOW: Final = "torchao.quantization.pt2e.quantize_pt2e"
_QUANTIZERS: Final = "torchao.quantization.pt2e.quantizer"
_NAMES: Final = {
    "x86": (
        f"{_QUANTIZERS}.x86_inductor_quantizer",
        "X86InductorQuantizer",
        "get_default_x86_inductor_quantization_config",
    ),
    "xpu": (
        f"{_QUANTIZERS}.xpu_inductor_quantizer",
        "XPUInductorQuantizer",
        "get_default_xpu_inductor_quantization_config",
    ),
}
# By function, since the quantizer's global configuration takes products of two activations too,
# which have no int8 kernel: they would lose digits and time.
_STATIC: Final[tuple[Callable[..., Any], ...]] = (
    *(F.linear, F.conv1d, F.conv2d),
    # These hand int8 on from layer to layer.
    *(F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, torch.cat, torch.flatten),
)
# Inductor has dynamic int8 kernels for these alone.
_DYNAMIC: Final[tuple[Callable[..., Any], ...]] = (F.linear,)
_LEAST_SCALE: Final = torch.finfo(torch.float32).eps


@dataclass(frozen=True, slots=True)
class Backend:
    """The functions of torchao's flow for a target.

    Attributes:
        prepare: recorded graph -> the same with observers.
        convert: calibrated graph -> the same with int8 weights and rounded activations.
        version: torchao's.
    """

    prepare: Callable[[GraphModule], GraphModule]
    convert: Callable[[GraphModule], GraphModule]
    version: str


def backend_of(
    target: QuantizationTarget, activations: Activations, keep: Iterable[str]
) -> Backend:
    """Return torchao's flow for a target.

    Args:
        target: whose quantizer.
        activations: whether their scales are of calibration or of each call.
        keep: names of modules that stay in float.

    Raises:
        ImportError: torchao is absent, or lacks a part that is named; says what to install.
    """
    module, quantizer, configuration = _NAMES[target]
    prepare, convert = (_part(_FLOW, name) for name in ("prepare_pt2e", "convert_pt2e"))
    make, configured = _part(module, quantizer)(), _part(module, configuration)
    config = _finer(configured() if activations == "static" else configured(is_dynamic=True))
    for name in keep:
        make.set_module_name_qconfig(name, None)
    for function in _STATIC if activations == "static" else _DYNAMIC:
        make.set_function_type_qconfig(function, config)

    def marked(graph: GraphModule) -> GraphModule:
        # A layer whose output nobody reads is an IndexError in torchao's search for patterns.
        graph.graph.eliminate_dead_code()
        with warnings.catch_warnings():
            # It says so of each pooling layer between float ones.
            warnings.filterwarnings("ignore", "The input of maxpool2d is not quantized")
            return cast(GraphModule, prepare(graph, make))

    return Backend(
        marked,
        lambda graph: cast(GraphModule, convert(graph)),
        _version(),
    )


def _finer(config: Any) -> Any:
    """Let scales be as small as float32 has them.

    torchao's least is 2**-12: weights of a channel that are all below 0.03 would lose digits.
    """
    specs = {}
    for name in ("input_activation", "output_activation", "weight"):
        spec = getattr(config, name)
        given = spec.observer_or_fake_quant_ctr.p
        observer = given.func.with_args(**{**given.keywords, "eps": _LEAST_SCALE})
        specs[name] = replace(spec, observer_or_fake_quant_ctr=observer)
    return replace(config, **specs)


def _part(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torchao":
            raise
        if error.name == "torchao":
            text = f"quantize: expected the package 'torchao', found none; {_REMEDY}"
            raise ImportError(text, name="torchao") from error
        raise _lacking(module) from error
    except AttributeError as error:
        raise _lacking(f"{module}.{name}") from error


def _lacking(part: str) -> ImportError:
    text = f"quantize: expected a torchao with {part}, got torchao {_version()}; {_REMEDY}"
    return ImportError(text, name="torchao")


def _version() -> str:
    try:
        return version("torchao")
    except PackageNotFoundError:
        return "without metadata"
