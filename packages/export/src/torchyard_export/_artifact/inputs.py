"""Whether a call's inputs are what an artifact's manifest says."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from torchyard import arguments
from torchyard_export._artifact.manifest import Leaf
from torchyard_export._capture.dimension import Dimension
from torchyard_export._errors import InputError
from torchyard_export._tree import flatten, shown, structure


class Described(Protocol):
    """What is said of a call's inputs: a manifest, or what will be one."""

    @property
    def signature(self) -> inspect.Signature: ...
    @property
    def inputs(self) -> tuple[Leaf, ...]: ...
    @property
    def input_form(self) -> Any: ...
    @property
    def dimensions(self) -> Mapping[str, Dimension]: ...
    @property
    def device(self) -> str: ...


def bind_inputs(manifest: Described, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the leaves of a call's inputs.

    Raises:
        TypeError: the call has other parameters.
        InputError: names the input, what was expected and what came.
    """
    bound = manifest.signature.bind(*args, **kwargs)
    arguments = dict(bound.arguments)
    if structure(arguments) != manifest.input_form:
        raise InputError(
            f"inputs: expected {shown(manifest.input_form)}, got {shown(structure(arguments))}"
        )
    leaves = [leaf for _, leaf in flatten(arguments)]
    check_leaves(manifest, leaves)
    return leaves


def check_leaves(manifest: Described, leaves: Sequence[Any]) -> None:
    """Check the dtype and sizes of each leaf; see :func:`bind_inputs`."""
    sizes: dict[str, tuple[int, str]] = {}
    for wanted, leaf in zip(manifest.inputs, leaves, strict=True):
        if not wanted.dtype:
            if isinstance(leaf, Tensor) or leaf != wanted.value:
                raise InputError(
                    f"input {wanted.name}: expected {wanted.value!r}, which the program holds; got "
                    f"{leaf!r}"
                )
            continue
        _check_tensor(manifest, wanted, leaf, sizes)


def _check_tensor(
    manifest: Described, wanted: Leaf, leaf: Any, sizes: dict[str, tuple[int, str]]
) -> None:
    place = f"input {wanted.name}"
    if not isinstance(leaf, Tensor):
        raise InputError(f"{place}: expected a tensor, got {type(leaf).__name__}")
    try:
        # Before its sizes are read, which some layouts do not have.
        arguments.tensor("Artifact", place, leaf)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from None
    dtype = str(leaf.dtype).removeprefix("torch.")
    if dtype != wanted.dtype:
        raise InputError(
            f"{place}: expected {wanted.dtype}, got {dtype}; a program has one dtype, so convert "
            "the input or export the model in this one"
        )
    if leaf.dim() != len(wanted.shape):
        raise InputError(
            f"{place}: expected {len(wanted.shape)} dimensions, got shape {tuple(leaf.shape)}"
        )
    for axis, (size, got) in enumerate(zip(wanted.shape, leaf.shape, strict=True)):
        if isinstance(size, str):
            known, where = sizes.setdefault(size, (got, f"{wanted.name}[{axis}]"))
            dimension = manifest.dimensions[size]
            if got < dimension.min or (dimension.max is not None and got > dimension.max):
                raise InputError(f"{place}: axis {axis}: expected {dimension}, got {got}")
            if got != known:
                raise InputError(
                    f"{place}: axis {axis}: expected {size} = {known} as in {where}, got {got}"
                )
        elif got != size:
            raise InputError(f"{place}: axis {axis}: expected {size}, got {got}")
    # Code that was compiled for a device reads its memory, whatever it is given.
    allowed = (wanted.device,) if wanted.device else (manifest.device, "cpu")
    if leaf.device.type not in allowed:
        raise InputError(
            f"{place}: expected a tensor on {allowed[0]}, got one on {leaf.device.type}; move it "
            f"with .to({allowed[0]!r}), or export the model with inputs on that device"
        )
