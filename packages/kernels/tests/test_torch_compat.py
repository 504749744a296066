"""The private parts of torch that the package uses are as it expects."""

from __future__ import annotations

import torch

from torchyard_kernels import _torch_compat as compat


def test_storages_are_told_apart_by_identity() -> None:
    one, other = torch.zeros(4), torch.zeros(4)
    assert compat.storage_identity(one) == compat.storage_identity(one[2:])
    assert compat.storage_identity(one) != compat.storage_identity(other)


def test_lists_of_tensors_are_added_to_and_measured() -> None:
    tensors = [torch.tensor([3.0, 4.0]), torch.tensor([1.0])]
    assert [float(norm) for norm in compat.norms_of(tensors)] == [5.0, 1.0]
    compat.add_to_each(tensors, 1)
    assert tensors[0].tolist() == [4.0, 5.0]


def test_graph_optimization_is_switched_back_on() -> None:
    before = torch._C._get_graph_executor_optimize()
    with compat.without_graph_optimization():
        assert not torch._C._get_graph_executor_optimize()
    assert torch._C._get_graph_executor_optimize() == before


def test_a_graph_can_be_made() -> None:
    graph = compat.jit.Graph()
    assert compat.jit.ListType(compat.jit.TensorType.get()) is not None
    assert callable(compat.jit._create_function_from_graph("empty", graph))


def test_a_tree_is_taken_apart_and_put_together() -> None:
    leaves, spec = compat.tree_flatten({"a": [1, 2]})
    assert compat.tree_unflatten(leaves, spec) == {"a": [1, 2]}
