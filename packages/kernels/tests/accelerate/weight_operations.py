"""What people do to a model's weights."""

from __future__ import annotations

import copy
import warnings

import torch

from .small_models import outputs


def linears(model):
    """Linear layers that nothing shares its weight with, with what they are in."""
    holders = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    return [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and holders.get(id(module._parameters["weight"])) == 1
    ]


def _other_state(model):
    generator = torch.Generator().manual_seed(7)
    return {
        name: tensor * 1.25 + 0.01 * torch.randn(tensor.shape, generator=generator)
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in model.state_dict().items()
    }


def _consistent(model, state):
    """Give names of one parameter one new value."""
    keys = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = keys.setdefault(id(parameter), name)
        state[name] = state[first]
    return state


def load(model):
    model.load_state_dict(_consistent(model, _other_state(model)))
    return model


def load_assign(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.load_state_dict(_consistent(model, _other_state(model)), assign=True)
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    return model


def load_into_another(model):
    state = model.state_dict()
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.copy_(torch.zeros(parameter.shape))
    other.load_state_dict(state, strict=True)
    return other


def data_replaced(model):
    for _, layer in linears(model):
        layer.weight.data = layer.weight.data * 1.5
    return model


def data_replaced_and_written(model):
    for _, layer in linears(model):
        fresh = torch.ones(layer.weight.shape) * 0.01
        layer.weight.data = fresh
        fresh[:, 1].add_(0.05)
    return model


def data_in_place(model):
    for _, layer in linears(model):
        layer.weight.data += 0.03
        layer.weight.data[1].mul_(2)
        layer.weight.data[:, 3:5] = 0.2
    return model


def embedding_data_in_place(model):
    embedding = model.get_input_embeddings().weight
    outputs(model)
    embedding.data.mul_(1.5)
    outputs(model)
    embedding.data[3] = 0.1
    return model


def copy_in_place(model):
    with torch.no_grad():
        for _, layer in linears(model):
            layer.weight.copy_(layer.weight.flip(0) * 2)
    return model


def items_in_place(model):
    with torch.no_grad():
        for _, layer in linears(model):
            layer.weight[2, 3] = 1.0
            layer.weight.view(-1)[5:9] *= 3
            layer.weight.t()[1].zero_()
    return model


def foreach_in_place(model):
    weights = [layer.weight for _, layer in linears(model)]
    with torch.no_grad():
        # GPT-2's layers are of another class, and torch refuses an empty list.
        if weights:
            torch._foreach_mul_(weights, 1.1)
    return model


def state_in_place(model):
    for name, tensor in model.state_dict().items():
        if name.endswith("norm.weight"):
            tensor.mul_(2)
    return model
