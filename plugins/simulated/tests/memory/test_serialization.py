"""Saving, loading, copying and pickling tensors of the device."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch


def _round_trip(value: object, **options: object) -> object:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True, **options)


def test_a_tensor_comes_back_to_its_device() -> None:
    x = torch.arange(4.0, device="simulated:1")
    loaded = _round_trip(x)
    assert isinstance(loaded, torch.Tensor)
    assert loaded.device == torch.device("simulated:1")
    assert loaded.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("target", ["cpu", "simulated:0", "simulated:1", torch.device("cpu")])
def test_map_location_moves_what_was_saved(target: str | torch.device) -> None:
    x = torch.arange(4.0, device="simulated:1")
    loaded = _round_trip(x, map_location=target)
    assert isinstance(loaded, torch.Tensor)
    assert loaded.device == torch.device(target)
    assert loaded.tolist() == [0, 1, 2, 3]


def test_cpu_tensors_are_loaded_onto_the_device() -> None:
    loaded = _round_trip({"x": torch.ones(2)}, map_location="simulated")
    assert isinstance(loaded, dict)
    assert loaded["x"].is_simulated
    assert loaded["x"].tolist() == [1, 1]


def test_views_of_one_storage_stay_views_of_one_storage() -> None:
    x = torch.zeros(4, device="simulated")
    loaded = _round_trip([x, x[1:3]])
    assert isinstance(loaded, list)
    loaded[1].fill_(1)
    assert loaded[0].tolist() == [0, 1, 1, 0]


def test_a_module_and_its_optimizer_resume() -> None:
    model = torch.nn.Linear(2, 2).to("simulated")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2, device="simulated")).sum().backward()
    optimizer.step()
    state = _round_trip({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert isinstance(state, dict)
    other = torch.nn.Linear(2, 2).to("simulated")
    other.load_state_dict(state["model"])
    resumed = torch.optim.AdamW(other.parameters())
    resumed.load_state_dict(state["optimizer"])
    assert torch.equal(other.weight.cpu(), model.weight.cpu())
    assert resumed.state[other.weight]["exp_avg"].is_simulated


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), torch.clone]
)
def test_a_copy_is_equal_and_apart(duplicate: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.arange(6.0, device="simulated").reshape(2, 3).t()
    twin = duplicate(x)
    assert twin.device == x.device
    assert twin.stride() == x.stride()
    x.fill_(0)
    assert twin.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_numpy_needs_the_cpu() -> None:
    x = torch.ones(2, device="simulated")
    with pytest.raises(TypeError, match="host memory"):
        x.numpy()
    assert x.cpu().numpy().tolist() == [1, 1]
