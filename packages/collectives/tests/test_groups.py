"""Groups by every name, and ranks within them; what is refused, and how."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import torchyard_collectives as tc

from .ranks import run_ranks


def _every_name() -> list[float]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = torch.tensor([2.0 ** dist.get_rank()])
    pairs = [dist.new_group(pair) for pair in ([0, 1], [2, 3])]
    own = pairs[dist.get_rank() // 2]
    names: list[Any] = [
        None,
        dist.group.WORLD,
        own,
        mesh["tp"],
        (mesh, "tp"),
        (mesh, 1),
        (mesh, "dp"),
    ]
    totals = [tc.all_reduce(x, group=name, grad="sum").item() for name in names]
    with mesh:
        totals.append(tc.all_reduce(x, group="tp", grad="sum").item())
    first = 2 * (dist.get_rank() // 2)
    totals.append(tc.all_reduce(x, group=(first, first + 1), grad="sum").item())
    return totals


def test_a_group_is_named_in_every_way() -> None:
    found = run_ranks(4, _every_name)
    for rank, totals in enumerate(found):
        tp, dp = (3.0, 12.0)[rank // 2], (5.0, 10.0)[rank % 2]
        assert totals == [15.0, 15.0, tp, tp, tp, tp, dp, tp, tp]


def _compiled_names() -> list[float]:
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("dp",))
    x = torch.tensor([2.0 ** dist.get_rank()])
    totals = []
    for name in (None, dist.group.WORLD, mesh, (mesh, "dp"), (0, 1, 2)):
        torch.compiler.reset()

        def run(y: torch.Tensor, group: Any = name) -> torch.Tensor:
            return tc.all_reduce(y, "avg", group, grad="sum") * 3

        totals.append(torch.compile(run, fullgraph=True, backend="aot_eager")(x).item())
    return totals


@pytest.mark.sweep
def test_every_name_compiles() -> None:
    assert run_ranks(3, _compiled_names) == [[7.0] * 5] * 3


def _compiled_conventions() -> list[bool]:
    x = torch.tensor([3.0], requires_grad=True)
    given: list[Any] = [
        ("sum", "partial", "replicated"),
        ("replicated", tc.Placement.PARTIAL, tc.Placement.INVARIANT),
    ]
    found = []
    for name, src, dst in given:
        torch.compiler.reset()

        def run(y: torch.Tensor, src: Any = src, dst: Any = dst) -> torch.Tensor:
            return tc.all_reduce(y, tc.PremulSum(y), grad=tc.Typed(src, dst))

        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
        (typed,) = torch.autograd.grad(compiled(x), x)
        (named,) = torch.autograd.grad(tc.all_reduce(x, tc.PremulSum(x), grad=name), x)
        found.append(torch.equal(typed, named))
    return found


def test_placements_are_made_in_compiled_code_too() -> None:
    assert run_ranks(2, _compiled_conventions) == [[True, True]] * 2


def _roots_in_subgroup() -> list[Any] | None:
    # Ranks 0 and 1 of this group are ranks 1 and 2 of the world.
    group = dist.new_group([1, 2])
    if dist.get_rank() == 0:
        return None
    x = torch.full((2,), float(dist.get_rank()), dtype=torch.float64, requires_grad=True)
    y = tc.broadcast(x, 1, group, grad="sum")
    (gradient,) = torch.autograd.grad((y * dist.get_rank()).sum(), x)
    z = tc.reduce(x, 0, group=group, grad="sum")
    rows = tc.scatter(x, 0, group=group, grad="sum")
    whole = tc.gather(x, 1, group=group, grad="sum")
    return [t.detach().tolist() for t in (y, gradient, z, rows, whole)]


def test_roots_are_ranks_within_the_group() -> None:
    _, one, two = run_ranks(3, _roots_in_subgroup)
    assert one == [[2, 2], [0, 0], [3, 3], [1], []]
    assert two == [[2, 2], [3, 3], [0, 0], [1], [1, 1, 2, 2]]


def _refused() -> list[str]:
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    outside = dist.new_group([0])
    x = torch.ones(3)
    calls = [
        lambda: tc.all_reduce(x, group=mesh, grad="sum"),
        lambda: tc.all_reduce(x, group=(mesh, "pp"), grad="sum"),
        lambda: tc.all_reduce(x, group="tp", grad="sum"),
        lambda: tc.all_reduce(x, group=(1, 0), grad="sum"),
        lambda: tc.all_reduce(x, group=3.5, grad="sum"),  # type: ignore[call-overload]
        lambda: tc.broadcast(x, 2, grad="sum"),
        lambda: tc.all_gather(x, 1, grad="sum"),
        lambda: tc.all_gather(x, sizes=[3], grad="sum"),
        lambda: tc.all_gather(x, sizes=[2, 2], grad="sum"),
        lambda: tc.reduce_scatter(x, grad="sum"),
        lambda: tc.reduce_scatter(x, sizes=[1, 1], grad="sum"),
        lambda: tc.all_to_all(x, input_sizes=[1, 2], grad="sum"),
        lambda: tc.scatter(torch.tensor(1.0), 0, grad="sum"),
        lambda: tc.permute(x, [(0, 1), (0, 0)], grad="sum"),
        lambda: tc.permute(x, {0: 1, 1: 1}, grad="sum"),
        lambda: tc.send(x, dist.get_rank(), grad="sum"),
        lambda: tc.all_reduce(x, "mean", grad="sum"),
        lambda: tc.all_reduce(x, tc.PremulSum(torch.ones(2, 3)), grad="sum"),
        lambda: tc.all_reduce(x, grad="local"),
        lambda: tc.all_reduce(x, grad=tc.Typed("replicated", "replicated")),
        lambda: tc.all_gather(x, grad=tc.Typed("varying", "sharded")),
    ]
    if dist.get_rank() == 1:
        calls.append(lambda: tc.all_reduce(x, group=outside, grad="sum"))  # type: ignore[arg-type]
    texts = []
    for call in calls:
        try:
            call()
            texts.append("nothing was raised")
        except (ValueError, TypeError) as error:
            texts.append(str(error))
    return texts


def test_wrong_arguments_of_one_rank_are_refused_with_a_remedy() -> None:
    expected = [
        *("group: expected a mesh of one dimension", "group: the mesh has no dimension 'pp'"),
        *("group: 'tp' names", "group: no group of the ranks [1, 0]", "group: expected None"),
        *("src: expected a rank within the group, 0 to 1, got 2", "dim: expected a dimension"),
        *("sizes: expected 2 numbers", "sizes: expected 3 for rank", "x: expected rows"),
        *("sizes: expected a sum of 3", "input_sizes: expected input_sizes and", "dim: expected"),
        *(
            "route: expected each rank once",
            "route: expected each rank once",
            "dst: expected anoth",
        ),
        *("op: expected one of avg, max, min", "op: expected a factor that broadcasts"),
        *("grad: all_reduce expected 'sum'", "grad: all_reduce has no gradient from replicated"),
        *("grad: all_gather expected placements among", "group: rank 1 is not a member"),
    ]
    for texts in run_ranks(2, _refused):
        assert len(texts) >= len(expected) - 1
        for text, start in zip(texts, expected, strict=False):
            assert text.startswith(start)


def test_a_call_before_there_are_groups_is_refused() -> None:
    with pytest.raises(tc.GroupError, match="init_process_group"):
        tc.all_reduce(torch.ones(1), grad="sum")


def test_the_convention_must_be_given() -> None:
    with pytest.raises(TypeError, match="grad"):
        tc.all_reduce(torch.ones(1))  # type: ignore[call-overload]


def _mismatches() -> list[str]:
    rank = dist.get_rank()
    texts = []
    calls = [
        lambda: tc.all_reduce(torch.ones(2 + rank), grad="sum"),
        lambda: tc.all_reduce(
            torch.ones(2, dtype=(torch.float32, torch.float64)[rank]), grad="sum"
        ),
        lambda: tc.broadcast(torch.ones(2, requires_grad=rank == 0), 0, grad="sum"),
        lambda: (tc.all_reduce, tc.reduce_scatter)[rank](torch.ones(2), grad="sum"),
        lambda: tc.broadcast(torch.ones(2), rank, grad="sum"),
    ]
    with tc.verified():
        tc.all_gather(torch.ones(1 + rank), sizes=[1, 2], grad="sum")
        for call in calls:
            try:
                call()
                texts.append("nothing was raised")
            except tc.CallMismatchError as error:
                texts.append(str(error))
    return texts


def test_mismatches_between_ranks_are_found_by_comparing() -> None:
    for shapes, dtypes, flags, ops, roots in run_ranks(2, _mismatches):
        assert "rank 1: all_reduce of torch.float32 (3,)" in shapes
        assert "rank 1: all_reduce of torch.float64" in dtypes
        assert "rank 1: broadcast of torch.float32 (2,), requires_grad=False" in flags
        assert "rank 1: reduce_scatter" in ops
        assert "rank 1: broadcast of torch.float32 (2,), requires_grad=False, [1, False]" in roots
