"""PackedTensor: a layer's weight as a parameter in packed memory."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard.torch_compat import without_torch_function
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels._torch_compat import tree_map_only
from torchyard_kernels.linear._errors import PackedWriteError
from torchyard_kernels.linear._weights.packed_weight import CONVERTIBLE, PackedWeight
from torchyard_kernels.linear._weights.product import packed_linear, packed_product
from torchyard_kernels.linear._weights.storage import Part, WeightStorage
from torchyard_kernels.linear._weights.tensor_methods import METHODS, SETTERS

__all__ = ["PackedTensor", "packed_tensor"]

_aten: Final[Any] = torch.ops.aten
_ALIASES: Final = (_aten.detach.default, _aten.alias.default)
# Operators that read only the shape, dtype and device of a tensor.
_LIKE: Final = tuple(
    getattr(_aten, name).default
    for name in (
        *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
        *("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided"),
    )
)
_REFUSED: Final = ("aten::set_", "aten::resize_", "aten::resize_as_")
_linear: Final[Any] = torch.nn.functional.linear
_View = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], int | None]


class PackedTensor(Tensor):
    """A weight [N, K] of a linear layer in a packed layout.

    It has the shape and the dtype of the weight and can be used as any tensor: a read unpacks the
    numbers, and a write, also through views, ``.data`` or ``detach()``, changes the one weight.
    ``torch.nn.functional.linear`` multiplies by the packed weight.

    A weight that is rounded to a few bits can be written as a whole only (``copy_``, as
    ``load_state_dict`` does) and is rounded again; other writes raise :class:`PackedWriteError`.
    """

    _storage: WeightStorage
    _views: tuple[_View, ...]
    _is_param: bool
    inner_tensors_are_recorded: bool  # while torch.export records them in the weight's place

    @staticmethod
    def __new__(  # noqa: PYI034 - of a static method
        cls: type[PackedTensor],
        storage: WeightStorage,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: torch.dtype,
        views: tuple[_View, ...] = (),
        requires_grad: bool = False,
    ) -> PackedTensor:
        """Make an alias of a weight.

        Args:
            cls: the class.
            storage: the weight's storage.
            sizes, strides, dtype: of the alias.
            views: the view operators that lead from the weight to the alias.
            requires_grad: as for a tensor.
        """
        # Modules swap parameters when they are moved, which inference tensors do not support.
        with torch.inference_mode(False):
            self: PackedTensor = Tensor._make_wrapper_subclass(
                cls,
                tuple(sizes),
                strides=tuple(strides),
                dtype=dtype,
                device=storage.device,
                requires_grad=requires_grad,
            )
        self._storage = storage
        self._views = views
        return self

    def unpack(self) -> Tensor:
        """Return the numbers as a plain tensor."""
        return _apply_views(_to(self._storage.dense(), self.dtype), self._views)

    @property
    def packed_storage(self) -> WeightStorage:
        """The storage that all aliases of the weight share."""
        return self._storage

    @property
    def packed_weight(self) -> PackedWeight:
        """The packed weight."""
        part = self._storage.part
        if part is None:
            raise PackedWriteError("PackedTensor: a plain tensor took the place of the packed form")
        return part.packed

    @property
    def format(self) -> str:
        """The name of the packed layout; ``plain`` where a plain tensor took its place."""
        part = self._storage.part
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
        if self._views or self._storage.part is None:
            plain = self.unpack().detach().clone()
            return torch.nn.Parameter(plain, self.requires_grad) if parameter else plain
        storage = WeightStorage(copy.deepcopy(self._storage.part, memo))
        return packed_tensor(storage, self.dtype, self.requires_grad, parameter)

    def __reduce_ex__(self, protocol: Any) -> Any:
        parameter = getattr(self, "_is_param", False)
        if self._views or self._storage.part is None:
            plain: Any = self.unpack().detach()
            if parameter:
                plain = torch.nn.Parameter(plain, self.requires_grad)
            return plain.__reduce_ex__(protocol)
        return _rebuilt, (self._storage.part, self.dtype, self.requires_grad, parameter)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        part = self._storage.part
        if part is None:
            return ["packed_plain"], ("", self.dtype, self._views, OPERATORS.overload)
        names = [f"packed_{name}" for name in part.packed.names]
        # A compiled graph on disk calls ops by their overload, which is a digest of their sources.
        return names, (part.packed.spec_text, self.dtype, self._views, OPERATORS.overload)

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], context: Any, outer_size: Any, outer_stride: Any
    ) -> PackedTensor:
        spec, dtype, views, _ = context
        if spec:
            storage = WeightStorage(Part(PackedWeight.of_tensors(spec, tuple(inner.values()))))
        else:
            storage = WeightStorage(None, inner["packed_plain"])
        return PackedTensor(storage, outer_size, outer_stride, dtype, views)

    def _stable_hash_for_caching(self) -> str:
        # The key under which torch caches compiled graphs on disk.
        names, context = self.__tensor_flatten__()
        inner = [getattr(self, name) for name in names]
        forms = [(one.shape, one.dtype, one.device, one.requires_grad) for one in inner]
        text = f"{names} {context} {forms} {self.shape} {self.stride()} {self.requires_grad}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def packed_plain(self) -> Tensor | None:
        """The plain tensor in the place of the packed weight."""
        return self._storage.plain

    @property
    def packed_data(self) -> Tensor:
        """The packed weight's tensor ``data``."""
        return self._inner("data")

    @property
    def packed_scale(self) -> Tensor:
        """The packed weight's tensor ``scale``."""
        return self._inner("scale")

    @property
    def packed_zero(self) -> Tensor:
        """The packed weight's tensor ``zero``."""
        return self._inner("zero")

    def _inner(self, name: str) -> Tensor:
        part = self._storage.part
        if part is None:
            raise AttributeError(name)
        return part.packed.get_buffer(name)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.compiler.is_compiling():
            if func is _linear and torch.compiler.is_exporting():
                # So that a saved program contains the product and the packed weight.
                found = _exported(*args, **(kwargs or {}))
                if found is not None:
                    return found
            with without_torch_function():
                return func(*args, **(kwargs or {}))
        if func is _linear:
            found = _multiplied(*args, **(kwargs or {}))
            if found is not None:
                return found
        elif func in SETTERS:
            return SETTERS[func](*args, **(kwargs or {}))
        elif func in METHODS and isinstance(args[0], cls) and args[0]._storage.part is not None:
            return METHODS[func](*args, **(kwargs or {}))
        with without_torch_function():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _dispatched(func, args, kwargs or {})


def packed_tensor(
    storage: WeightStorage, dtype: torch.dtype, requires_grad: bool = False, parameter: bool = True
) -> PackedTensor:
    """Return a weight as a parameter; its dtype may be wider than the packed one."""
    assert storage.part is not None
    sizes = storage.part.packed.shape
    found = PackedTensor(storage, sizes, (sizes[1], 1), dtype, (), requires_grad)
    found._is_param = parameter
    return found


def _rebuilt(part: Part, dtype: torch.dtype, requires_grad: bool, parameter: bool) -> PackedTensor:
    return packed_tensor(WeightStorage(part), dtype, requires_grad, parameter)


def _multiplied(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """Return ``linear(x, weight, bias)`` by the packed weight; None: by torch's."""
    if type(weight) is not PackedTensor or weight._views or isinstance(input, PackedTensor):
        return None
    if type(bias) is PackedTensor or (weight.requires_grad and torch.is_grad_enabled()):
        return None
    part = weight._storage.part
    return None if part is None else packed_product(input, part, bias)


def _exported(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """Return the product with a weight whose packed tensors torch.export records."""
    if not getattr(weight, "inner_tensors_are_recorded", False):
        return None
    return packed_linear(input, weight.packed_weight, bias)


def _apply_views(base: Tensor, views: tuple[_View, ...]) -> Tensor:
    for function, args, kwargs, index in views:
        found = function(base, *args, **kwargs)
        base = found if index is None else found[index]
    return base


def _to(dense: Tensor, dtype: torch.dtype) -> Tensor:
    return dense if dense.dtype == dtype else dense.to(dtype)


def _unpacked(tree: Any) -> Any:
    return tree_map_only(PackedTensor, PackedTensor.unpack, tree)


def _dispatched(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # In inference mode composite operators arrive undecomposed.
    if torch.is_inference_mode_enabled():
        made_of = func.decompose(*args, **kwargs)
        if made_of is not NotImplemented:
            return made_of
    schema = func._schema
    first = args[0] if args else None
    if isinstance(first, PackedTensor):
        if func in _ALIASES and first._storage.part is not None:
            sizes, strides = first.shape, first.stride()
            return PackedTensor(first._storage, sizes, strides, first.dtype, first._views)
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
    """Return views that write through: those of a plain tensor, or aliases."""
    if weight._storage.part is None:
        return func(weight.unpack(), *args, **kwargs)
    form = torch.empty_strided(weight.shape, weight.stride(), dtype=weight.dtype, device="meta")
    found = func(form, *args, **kwargs)

    def alias(like: Tensor, index: int | None) -> PackedTensor:
        views = (*weight._views, (func, args, kwargs, index))
        return PackedTensor(weight._storage, like.shape, like.stride(), like.dtype, views)

    if isinstance(found, Tensor):
        return alias(found, None)
    return [alias(like, index) for index, like in enumerate(found)]


def _converted(weight: PackedTensor, kwargs: dict[str, Any]) -> PackedTensor | None:
    """Return a packed weight in another dtype or on another device; None: it is unpacked."""
    part = weight._storage.part
    dtype = kwargs.get("dtype") or weight.dtype
    device = torch.device(kwargs.get("device") or weight.device)
    if part is None or weight._views or dtype not in CONVERTIBLE or device.type == "meta":
        return None
    # A weight that is packed in another dtype than the alias has keeps the packed dtype.
    inner = dtype if part.packed.dtype == weight.dtype else part.packed.dtype
    return packed_tensor(weight._storage.converted(inner, device), dtype, parameter=False)


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
    """Run an operator that writes on the unpacked numbers, and pack them again."""
    name = func._schema.name
    whole = func is _aten.copy_.default and not args[0]._views
    for weight in written:
        if name in _REFUSED:
            raise PackedWriteError(f"PackedTensor: {name} cannot be used on a packed weight")
        if weight._storage.is_rounded and not whole:
            part = weight._storage.part
            assert part is not None
            raise PackedWriteError(
                f"PackedTensor: {name}: the weight is rounded to {part.packed.format}, and what is "
                f"added to it would be rounded away; change the weights before accelerate(), or "
                f"undo() it first"
            )
    bases = {id(weight._storage): weight._storage for weight in written}
    dense = {key: _to(base.dense(), _outer(written, base)) for key, base in bases.items()}
    views = {
        id(weight): _apply_views(dense[id(weight._storage)], weight._views) for weight in written
    }
    back = {id(views[id(weight)]): weight for weight in written}

    def replaced(value: PackedTensor) -> Tensor:
        own = views.get(id(value))
        return value.unpack() if own is None else own

    out = func(
        *tree_map_only(PackedTensor, replaced, args),
        **tree_map_only(PackedTensor, replaced, kwargs),
    )
    for key, base in bases.items():
        if base.part is not None:
            base.write(dense[key])
    return tree_map_only(Tensor, lambda found: back.get(id(found), found), out)


def _outer(written: list[PackedTensor], storage: WeightStorage) -> torch.dtype:
    return next(weight.dtype for weight in written if weight._storage is storage)


def _transposed(weight: Any) -> Part | None:
    """Return the packed weight that a tensor is the transpose of, else None."""
    if not isinstance(weight, PackedTensor) or weight._storage.part is None:
        return None
    if len(weight._views) != 1 or weight._views[0][0] is not _aten.t.default:
        return None
    return weight._storage.part


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
