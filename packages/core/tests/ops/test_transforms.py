"""Every transform of torch finds an op's rules, at every level, or an error says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import torchyard
from torchyard import Operators, TransformError

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap  # noqa: E402

NAMESPACE = "torchyard_tests_transforms"


def scaled(x: Any, parts: list[Any], power: int) -> Any:
    """Return x**power and the sum of the parts, by a kernel that torch cannot see into."""
    return torch.from_numpy(x.numpy() ** power), torch.from_numpy(sum(p.numpy() for p in parts))


def fake(x: Any, parts: list[Any], power: int) -> Any:
    return torch.empty_like(x), torch.empty_like(parts[0])


def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, parts, ctx.power = inputs
    ctx.count = len(parts)
    ctx.save_for_backward(x)
    ctx.save_for_forward(x)


@pytest.fixture(scope="module")
def ops() -> Iterator[Operators]:
    operators = Operators(NAMESPACE, ["torchyard"])

    def factor(ctx: Any) -> Any:
        (x,) = ctx.saved_tensors
        power = ctx.power
        return power * (call(x, [x], power - 1)[0] if power > 1 else torch.ones_like(x))

    def gradient(ctx: Any, slope: Any, of_sum: Any) -> Any:
        assert ctx.needs_input_grad[2] is False
        assert len(ctx.needs_input_grad[1]) == ctx.count
        return slope * factor(ctx), [of_sum] * ctx.count, None

    def forward_mode(ctx: Any, tangent: Any, tangents: list[Any], power: None) -> Any:
        return tangent * factor(ctx), sum(tangents)

    def rule(info: Any, dims: Any, x: Any, parts: list[Any], power: int) -> Any:
        def front(tensor: Any, dim: int | None) -> Any:
            if dim is None:
                return tensor.expand(info.batch_size, *tensor.shape)
            return tensor.movedim(dim, 0)

        lists = [front(part, dim) for part, dim in zip(parts, dims[1], strict=True)]
        return call(front(x, dims[0]), lists, power), (0, 0)

    def call(x: Any, parts: list[Any], power: int) -> Any:
        return operators["scaled"](x, parts, power)

    schema = "(Tensor x, Tensor[] parts, int power) -> (Tensor, Tensor)"
    operators.define(
        f"scaled{schema}",
        scaled,
        fake,
        gradient=gradient,
        setup_context=keep,
        jvp=forward_mode,
        vmap=rule,
    )
    operators.define(
        f"reverse_only{schema}",
        scaled,
        fake,
        gradient=gradient,
        setup_context=keep,
        called="tests.scaled",
    )
    yield operators
    # Names in torch.ops outlive the library's object otherwise.
    # torch 2.11 cannot read its own message about an op that is gone.
    with suppress(UnicodeDecodeError):
        operators._library._destroy()


def powers(ops: Operators) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        first, total = ops["scaled"](x, [x, 2 * x], 3)
        return first * total

    return function


def plain(x: Any) -> Any:
    return x**3 * (3 * x)


X = torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64)
T = torch.tensor([1.0, 0.25, -2.0], dtype=torch.float64)

TRANSFORMS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "grad": lambda f: grad(lambda x: f(x).sum())(X),
    "vjp": lambda f: vjp(f, X)[1](T)[0],
    "jvp": lambda f: jvp(f, (X,), (T,))[1],
    "jacfwd": lambda f: jacfwd(f)(X),
    "jacrev": lambda f: jacrev(f)(X),
    "hessian": lambda f: hessian(f)(X),
    "linearize": lambda f: linearize(f, X)[1](T),
    "vmap": lambda f: vmap(f)(torch.stack([X, T])),
    "vmap of grad": lambda f: vmap(grad(lambda x: f(x).sum()))(torch.stack([X, T])),
    "jacfwd of jacfwd": lambda f: jacfwd(jacfwd(f))(X),
    "jacrev of jacfwd": lambda f: jacrev(jacfwd(f))(X),
    "jacrev of jacrev": lambda f: jacrev(jacrev(f))(X),
    "three times": lambda f: jacfwd(jacrev(jacfwd(f)))(X),
    "nested vmap": lambda f: vmap(vmap(f))(torch.stack([X, T])[None]),
    "dual numbers": lambda f: dual(f),
    "batched gradients": lambda f: batched_gradients(f),
    "create_graph": lambda f: twice(f),
    "compiled grad": lambda f: compiled(lambda x: grad(lambda y: f(y).sum())(x)),
    "compiled jvp": lambda f: compiled(lambda x: jvp(f, (x,), (T,))[1]),
}


def dual(f: Callable[[Any], Any]) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(X, T))).tangent


def batched_gradients(f: Callable[[Any], Any]) -> Any:
    x = X.clone().requires_grad_()
    slopes = torch.eye(3, dtype=torch.float64)
    return torch.autograd.grad(f(x), x, slopes, is_grads_batched=True)[0]


def twice(f: Callable[[Any], Any]) -> Any:
    x = X.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x)[0]


def compiled(f: Callable[[Any], Any]) -> Any:
    return torch.compile(f, backend="aot_eager", fullgraph=True)(X)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_of_an_op_is_that_of_its_meaning(ops: Operators, name: str) -> None:
    transform = TRANSFORMS[name]
    torch.testing.assert_close(transform(powers(ops)), transform(plain))


def test_a_call_by_the_name_that_torch_knows_keeps_its_tangent(ops: Operators) -> None:
    op = getattr(torch.ops, NAMESPACE).scaled.default
    found = jvp(lambda x: op(x, [x], 2)[0], (X,), (T,))[1]
    torch.testing.assert_close(found, 2 * X * T)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("jvp", "forward-mode differentiation"),
        ("dual numbers", "forward-mode differentiation"),
        ("vmap", "torch.vmap"),
        ("hessian", "forward-mode differentiation"),
    ],
)
def test_a_transform_without_a_rule_is_refused_by_name(
    ops: Operators, name: str, says: str
) -> None:
    with pytest.raises(TransformError, match=f"tests.scaled under {says}") as raised:
        TRANSFORMS[name](lambda x: ops["reverse_only"](x, [x], 2)[0])
    assert isinstance(raised.value, torchyard.TorchyardError)
    # What has a rule still works.
    torch.testing.assert_close(
        grad(lambda x: ops["reverse_only"](x, [x], 1)[0].sum())(X), torch.ones_like(X)
    )


def test_batches_of_gradients_in_batches_are_refused(ops: Operators) -> None:
    from torch._vmap_internals import _vmap

    def inner(x: Any) -> Any:
        return ops["scaled"](x, [x], 2)[0]

    rows = torch.stack([X, T])
    torch.testing.assert_close(_vmap(inner)(rows), rows**2)
    with pytest.raises(TransformError, match="nested batches of gradients"):
        _vmap(_vmap(inner))(rows[None])
