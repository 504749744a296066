"""What loses or bends a tangent on its way through an op is caught, and what is sound is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils import _pytree

from torchyard import ContractId, TransformError, registry
from torchyard_attention._ops._operators import OPERATORS as OF_ATTENTION
from torchyard_conformance._attention._kernel import Kernel as AttentionKernel
from torchyard_conformance._attention._laws import LAWS as ATTENTION_LAWS
from torchyard_conformance._attention._laws import judge as judge_attention
from torchyard_conformance._kernels._kernel import Kernel
from torchyard_conformance._kernels._laws import LAWS, judge
from torchyard_conformance._outcome import Violated
from torchyard_kernels._operators import OPERATORS as OF_KERNELS

_Fault = Callable[[Any, Any], Callable[..., Any]]

# Contract, implementation, case, and the op that a plugin spoils for its device.
_CASES: Final = (
    ("linear/1", "kernels.reference", "float32", "linear"),
    ("topk/1", "kernels.reference", "float32", "topk"),
    ("topk/1", "kernels.reference", "segments", "segmented_topk"),
    ("pointwise/1", "kernels.map_reference", "move", "pointwise"),
    ("recurrent/1", "kernels.reference", "gru", "recurrent"),
    ("attention/1", "attention.reference", "plain", "forward"),
)


def dropped(op: Any, sound: Any) -> Callable[..., Any]:
    """Compute what an op's tensors are, and forget how they move."""

    def primal(item: Any) -> Any:
        return forward_ad.unpack_dual(item).primal if isinstance(item, torch.Tensor) else item

    def kernel(*args: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return op(*_pytree.tree_map(primal, args))

    return kernel


def halved(op: Any, sound: Any) -> Callable[..., Any]:
    """Have the right rules differentiate something else."""

    def half(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        primal, tangent = forward_ad.unpack_dual(item)
        return item if tangent is None else forward_ad.make_dual(primal, tangent / 2)

    return lambda *args: sound(*_pytree.tree_map(half, args))


def raised(op: Any, sound: Any) -> Callable[..., Any]:
    """Fail with a message of torch's insides."""

    def kernel(*args: Any) -> Any:
        raise RuntimeError("batched == nullptr INTERNAL ASSERT FAILED")

    return kernel


def refused(op: Any, sound: Any) -> Callable[..., Any]:
    """Refuse by name."""

    def kernel(*args: Any) -> Any:
        raise TransformError("the op under forward mode: use reverse mode")

    return kernel


@contextmanager
def _spoiled(name: str, fault: _Fault) -> Iterator[None]:
    """Register a kernel of a plugin's at autograd's key of the CPU, ahead of the component's."""
    operators = OF_ATTENTION if hasattr(torch.ops.torchyard_attention, name) else OF_KERNELS
    packet = getattr(getattr(torch.ops, operators.namespace), name)
    library = torch.library.Library(operators.namespace, "IMPL")  # type: ignore[no-untyped-call]
    sound = getattr(packet, operators.overload)
    library.impl(name, fault(packet.default, sound), "AutogradCPU")
    try:
        yield
    finally:
        library._destroy()


def _held(contract: str, name: str, case: str) -> dict[str, float]:
    offered, _ = registry().implementations(ContractId.parse(contract), "cpu")
    chosen = next(item for item in offered if item.name == name)
    if contract.startswith("attention"):
        law = ATTENTION_LAWS["truth.attention-drops-no-tangent"]
        return judge_attention(law, AttentionKernel(chosen), case)
    return judge(LAWS["truth.kernels-drop-no-tangent"], Kernel(chosen), case)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (dropped, "dual numbers: output 0 has no tangent, expected one of up to"),
        (halved, "dual numbers: output 0: the tangent is off by"),
        (raised, "expected a tangent or a TransformError, got RuntimeError: batched == nullptr"),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
@pytest.mark.parametrize(
    ("contract", "name", "case", "op"), _CASES, ids=[f"{case[3]}" for case in _CASES]
)
def test_a_tangent_that_is_lost_wrong_or_of_an_unknown_class_is_caught(
    contract: str, name: str, case: str, op: str, fault: _Fault, said: str
) -> None:
    with _spoiled(op, fault), pytest.raises(Violated) as caught:
        _held(contract, name, case)

    assert said in str(caught.value)
    sound = _held(contract, name, case)
    assert sound["refused"] == 0.0
    assert 0.0 < sound["tangent"] <= 1.0


def test_a_refusal_by_name_keeps_the_law() -> None:
    with _spoiled("linear", refused):
        found = _held("linear/1", "kernels.reference", "float32")

    assert found["refused"] >= 1.0


@pytest.mark.parametrize(
    ("contract", "name", "case", "op"),
    [
        ("attention_backward/1", "attention.reference", "plain", "backward"),
        ("recurrent_backward/1", "kernels.steps", "gru", "recurrent_backward"),
    ],
)
def test_a_gradient_that_is_a_constant_to_forward_mode_is_caught(
    contract: str, name: str, case: str, op: str
) -> None:
    assert _held(contract, name, case)["tangent"] <= 1.0
    with _without_rules(op), pytest.raises(Violated, match=r"tangent of zeros|off by"):
        _held(contract, name, case)


@contextmanager
def _without_rules(name: str) -> Iterator[None]:
    """Have an op compute what torch.func gives it as plain tensors: its result is a constant."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    operators = OF_ATTENTION if hasattr(torch.ops.torchyard_attention, name) else OF_KERNELS
    packet = getattr(getattr(torch.ops, operators.namespace), name)

    def plain(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        return torch.func.debug_unwrap(item, recurse=True).detach()

    def kernel(*args: Any) -> Any:
        with temporarily_clear_interpreter_stack():
            return packet.default(*_pytree.tree_map(plain, args))

    library = torch.library.Library(operators.namespace, "IMPL")  # type: ignore[no-untyped-call]
    library.impl(name, kernel, "FuncTorchDynamicLayerFrontMode", allow_override=True)
    try:
        yield
    finally:
        library._destroy()
