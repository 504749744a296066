"""accelerate: what users call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from torchyard import arguments
from torchyard_kernels._accelerate._gain import measured_gain
from torchyard_kernels._accelerate._plan import Plan
from torchyard_kernels._accelerate._replace import Packing, make
from torchyard_kernels._accelerate._report import Accelerated, AccelerateError, Report
from torchyard_kernels.linear.contract import PANEL_COLUMNS
from torchyard_kernels.linear.contract.quantised import GROUPS, QUANTISED_COLUMNS

__all__ = ["accelerate"]

_WEIGHTS = ("bfloat16", "float16", "int8", "int4")


def accelerate(
    model: torch.nn.Module,
    *,
    weights: Literal["bfloat16", "float16", "int8", "int4"] | None = None,
    group_size: int | None = None,
    activation: Literal["int8"] | None = None,
    fuse: bool = True,
    cache: bool = True,
    skip: Sequence[str] = (),
    keep_originals: bool = True,
    measure: bool = True,
) -> Accelerated:
    """Pack the weights of a model's linear layers, in place, for inference.

    - The weight of every ``torch.nn.Linear``, and of every subclass that computes what it does,
      becomes a parameter in packed memory, of the same name and shape. One that an embedding shares
      stays, and is multiplied by through a packed copy that follows it.
    - With ``fuse``, projections to queries, keys and values of one input are multiplied at once,
      and so are the gate and the up projection of a gated layer, where a trial on three rows shows
      that it is one.
    - With ``cache``, a model of transformers appends to its key-value cache in place instead of by
      concatenation.

    Modules, hooks, names and ``state_dict()`` stay those of the model. Weights do not require
    gradients afterwards.

    Args:
        model: in evaluation (``model.eval()``), on any device that a packed weight may lie on.
        weights: ``"bfloat16"`` or ``"float16"``: packed in that dtype, which x is converted to and
            the result back from; ``"int8"`` or ``"int4"``: rounded, see
            :func:`torchyard_kernels.quantize`; None: packed in their own dtype.
        group_size, activation: as of :func:`torchyard_kernels.quantize`, for rounded weights.
        fuse, cache: see above.
        skip: names of modules that stay, each with all that is in it, such as ``"lm_head"``.
        keep_originals: whether the original weights stay in memory, for ``undo()``.
        measure: whether the gain is measured, which takes a tenth of a second or so.

    Returns:
        What was changed, what was not and why, and what it brought; and ``undo()``.

    Raises:
        TypeError: the model is no module, or a flag is no bool.
        AccelerateError: the model is in training, an argument does not fit, a name of ``skip`` is
            none of the model's, or the model was accelerated already. The model is unchanged.
    """
    of = "accelerate"
    fuse = arguments.boolean(of, "fuse", fuse)
    cache = arguments.boolean(of, "cache", cache)
    keep_originals = arguments.boolean(of, "keep_originals", keep_originals)
    measure = arguments.boolean(of, "measure", measure)
    _check(model, weights, group_size, activation, skip)
    options: dict[str, int] = {}
    if weights in ("int8", "int4"):
        options["activation"] = 0 if activation is None else 8
        if group_size is not None:
            options["group"] = group_size
    rounded = weights if weights in ("int8", "int4") else None
    dtype = None if weights is None or rounded else getattr(torch, weights)
    packing = Packing(rounded, dtype, tuple(options.items()))
    panel = QUANTISED_COLUMNS if rounded else PANEL_COLUMNS
    plan = Plan.of(model, tuple(skip), fuse, panel)
    try:
        made = make(plan, packing)
    except (TypeError, ValueError) as error:
        raise AccelerateError(f"accelerate: {error}; the model is unchanged") from error
    gain = measured_gain(made.pairs) if measure else None
    undo = made.put(model, cache=cache, keep=keep_originals)
    report = Report(
        weights or "their own dtype",
        tuple(made.changes),
        tuple(plan.skipped),
        gain,
        tuple(plan.unused),
    )
    return Accelerated(report, undo)


def _check(
    model: torch.nn.Module,
    weights: object,
    group_size: object,
    activation: object,
    skip: Sequence[str],
) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"accelerate: model: expected a torch.nn.Module, got {type(model).__name__}"
        )
    if model.training:
        raise AccelerateError(
            "accelerate: model: expected one in evaluation, got one in training; call model.eval()"
        )
    if weights is not None and (not isinstance(weights, str) or weights not in _WEIGHTS):
        known = ", ".join(repr(name) for name in _WEIGHTS)
        raise AccelerateError(f"accelerate: weights: expected {known} or None, got {weights!r}")
    if activation is not None and (not isinstance(activation, str) or activation != "int8"):
        raise AccelerateError(
            f"accelerate: activation: expected 'int8' or None, got {activation!r}"
        )
    if weights not in ("int8", "int4"):
        for name, value in (("group_size", group_size), ("activation", activation)):
            if value is not None:
                raise AccelerateError(
                    f"accelerate: {name}: goes with weights of 'int8' or 'int4', got {weights!r}"
                )
    if group_size is not None and group_size not in GROUPS:
        known = ", ".join(map(str, GROUPS))
        raise AccelerateError(
            f"accelerate: group_size: expected one of {known} or None, got {group_size!r}"
        )
    if isinstance(skip, str):
        raise AccelerateError(
            f"accelerate: skip: expected a sequence of names, got {skip!r}; write [{skip!r}]"
        )
    if not isinstance(skip, (list, tuple, set, frozenset)):
        raise arguments.wrong_kind("accelerate", "skip", "a sequence of names", skip)
    known_names = dict(model.named_modules())
    for name in skip:
        if not isinstance(name, str) or name not in known_names:
            raise AccelerateError(
                f"accelerate: skip: expected names of the model's modules, got {name!r}"
            )
