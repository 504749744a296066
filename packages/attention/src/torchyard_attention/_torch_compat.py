"""The private parts of torch that attention uses.

No other module of this package names a private part of torch; those that other packages need too
are in ``torchyard.torch_compat``. Each entry says what it stands for and what happens where torch
lacks it; :data:`PROBES` has a check of each, and :func:`missing` runs them. All were tried on torch
2.13; parts that torch 2.11 may lack are looked up by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from torchyard.torch_compat import dispatch_mode_count, functorch_levels, without_modes

__all__ = [
    "PROBES",
    "as_outside_of_ops",
    "compile_traced",
    "data_dependent_size",
    "flex_gradients",
    "forward_levels",
    "fused_attention_on_cpu",
    "fused_gradients_on_cpu",
    "is_fake_mode_active",
    "is_mapped",
    "missing",
    "ragged_dim",
    "recompile_limit_error",
    "register_tree",
    "tree_flatten",
    "tree_unflatten",
    "triton_for_cpu",
    "version_of",
]

# The dispatch keys that a kernel may need although the dispatcher has passed them: autograd, for
# the derivative of a score_mod, and functorch, for programs that are evaluated under vmap. Those
# that a torch does not have are left out.
_NEEDED: Final = tuple(
    getattr(torch._C.DispatchKey, name)
    for name in (
        "AutogradFunctionality",
        "ADInplaceOrView",
        "FuncTorchDynamicLayerFrontMode",
        "FuncTorchDynamicLayerBackMode",
        "FuncTorchBatched",
        "FuncTorchBatchedDecomposition",
        "FuncTorchVmapMode",
        "FuncTorchGradWrapper",
        "PythonTLSSnapshot",
    )
    if hasattr(torch._C.DispatchKey, name)
)


@contextmanager
def as_outside_of_ops() -> Iterator[None]:
    """Let a kernel use autograd and vmap, whoever called its op.

    The dispatcher excludes the keys above an op while its kernel runs, and a dispatch mode (a
    counter of FLOPs, the check that torch.compile makes of custom ops) would see vmap's tensors,
    which it cannot handle. Both are restored on leaving. Without torch's functions for excluded
    keys: an AttributeError in every kernel of this package.
    """
    excluded = [key for key in _NEEDED if torch._C._dispatch_tls_is_dispatch_key_excluded(key)]
    for key in excluded:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        if dispatch_mode_count():
            with without_modes():
                yield
        else:
            yield
    finally:
        for key in excluded:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)


def forward_levels() -> int:
    """Return how many of torch.func's forward-mode derivatives are nested around the caller."""
    return functorch_levels().count("jvp")


def is_mapped(tensor: Tensor) -> bool:
    """Return whether torch.vmap maps over a tensor, at any of the levels that wrap it.

    Without torch's own answers: an AttributeError in transformed calls with a block mask.
    """
    functorch: Any = torch._C._functorch
    while True:
        if functorch.is_batchedtensor(tensor):
            return True
        if not functorch.is_gradtrackingtensor(tensor):
            return False
        tensor = functorch.get_unwrapped(tensor)


def version_of(tensor: Tensor) -> int:
    """Return a tensor's version counter, which every change in place raises.

    -1 for tensors of inference mode, which have none, and without the counter: what was computed
    from such a tensor is computed again each time.
    """
    return -1 if tensor.is_inference() else int(getattr(tensor, "_version", -1))


def ragged_dim(nested: Any) -> int:
    """Return which dimension of a jagged nested tensor has a length of its own in each item.

    Without torch's own answer: an AttributeError in varlen_attention of nested tensors.
    """
    return int(nested._ragged_idx)


def is_fake_mode_active(*tensors: Tensor) -> bool:
    """Return whether a FakeTensorMode is active, or one of some tensors is fake.

    Without torch's own answer: False, and a mask of known structure is evaluated on fake tensors,
    which raises.
    """
    return _fake_mode(*tensors) is not None


def _fake_mode(*tensors: Tensor) -> Any:
    from torch import _guards

    detect: Any = getattr(_guards, "detect_fake_mode", None)
    return None if detect is None else detect(*tensors)


def data_dependent_size() -> Any:
    """Return, inside of an op's fake kernel, a size that depends on the values of its inputs.

    torch breaks a graph at an op with such a size, unless ``fullgraph=True`` or a setting says that
    what follows can handle it. What follows here is an op of ours, which can. Without torch's
    ``ShapeEnv`` on the mode: torch's public function, which may break the graph.
    """
    shape_env = getattr(_fake_mode(), "shape_env", None)
    create = getattr(shape_env, "create_unbacked_symint", None)
    if create is None or getattr(shape_env, "allow_dynamic_output_shape_ops", True):
        return torch.library.get_ctx().new_dynamic_size()
    size = create()
    torch._check(size >= 0)  # type: ignore[no-untyped-call]
    return size


def register_tree(
    kind: type, flatten: Callable[..., Any], unflatten: Callable[..., Any], name: str
) -> None:
    """Register a class whose objects hold tensors, for torch.export and torch.func.

    torch has no public module for trees. Without this one: an ImportError of this package.
    """
    from torch.utils import _pytree

    _pytree.register_pytree_node(kind, flatten, unflatten, serialized_type_name=name)


def tree_flatten(tree: Any) -> tuple[list[Any], Any]:
    """Return the leaves of a tree of lists, tuples and dictionaries, and its structure."""
    from torch.utils import _pytree

    return _pytree.tree_flatten(tree)


def tree_unflatten(leaves: list[Any], structure: Any) -> Any:
    """Return the tree of some leaves."""
    from torch.utils import _pytree

    return _pytree.tree_unflatten(leaves, structure)


def recompile_limit_error() -> type[BaseException]:
    """Return what a function compiled with ``fullgraph=True`` raises at torch's recompile limit.

    Without it: a class that nothing raises, and torch's own error is raised as it is.
    """
    # Imports the compiler, which whoever asks has imported.
    from torch._dynamo import exc

    found: type[BaseException] = getattr(exc, "FailOnRecompileLimitHit", _NeverRaisedError)
    return found


class _NeverRaisedError(Exception):
    """Stands for an exception that torch does not have."""


def fused_attention_on_cpu(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Return out and lse of the op behind scaled_dot_product_attention on cpu.

    The public function returns no lse. Without the op: an AttributeError in attention.sdpa.
    """
    found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, scale=scale
    )
    return found


def fused_gradients_on_cpu(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value by the backward of the same op."""
    found: tuple[Tensor, Tensor, Tensor] = (
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out, query, key, value, out, lse, 0.0, causal, scale=scale
        )
    )
    return found


def flex_gradients(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    grad_out: Tensor,
    grad_lse: Tensor | None,
    functions: tuple[Callable[..., Any], Callable[..., Any]],
    mask: tuple[Any, ...],
    scale: float,
    captured: tuple[tuple[Tensor, ...], tuple[Tensor, ...]],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value, by the operator of flex_attention's backward.

    Evaluated, it holds Sq x Sk scores; :func:`compile_traced` makes a kernel of it. The public
    function comes to it through autograd alone, after a forward of its own. Without the operator:
    an AttributeError in the backward of attention.flex.

    Args:
        tensors: query, key, value, out, and lse as the operator has it, the logarithm to base 2.
        grad_out: gradient of out.
        grad_lse: gradient of that lse.
        functions: modified score of (score, b, h, q, k, *captured), and a list of the derivatives
            by each of these, None for what has none, of (score, b, h, q, k, derivative by the
            modified score, *captured).
        mask: ``BlockMask.as_tuple()``, whose last entry is a function of (b, h, q, k, *captured).
        scale: multiplies the raw scores.
        captured: what these functions read, of scores and of the mask.
    """
    # Registers the operator.
    from torch.nn.attention import flex_attention  # noqa: F401

    operator: Any = torch.ops.higher_order.flex_attention_backward
    found = operator(*tensors, grad_out, grad_lse, *functions, mask, scale, {}, *captured)
    query, key, value = found[:3]
    return query, key, value


def compile_traced(function: Callable[..., Any], tensors: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Return what Inductor compiles of a function's operations on tensors like these.

    ``torch.compile`` does not trace functions that are given to an operator. Without Inductor's
    entry for graphs: an ImportError or AttributeError in the backward of attention.flex.
    """
    import torch._inductor
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(function, tracing_mode="fake")(*tensors)
    compiled: Callable[..., Any] = torch._inductor.compile(graph, list(tensors))
    return compiled


def triton_for_cpu() -> AbstractContextManager[None]:
    """Have Inductor write Triton for the CPU, for tests. Without the setting: Inductor's error."""
    from torch._inductor import config

    found: AbstractContextManager[None] = config.patch(cpu_backend="triton")
    return found


def _changes_version() -> bool:
    tensor = torch.zeros(1)
    before = version_of(tensor)
    tensor.add_(1)
    return version_of(tensor) == before + 1


def _maps() -> bool:
    seen: list[bool] = []

    def note(x: Tensor) -> Tensor:
        seen.append(is_mapped(x))
        return x

    torch.vmap(note)(torch.zeros(2))
    return seen == [True] and not is_mapped(torch.zeros(2))


def _levels() -> bool:
    seen: list[int] = []

    def note(x: Tensor) -> Tensor:
        seen.append(forward_levels())
        return x

    torch.func.jvp(note, (torch.zeros(1),), (torch.ones(1),))
    return seen == [1] and forward_levels() == 0


def _is_ragged() -> bool:
    nested = torch.nested.nested_tensor_from_jagged(torch.zeros(3, 2), torch.tensor([0, 1, 3]))
    return ragged_dim(nested) == 1


def _fuses() -> bool:
    x = torch.randn(1, 1, 2, 8)
    out, lse = fused_attention_on_cpu(x, x, x, causal=False, scale=1.0)
    slopes = fused_gradients_on_cpu(x, x, x, x, out, lse, causal=False, scale=1.0)
    return lse.shape == (1, 1, 2) and all(slope.shape == x.shape for slope in slopes)


def _differentiates_flex() -> bool:
    from torch.nn.attention.flex_attention import create_block_mask

    def same(score: Tensor, *_: Tensor) -> Tensor:
        return score

    def slopes(*given: Tensor) -> list[Tensor | None]:
        return [given[5], None, None, None, None]

    x, lse = torch.ones(1, 1, 16, 16), torch.full((1, 1, 16), 4.0)
    mask = create_block_mask(lambda b, h, q, k: q >= 0, None, None, 16, 16, device="cpu")
    found = flex_gradients(
        (x, x, x, x, lse), x, torch.zeros_like(lse), (same, slopes), mask.as_tuple(), 0.0, ((), ())
    )
    # All weights are a sixteenth, and so each value's slope is a sum of sixteen of them.
    return bool(torch.allclose(found[2], x)) and not found[0].any() and not found[1].any()


def _compiles_graphs() -> bool:
    import torch._inductor

    return callable(torch._inductor.compile)


def _enters() -> bool:
    with as_outside_of_ops():
        return dispatch_mode_count() == 0


def _rebuilds() -> bool:
    leaves, structure = tree_flatten([1, (2, None)])
    return bool(tree_unflatten(leaves, structure) == [1, (2, None)])


def _sizes() -> bool:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv(allow_dynamic_output_shape_ops=False)):
        return isinstance(data_dependent_size(), torch.SymInt)


PROBES: Final = MappingProxyType[str, Callable[[], bool]](
    {
        "as_outside_of_ops": _enters,
        "compile_traced": _compiles_graphs,
        "data_dependent_size": _sizes,
        "flex_gradients": _differentiates_flex,
        "forward_levels": _levels,
        "fused_attention_on_cpu": _fuses,
        "is_fake_mode_active": lambda: not is_fake_mode_active(torch.zeros(1)),
        "is_mapped": _maps,
        "ragged_dim": _is_ragged,
        "recompile_limit_error": lambda: recompile_limit_error() is not _NeverRaisedError,
        "tree_flatten": _rebuilds,
        "triton_for_cpu": lambda: callable(triton_for_cpu().__enter__),
        "version_of": _changes_version,
    }
)


def missing() -> tuple[str, ...]:
    """Return the entries that this torch does not have, or answers in another way.

    Ask where no mode is active.
    """

    def holds(probe: Callable[[], bool]) -> bool:
        try:
            return probe()
        except Exception:  # whatever torch raises where a part is another one
            return False

    return tuple(name for name, probe in PROBES.items() if not holds(probe))
