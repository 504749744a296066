"""What is done to an accelerated model gives what it gives a stock one, or is refused by name."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import fully_shard

from torchyard_kernels import PackedWriteError, accelerate

from .model_operations import OPERATIONS, ddp
from .small_models import ARCHITECTURES, build, outputs
from .weight_operations import data_in_place, items_in_place, linears

QUICK = ("tied llama", "qwen2")
# Of the second architecture in the quick part: where it differs from the first, by its biases.
SOME = (
    *("load", "load_assign", "data_replaced", "data_in_place", "pickled_then_loaded"),
    *("saved_pretrained", "bfloat16", "lora_merged", "threads", "own_forward_of_parents"),
)
# Weights in few bits: a stock model differs by half a unit of those, times the layers on the way.
LOW = {"half": 2e-2, "bfloat16": 1e-1}
# What stock transformers or torch cannot do either.
IMPOSSIBLE = {("mixtral", "double"), ("mixtral", "fsdp2")}
# Operations that write rounded weights in part, which would round the change away.
REFUSED_ROUNDED = {
    *("data_in_place", "items_in_place", "foreach_in_place", "deepcopied", "saved_state"),
    *("lora_merged", "trained_for_a_step"),
}


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    """A process group of one rank, on gloo."""
    transformers.logging.set_verbosity_error()
    file = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def models():
    """Stock models by name, each made once."""
    made = {}
    return lambda name: made.setdefault(name, build(name))


def check(stock, operation):
    fast = copy.deepcopy(stock)
    accelerate(fast, measure=False)
    outputs(fast)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted, made = operation(copy.deepcopy(stock)), operation(fast)
        expected, found = outputs(wanted), outputs(made)
    assert expected.isfinite().all()
    error = (found - expected).norm() / expected.norm()
    assert error < LOW.get(operation.__name__, 1e-4)
    if operation.__name__ not in ("ddp", "fsdp2", "tied_by_hand"):
        shapes = [{n: t.shape for n, t in m.state_dict().items()} for m in (wanted, made)]
        assert shapes[0] == shapes[1]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("name", QUICK)
def test_an_operation_gives_what_it_gives_a_stock_model(name, operation, models):
    if name != QUICK[0] and operation.__name__ not in SOME:
        pytest.skip("the sweep runs the rest of the second architecture")
    check(models(name), operation)


@pytest.mark.sweep
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_operation_gives_what_it_gives_a_stock_model_of_any_architecture(
    name, operation, models
):
    if (name, operation.__name__) in IMPOSSIBLE:
        pytest.skip("stock cannot do it either")
    check(models(name), operation)


@pytest.mark.sweep
@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("name", ["llama", "tied llama", "qwen3", "t5"])
def test_rounded_weights_are_refused_where_the_change_would_be_rounded_away(
    name, operation, weights, models
):
    check_rounded(models(name), operation, weights)


@pytest.mark.parametrize("operation", [data_in_place, items_in_place], ids=lambda o: o.__name__)
def test_a_write_to_a_part_of_a_rounded_weight_is_refused(operation, models):
    check_rounded(models("llama"), operation, "int8")


def check_rounded(stock, operation, weights):
    fast = copy.deepcopy(stock)
    accelerate(fast, weights=weights, measure=False)
    # A stock model of the rounded numbers, which round to themselves.
    stock = copy.deepcopy(stock)
    rounded = [
        (name, layer.weight.unpack())
        for name, layer in linears(fast)
        if hasattr(layer.weight, "unpack")
    ]
    with torch.no_grad():
        for name, weight in rounded:
            stock.get_submodule(name).weight.copy_(weight)
    before = outputs(fast)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = operation(stock)
        if operation.__name__ in REFUSED_ROUNDED:
            with pytest.raises(PackedWriteError, match="rounded"):
                operation(fast)
            # These change something else before: they put adapters on, they step the norms.
            if operation.__name__ not in ("lora_merged", "trained_for_a_step"):
                torch.testing.assert_close(outputs(fast), before)
            return
        made = operation(fast)
        expected, found = outputs(wanted), outputs(made)
    error = (found - expected).norm() / expected.norm()
    # A tied head is rounded, its embedding is not; new weights are rounded again.
    assert error < {"int8": 0.1, "int4": 1.0}[weights]


def test_a_wrapped_model_trains_its_norms_like_a_stock_one(models):
    stock, fast = copy.deepcopy(models("llama")), copy.deepcopy(models("llama"))
    accelerate(fast, measure=False)
    gradients = []
    for model in (stock, fast):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("norm" in name)
        wrapped = ddp(model)
        wrapped(torch.arange(1, 9)[None]).logits.square().mean().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert gradients[0]
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-3, atol=1e-4)


def _two(rank, file, names):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    for name in names:
        stock = build(name)
        expected = outputs(stock)
        for wrap in (ddp, fully_shard):
            fast = copy.deepcopy(stock)
            accelerate(fast, measure=False)
            if wrap is ddp and rank:
                with torch.no_grad():
                    for parameter in fast.parameters():
                        parameter.mul_(0)
            made = wrap(fast)
            torch.testing.assert_close(outputs(made), expected, rtol=1e-3, atol=1e-4)
    dist.destroy_process_group()


@pytest.mark.sweep
def test_two_processes_share_a_model(tmp_path):
    torch.multiprocessing.spawn(_two, (tmp_path / "store", list(ARCHITECTURES)[:12]), nprocs=2)
