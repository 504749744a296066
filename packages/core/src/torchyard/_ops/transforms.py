"""Autograd, forward mode and torch.func's transforms of an op, by one torch.autograd.Function.

torch.library.register_autograd has no forward mode, so a tangent would be dropped in silence, and
under torch.func it raises. So an op is registered at two more of the dispatcher's keys, and at both
a Function in the form that torch.func takes is applied: at the key where torch.func begins, and at
autograd's, for a call that records a gradient or has a dual tensor. Every caller of the op passes
there: eager code, other rules, compiled graphs and exported programs. A Function that is applied
inside of a level of torch.func would not find its rules, so the first key is needed.

At a third key the op's rule for vmap computes the batches of gradients that autograd makes
(``is_grads_batched``), which torch.func does not know.

The names of the keys are not published; they were tried on torch 2.13. What else torch does not
publish of this is in ``torchyard.torch_compat``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn

from torchyard._errors import TransformError

__all__ = [
    "active_transform",
    "differentiable_jvp",
    "is_batch_of_gradients",
    "of_rules",
    "refuse",
    "register",
    "register_batches",
]

# What users know the transforms as, for errors.
_TRANSFORMS: Final = {
    "grad": "torch.func.grad (vjp, jacrev, hessian)",
    "jvp": "torch.func.jvp (jacfwd, linearize)",
    "vmap": "torch.vmap",
}


def active_transform(tensors: Sequence[Any]) -> str:
    """Return what a call that is no op is transformed by, for errors; empty for nothing.

    Args:
        tensors: that it takes; a tangent of one of them is forward-mode differentiation.
    """
    import torch

    from torchyard import torch_compat

    levels = torch_compat.functorch_levels()
    if levels:
        return _TRANSFORMS[levels[-1]]
    duals = [item for item in tensors if isinstance(item, torch.Tensor)]
    if torch_compat.is_forward_ad_enabled() and any(_tangent(item) is not None for item in duals):
        return "forward-mode differentiation (dual numbers)"
    return ""


def is_batch_of_gradients(tensor: Any) -> bool:
    """Return whether a gradient is one of a batch that autograd makes (is_grads_batched)."""
    from torchyard import torch_compat

    return bool(torch_compat.is_legacy_batched(tensor))


@contextmanager
def differentiable_jvp(saved: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Let torch.func's outer forward-mode levels differentiate what a Function's ``jvp`` computes.

    torch switches forward mode off in there, and then an outer level's tangents are lost: its
    derivative is zero. Within this they are kept, and what the Function's own level differentiates
    is taken off the saved tensors instead. It does nothing where levels are not nested.

    Args:
        saved: the tensors that the rule reads, as ``ctx.saved_tensors``.

    Yields:
        the same tensors, to read instead of those.
    """
    from torchyard import torch_compat

    if torch_compat.functorch_levels().count("jvp") < 2:
        yield tuple(saved)
        return
    with torch_compat.with_forward_ad(True):
        yield tuple([_primal(tensor) for tensor in saved])


def register(library: Any, form: str, op: Any, transformed: Callable[..., Any]) -> None:
    """Register what computes an op's calls where they are differentiated or transformed.

    Args:
        library: of torch.library, in which the op is defined.
        form: the op's name and overload there.
        op: the op itself.
        transformed: takes the op and the op's arguments.
    """
    import torch

    from torchyard import torch_compat

    requires_grad, below = torch_compat.any_requires_grad, torch_compat.below_autograd
    forward_ad_level = torch_compat.forward_ad_level

    def of_functions(*args: Any) -> Any:
        return transformed(op, *args)

    def of_autograd(*args: Any) -> Any:
        recorded = torch.is_grad_enabled() and requires_grad(*args)
        if recorded or (forward_ad_level() >= 0 and _has_tangent(args)):
            return transformed(op, *args)
        with below():
            return op(*args)

    library.impl(form, of_functions, "FuncTorchDynamicLayerFrontMode")
    library.impl(form, of_autograd, "Autograd")


def register_batches(library: Any, form: str, called: str, vmap: Callable[..., Any]) -> None:
    """Register an op's rule for vmap for autograd's own batches of gradients.

    Args:
        library, form: as of :func:`register`.
        called: what users call, for errors.
        vmap: the rule.
    """
    from torchyard import torch_compat

    add, remove = torch_compat.add_batch_dim, torch_compat.remove_batch_dim
    is_batched = torch_compat.is_legacy_batched

    def compute(*args: Any) -> Any:
        level = torch_compat.vmap_nesting_level()
        if level > 1:
            refuse(called, "nested batches of gradients", "compute one batch at a time")
        given = _Layout.of(args)
        flat = given.flat(args)
        dims = [0 if is_batched(leaf) else None for leaf in flat]
        flat = [
            leaf if dim is None else remove(leaf, level, 1, 0)
            for leaf, dim in zip(flat, dims, strict=True)
        ]
        size = next(leaf.shape[0] for leaf, dim in zip(flat, dims, strict=True) if dim == 0)
        nothing = (None,) * len(args)
        found, at = vmap(
            _Batch(size, "error"), given.nested(dims, nothing), *given.nested(flat, args)
        )
        made = _Layout.of_results(found)
        # torch's own rules want what is mapped over to be the first dimension in memory.
        return made.nested_results(
            [
                add(leaf.movedim(dim, 0).contiguous(), 0, level)
                for leaf, dim in zip(made.flat(found), made.flat(at), strict=True)
            ]
        )

    library.impl(form, compute, "Batched")


def refuse(called: str, transform: str, remedy: str) -> NoReturn:
    """Raise TransformError that names what was called and the transform."""
    raise TransformError(f"{called} under {transform}: {remedy}")


def of_rules(
    called: str,
    gradient: Callable[..., Any] | None,
    setup_context: Callable[..., Any] | None,
    jvp: Callable[..., Any] | None,
    vmap: Callable[..., Any] | None,
) -> Callable[..., Any]:
    """Return what :func:`register` takes, made of the rules of ``Operators.define``."""
    import torch

    class Transformed(torch.autograd.Function):
        """(call, the op's tensors one after another) -> its results one after another."""

        @staticmethod
        def forward(call: _Call, *tensors: Any) -> Any:
            found = call.op(*call.given.nested(tensors, call.rest))
            call.made = _Layout.of_results(found)
            return tuple(call.made.flat(found))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
            ctx.call, *tensors = inputs
            if setup_context is not None:
                given = ctx.call.given.nested(tensors, ctx.call.rest)
                setup_context(ctx, given, ctx.call.made.nested_results(output))

        @staticmethod
        def backward(ctx: Any, *slopes: Any) -> Any:
            if gradient is None:
                refuse(called, "a gradient", "it has none; detach what it is called with")
            call: _Call = ctx.call
            needed = call.given.nested(ctx.needs_input_grad[1:], (False,) * len(call.rest))
            context = _Context(ctx, ctx.saved_tensors, needed)
            found = gradient(context, *call.made.nested(slopes, ()))
            return None, *call.given.flat(found if isinstance(found, tuple) else (found,))

        @staticmethod
        def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
            if jvp is None:
                refuse(
                    called,
                    "forward-mode differentiation (jvp)",
                    "it has no rule for it; use reverse mode: vjp, grad, jacrev",
                )
            call: _Call = ctx.call
            nothing = (None,) * len(call.rest)
            moved = call.given.nested(tangents, nothing)
            with differentiable_jvp(ctx.saved_tensors) as saved:
                found = jvp(_Context(ctx, saved, ()), *moved)
            return tuple(call.made.flat(found))

        @staticmethod
        def vmap(info: Any, dims: tuple[Any, ...], call: _Call, *tensors: Any) -> Any:
            if vmap is None:
                refuse(
                    called,
                    "torch.vmap",
                    "it has no rule for it; give what is mapped over a dimension of the arguments, "
                    "or loop",
                )
            nothing = (None,) * len(call.rest)
            found, at = vmap(
                info, call.given.nested(dims[1:], nothing), *call.given.nested(tensors, call.rest)
            )
            call.made = _Layout.of_results(found)
            return tuple(call.made.flat(found)), tuple(call.made.flat(at))

    def transformed(op: Any, *args: Any) -> Any:
        given = _Layout.of(args)
        # Of the tensors nothing is kept here, only as the Function's own inputs.
        rest = tuple(
            [None if size is not None else arg for size, arg in zip(given.sizes, args, strict=True)]
        )
        call = _Call(op, given, rest)
        flat = Transformed.apply(call, *given.flat(args))  # type: ignore[no-untyped-call]
        return call.made.nested_results(flat)

    return transformed


class _Layout(NamedTuple):
    """How arguments or results lie where their tensors are one after another.

    Attributes:
        sizes: of each the length of a list of tensors; -1 of a tensor; None of the rest.
        single: whether there is one result, which is no tuple.
    """

    sizes: tuple[int | None, ...]
    single: bool = False

    @classmethod
    def of(cls, items: Sequence[Any]) -> _Layout:
        return cls(tuple([_size(item) for item in items]))

    @classmethod
    def of_results(cls, results: Any) -> _Layout:
        if isinstance(results, tuple):
            return cls.of(results)
        return cls((_size(results),), True)

    def flat(self, items: Any) -> list[Any]:
        """Return what stands for tensors; None for a list is None for each of its tensors."""
        found: list[Any] = []
        for size, item in zip(self.sizes, (items,) if self.single else items, strict=True):
            if size == -1:
                found.append(item)
            elif size is not None:
                found.extend((None,) * size if item is None else item)
        return found

    def nested(self, leaves: Sequence[Any], rest: Sequence[Any]) -> tuple[Any, ...]:
        """Return what stands for tensors in place of them, and of the rest what is given."""
        some: Iterator[Any] = iter(leaves)
        return tuple(
            [
                rest[at]
                if size is None
                else next(some)
                if size == -1
                else [next(some) for _ in range(size)]
                for at, size in enumerate(self.sizes)
            ]
        )

    def nested_results(self, leaves: Sequence[Any]) -> Any:
        """Return results as the op returns them."""
        found = self.nested(leaves, ())
        return found[0] if self.single else found


class _Call:
    """A call of an op without its tensors.

    Attributes:
        op: the op.
        given: which of its arguments are tensors.
        rest: its arguments, None in place of tensors.
        made: which of its results are tensors, once it was computed.
    """

    __slots__ = ("given", "made", "op", "rest")

    def __init__(self, op: Any, given: _Layout, rest: tuple[Any, ...]) -> None:
        self.op, self.given, self.rest = op, given, rest
        self.made = _Layout(())


class _Context:
    """A Function's context, with what it has of tensors in the structure of the op's arguments."""

    def __init__(self, ctx: Any, saved: tuple[Any, ...], needed: tuple[Any, ...]) -> None:
        self._ctx, self.saved_tensors, self.needs_input_grad = ctx, saved, needed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class _Batch(NamedTuple):
    """The info argument of a rule for vmap; the fields are torch's."""

    batch_size: int
    randomness: str


def _size(item: Any) -> int | None:
    import torch

    if isinstance(item, torch.Tensor):
        return -1
    if isinstance(item, list | tuple) and item and isinstance(item[0], torch.Tensor):
        return len(item)
    return None


def _has_tangent(args: Sequence[Any]) -> bool:
    """Return whether a tensor is a dual one, where forward mode is not switched off."""
    from torchyard import torch_compat

    if not torch_compat.is_forward_ad_enabled():
        return False
    return any(_tangent(leaf) is not None for leaf in _Layout.of(args).flat(args))


def _tangent(tensor: Any) -> Any:
    from torch.autograd import forward_ad

    unpack: Any = forward_ad.unpack_dual
    return unpack(tensor).tangent


def _primal(tensor: Any) -> Any:
    from torch.autograd import forward_ad

    unpack: Any = forward_ad.unpack_dual
    differs = tensor is not None and (tensor.is_floating_point() or tensor.is_complex())
    return unpack(tensor).primal if differs else tensor
