"""PackedTensor: a layer's weight as a parameter whose memory is its packed form."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.linear._errors import PackedWriteError
from torchyard_kernels.linear._weights.packed_weight import CONVERTIBLE, PackedWeight
from torchyard_kernels.linear._weights.product import packed_linear, packed_product
from torchyard_kernels.linear._weights.storage import Held, Part
from torchyard_kernels.linear._weights.tensor_methods import METHODS, SETTERS

__all__ = ["PackedTensor", "packed_tensor"]

_aten: Final[Any] = torch.ops.aten
_ALIASES: Final = (_aten.detach.default, _aten.alias.default)
# What looks at a tensor's form alone.
_LIKE: Final = tuple(
    getattr(_aten, name).default
    for name in (
        *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
        *("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided"),
    )
)
_REFUSED: Final = ("aten::set_", "aten::resize_", "aten::resize_as_")
_linear: Final[Any] = torch.nn.functional.linear
_plain_functions: Final[Any] = torch._C.DisableTorchFunctionSubclass
_View = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], int | None]


class PackedTensor(Tensor):
    """A weight [N, K] of a linear layer, held in a packed layout.

    It has the shape and the dtype of the weight and can be used as any tensor: what reads it gets
    the numbers, unpacked anew, and what writes it, through views, ``.data`` or ``detach()`` as
    well, changes the one weight there is. ``torch.nn.functional.linear`` multiplies by the packed
    form.

    A weight that is rounded to a few bits is written as a whole (``copy_``, as
    ``load_state_dict`` does) and rounded anew; other writes raise :class:`PackedWriteError`.
    """

    _held: Held
    _views: tuple[_View, ...]
    _is_param: bool
    # Set by whoever gives the packed tensors to torch.export in the weight's place.
    inner_tensors_are_recorded: bool

    @staticmethod
    def __new__(  # noqa: PYI034 - of a static method
        cls: type[PackedTensor],
        held: Held,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: torch.dtype,
        views: tuple[_View, ...] = (),
        requires_grad: bool = False,
    ) -> PackedTensor:
        """Make an alias of a weight.

        Args:
            cls: the class.
            held: the weight.
            sizes, strides, dtype: what the tensor is to the outside.
            views: what leads from the weight to this tensor.
            requires_grad: as a tensor's.
        """
        # Modules swap parameters when they are moved, which an inference tensor does not allow.
        with torch.inference_mode(False):
            self: PackedTensor = Tensor._make_wrapper_subclass(
                cls,
                tuple(sizes),
                strides=tuple(strides),
                dtype=dtype,
                device=held.device,
                requires_grad=requires_grad,
            )
        self._held = held
        self._views = views
        return self

    def unpack(self) -> Tensor:
        """Return the numbers as a plain tensor."""
        return _seen(_to(self._held.dense(), self.dtype), self._views)

    @property
    def held(self) -> Held:
        """What every alias of the weight shares."""
        return self._held

    @property
    def packed_weight(self) -> PackedWeight:
        """The packed form."""
        part = self._held.part
        if part is None:
            raise PackedWriteError("PackedTensor: a plain tensor took the place of the packed form")
        return part.packed

    @property
    def format(self) -> str:
        """The name of the packed layout; ``plain`` where a plain tensor took its place."""
        part = self._held.part
        return "plain" if part is None else part.packed.format

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        parameter = "Parameter of " if getattr(self, "_is_param", False) else ""
        return (
            f"{parameter}PackedTensor({list(self.shape)}, dtype={self.dtype}, "
            f"device={self.device}, format={self.format!r})"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = self._copied(memo)
        return found

    def _copied(self, memo: dict[int, Any]) -> Tensor:
        parameter = getattr(self, "_is_param", False)
        if self._views or self._held.part is None:
            plain = self.unpack().detach().clone()
            return torch.nn.Parameter(plain, self.requires_grad) if parameter else plain
        held = Held(copy.deepcopy(self._held.part, memo))
        return packed_tensor(held, self.dtype, self.requires_grad, parameter)

    def __reduce_ex__(self, protocol: Any) -> Any:
        parameter = getattr(self, "_is_param", False)
        if self._views or self._held.part is None:
            plain: Any = self.unpack().detach()
            if parameter:
                plain = torch.nn.Parameter(plain, self.requires_grad)
            return plain.__reduce_ex__(protocol)
        return _rebuilt, (self._held.part, self.dtype, self.requires_grad, parameter)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        part = self._held.part
        if part is None:
            return ["packed_plain"], ("", self.dtype, self._views, OPERATORS.overload)
        names = [f"packed_{name}" for name in part.packed.names]
        # A graph on disk calls ops by the name that their sources gave.
        return names, (part.packed.spec_text, self.dtype, self._views, OPERATORS.overload)

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], context: Any, outer_size: Any, outer_stride: Any
    ) -> PackedTensor:
        spec, dtype, views, _ = context
        if spec:
            held = Held(Part(PackedWeight.of_tensors(spec, tuple(inner.values()))))
        else:
            held = Held(None, inner["packed_plain"])
        return PackedTensor(held, outer_size, outer_stride, dtype, views)

    def _stable_hash_for_caching(self) -> str:
        # By which torch finds a compiled graph on disk again.
        names, context = self.__tensor_flatten__()
        inner = [getattr(self, name) for name in names]
        forms = [(one.shape, one.dtype, one.device, one.requires_grad) for one in inner]
        text = f"{names} {context} {forms} {self.shape} {self.stride()} {self.requires_grad}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def packed_plain(self) -> Tensor | None:
        """The tensor in the place of the packed form."""
        return self._held.plain

    @property
    def packed_data(self) -> Tensor:
        """The packed form's tensor ``data``."""
        return self._inner("data")

    @property
    def packed_scale(self) -> Tensor:
        """The packed form's tensor ``scale``."""
        return self._inner("scale")

    @property
    def packed_zero(self) -> Tensor:
        """The packed form's tensor ``zero``."""
        return self._inner("zero")

    def _inner(self, name: str) -> Tensor:
        part = self._held.part
        if part is None:
            raise AttributeError(name)
        return part.packed.get_buffer(name)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.compiler.is_compiling():
            if func is _linear and torch.compiler.is_exporting():
                # Only so does a saved program hold the product, and the weight as it is packed.
                found = _exported(*args, **(kwargs or {}))
                if found is not None:
                    return found
            with _plain_functions():
                return func(*args, **(kwargs or {}))
        if func is _linear:
            found = _multiplied(*args, **(kwargs or {}))
            if found is not None:
                return found
        elif func in SETTERS:
            return SETTERS[func](*args, **(kwargs or {}))
        elif func in METHODS and isinstance(args[0], cls) and args[0]._held.part is not None:
            return METHODS[func](*args, **(kwargs or {}))
        with _plain_functions():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _dispatched(func, args, kwargs or {})


def packed_tensor(
    held: Held, dtype: torch.dtype, requires_grad: bool = False, parameter: bool = True
) -> PackedTensor:
    """Return a weight as a parameter of a dtype, which may be wider than what is packed."""
    assert held.part is not None
    sizes = held.part.packed.shape
    found = PackedTensor(held, sizes, (sizes[1], 1), dtype, (), requires_grad)
    found._is_param = parameter
    return found


def _rebuilt(part: Part, dtype: torch.dtype, requires_grad: bool, parameter: bool) -> PackedTensor:
    return packed_tensor(Held(part), dtype, requires_grad, parameter)


def _multiplied(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """Return ``linear(x, weight, bias)`` by the packed weight; None: by torch's operators."""
    if type(weight) is not PackedTensor or weight._views or isinstance(input, PackedTensor):
        return None
    if type(bias) is PackedTensor or (weight.requires_grad and torch.is_grad_enabled()):
        return None
    part = weight._held.part
    return None if part is None else packed_product(input, part, bias)


def _exported(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """Return the product with a weight whose packed tensors a program's recording knows."""
    if not getattr(weight, "inner_tensors_are_recorded", False):
        return None
    return packed_linear(input, weight.packed_weight, bias)


def _seen(base: Tensor, views: tuple[_View, ...]) -> Tensor:
    for function, args, kwargs, index in views:
        found = function(base, *args, **kwargs)
        base = found if index is None else found[index]
    return base


def _to(dense: Tensor, dtype: torch.dtype) -> Tensor:
    return dense if dense.dtype == dtype else dense.to(dtype)


def _unpacked(tree: Any) -> Any:
    return tree_map_only(PackedTensor, PackedTensor.unpack, tree)


def _dispatched(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # In inference mode operators that are made of others arrive as they were called.
    if torch.is_inference_mode_enabled():
        made_of = func.decompose(*args, **kwargs)
        if made_of is not NotImplemented:
            return made_of
    schema = func._schema
    first = args[0] if args else None
    if isinstance(first, PackedTensor):
        if func in _ALIASES and first._held.part is not None:
            sizes, strides = first.shape, first.stride()
            return PackedTensor(first._held, sizes, strides, first.dtype, first._views)
        if func in _LIKE:
            form = torch.empty(1, dtype=first.dtype, device=first.device).expand(first.shape)
            return func(form, *args[1:], **kwargs)
        if func is _aten._to_copy.default and (made := _converted(first, kwargs)) is not None:
            return made
        if func.is_view:
            return _viewed(func, first, args[1:], kwargs)
    if func in _PRODUCTS and (found := _PRODUCTS[func](*args, **kwargs)) is not None:
        return found
    if schema.is_mutable and (written := list(_written(schema, args, kwargs))):
        return _write(func, args, kwargs, written)
    return func(*_unpacked(args), **_unpacked(kwargs))


def _viewed(func: Any, weight: PackedTensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return views that write through: a plain tensor's own, or aliases that remember the way."""
    if weight._held.part is None:
        return func(weight.unpack(), *args, **kwargs)
    form = torch.empty_strided(weight.shape, weight.stride(), dtype=weight.dtype, device="meta")
    found = func(form, *args, **kwargs)

    def alias(like: Tensor, index: int | None) -> PackedTensor:
        views = (*weight._views, (func, args, kwargs, index))
        return PackedTensor(weight._held, like.shape, like.stride(), like.dtype, views)

    if isinstance(found, Tensor):
        return alias(found, None)
    return [alias(like, index) for index, like in enumerate(found)]


def _converted(weight: PackedTensor, kwargs: dict[str, Any]) -> PackedTensor | None:
    """Return a weight in another dtype or on another device, packed; None: not as a packed one."""
    part = weight._held.part
    dtype = kwargs.get("dtype") or weight.dtype
    device = torch.device(kwargs.get("device") or weight.device)
    if part is None or weight._views or dtype not in CONVERTIBLE or device.type == "meta":
        return None
    # What was packed in another dtype than the weight has to the outside stays in that.
    inner = dtype if part.packed.dtype == weight.dtype else part.packed.dtype
    return packed_tensor(weight._held.converted(inner, device), dtype, parameter=False)


def _written(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[PackedTensor]:
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, PackedTensor):
                yield one


def _write(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[PackedTensor]
) -> Any:
    """Run an operator that writes: on the unpacked numbers, which are packed again."""
    name = func._schema.name
    whole = func is _aten.copy_.default and not args[0]._views
    for weight in written:
        if name in _REFUSED:
            raise PackedWriteError(f"PackedTensor: {name} cannot be used on a packed weight")
        if weight._held.is_rounded and not whole:
            part = weight._held.part
            assert part is not None
            raise PackedWriteError(
                f"PackedTensor: {name}: the weight is rounded to {part.packed.format}, and what is "
                f"added to it would be rounded away; change the weights before accelerate(), or "
                f"undo() it first"
            )
    bases = {id(weight._held): weight._held for weight in written}
    dense = {key: _to(held.dense(), _outer(written, held)) for key, held in bases.items()}
    views = {id(weight): _seen(dense[id(weight._held)], weight._views) for weight in written}
    back = {id(views[id(weight)]): weight for weight in written}

    def replaced(value: PackedTensor) -> Tensor:
        own = views.get(id(value))
        return value.unpack() if own is None else own

    out = func(
        *tree_map_only(PackedTensor, replaced, args),
        **tree_map_only(PackedTensor, replaced, kwargs),
    )
    for key, held in bases.items():
        if held.part is not None:
            held.write(dense[key])
    return tree_map_only(Tensor, lambda found: back.get(id(found), found), out)


def _outer(written: list[PackedTensor], held: Held) -> torch.dtype:
    return next(weight.dtype for weight in written if weight._held is held)


def _transposed(weight: Any) -> Part | None:
    """Return the packed weight whose transpose this is."""
    if not isinstance(weight, PackedTensor) or weight._held.part is None:
        return None
    if len(weight._views) != 1 or weight._views[0][0] is not _aten.t.default:
        return None
    return weight._held.part


def _mm(x: Any, weight: Any) -> Tensor | None:
    part = None if isinstance(x, PackedTensor) else _transposed(weight)
    return None if part is None else packed_product(x, part, None)


def _addmm(bias: Any, x: Any, weight: Any, **factors: Any) -> Tensor | None:
    part = None if isinstance(x, PackedTensor) or factors else _transposed(weight)
    fits = part is not None and type(bias) is not PackedTensor and bias.ndim == 1
    return packed_product(x, part, bias) if part is not None and fits else None


_PRODUCTS: Final[dict[Any, Callable[..., Tensor | None]]] = {
    _aten.mm.default: _mm,
    _aten.addmm.default: _addmm,
}
