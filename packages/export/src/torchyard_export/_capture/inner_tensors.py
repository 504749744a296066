"""Parameters that are tensor subclasses, given to torch.export as the plain tensors in them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from torchyard_export._torch_compat import is_traceable_wrapper_subclass

__all__ = ["with_inner_tensors"]


def with_inner_tensors(model: nn.Module) -> nn.Module:
    """Return a model whose parameters are plain tensors, over the same memory.

    A program holds what a subclass is made of, such as a packed weight's tensors, as it is, and can
    be saved and run where the subclass is unknown. A subclass says what it is made of by torch's
    protocol, ``__tensor_flatten__``; one that does not is memory of its own and becomes a plain
    parameter. The model itself is not changed.
    """
    kinds = {type(parameter) for parameter in model.parameters()}
    if kinds <= {nn.Parameter}:
        return model
    tensors = [*model.parameters(), *model.buffers()]
    copied: nn.Module = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    plain: dict[int, nn.Parameter] = {}
    for module in list(copied.modules()):
        own = module.named_parameters(recurse=False, remove_duplicate=False)
        found: list[tuple[str, Any]] = list(own)
        for name, parameter in found:
            if type(parameter) is nn.Parameter:
                continue
            if is_traceable_wrapper_subclass(parameter):
                parametrize.register_parametrization(module, name, _Rebuilt(), unsafe=True)
            else:
                made = nn.Parameter(parameter.detach(), parameter.requires_grad)
                setattr(module, name, plain.setdefault(id(parameter), made))
    return copied


class _Rebuilt(nn.Module):
    """Makes a subclass of the tensors that it is made of."""

    def right_inverse(self, tensor: Any) -> tuple[Tensor, ...]:
        self.names, self.context = tensor.__tensor_flatten__()
        self.kind, self.size, self.stride = type(tensor), tensor.size(), tensor.stride()
        return tuple(getattr(tensor, name) for name in self.names)

    def forward(self, *tensors: Tensor) -> Tensor:
        inner = dict(zip(self.names, tensors, strict=True))
        found: Any = self.kind.__tensor_unflatten__(inner, self.context, self.size, self.stride)
        # The graph that is recorded knows these tensors, and may be given calls on them.
        found.inner_tensors_are_recorded = torch.compiler.is_exporting()
        return found  # type: ignore[no-any-return]
