"""Programs of the operators that users of Apple GPUs ask for most, and of those that were wrong.

From pytorch's threads 77764, 141287 and 154052, and from reports of wrong results with tensors that
are not contiguous (171602, 189968, 192212, 197114).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["PROGRAMS"]

# Makes a tensor with this function on the device that is tried, so that all are drawn alike.
_On = Callable[[Tensor], Tensor]
_Program = Callable[[_On], Any]


def _drawn(*shape: int) -> Tensor:
    """Return the same numbers in every call, whatever was drawn before."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _positive(size: int) -> Tensor:
    """Return a symmetric matrix with eigenvalues of 1 and more."""
    square = _drawn(size, size)
    return square @ square.mT + torch.eye(size)


def _flat(*parts: Tensor) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def _gradients(result: Tensor, *inputs: Tensor) -> Tensor:
    return _flat(*torch.autograd.grad(result.square().sum(), inputs))


def _ctc_losses(logits: Tensor, targets: Tensor) -> Tensor:
    lengths = torch.tensor([20, 20]), torch.tensor([3, 3])
    return functional.ctc_loss(logits.log_softmax(-1), targets, *lengths)


def _ctc_loss(on: _On) -> Tensor:
    return _ctc_losses(on(_drawn(20, 2, 6)), on(torch.tensor([[1, 2, 3], [4, 5, 1]])))


def _ctc_loss_gradient(on: _On) -> Tensor:
    logits = on(_drawn(20, 2, 6)).requires_grad_()
    return _gradients(_ctc_losses(logits, on(torch.tensor([[1, 2, 3], [4, 5, 1]]))), logits)


def _max_unpool2d(on: _On) -> Tensor:
    values, indices = functional.max_pool2d(_drawn(1, 2, 8, 8), 2, return_indices=True)
    return functional.max_unpool2d(on(values), on(indices), [2, 2])


def _max_unpool3d(on: _On) -> Tensor:
    values, indices = functional.max_pool3d(_drawn(1, 2, 4, 6, 4), 2, return_indices=True)
    return functional.max_unpool3d(on(values), on(indices), [2, 2, 2])


def _sampled(on: _On, wanted: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return a volume, a grid, and the samples; channels last in memory, as was wrong."""
    volume = on(_drawn(1, 4, 5, 6, 3)).permute(0, 4, 1, 2, 3).requires_grad_(wanted)
    grid = on(_drawn(1, 3, 4, 5, 3).tanh()).requires_grad_(wanted)
    return volume, grid, functional.grid_sample(volume, grid, align_corners=False)


def _grid_sample_gradient(on: _On) -> Tensor:
    volume, grid, samples = _sampled(on, wanted=True)
    return _gradients(samples, volume, grid)


def _eigenvalues(on: _On) -> Tensor:
    found: Tensor = torch.linalg.eigvals(on(_drawn(6, 6))).cpu().abs().sort().values
    return found


def _eigenvectors(on: _On) -> Tensor:
    """Return the matrix that they are of, since their order and phases are free."""
    values, vectors = (part.cpu() for part in torch.linalg.eig(on(_drawn(6, 6))))
    found: Tensor = (vectors @ values.diag() @ vectors.inverse()).real
    return found


def _index_copy(on: _On) -> Tensor:
    # Into every other column.
    into = on(torch.zeros(4, 12))[:, ::2]
    return into.index_copy_(1, on(torch.tensor([5, 0])), on(_drawn(4, 2)))


def _conv(dimensions: int) -> _Program:
    def run(on: _On) -> Tensor:
        kernel = _drawn(5, 3, *[3] * dimensions)
        image = on(_drawn(2, *[9] * dimensions, 3)).movedim(-1, 1)
        function = functional.conv2d if dimensions == 2 else functional.conv3d
        return function(image, on(kernel), padding=1)

    return run


def _scaled(on: _On) -> tuple[torch.amp.GradScaler, Any, list[Tensor]]:
    """Return a scaler after a backward pass whose last gradient is infinite, and an optimiser."""
    weights = [on(_drawn(5)).requires_grad_(), on(torch.tensor([2.0, torch.inf])).requires_grad_()]
    scaler = torch.amp.GradScaler(weights[0].device.type, init_scale=1024.0)
    # What the scaler reads of one; to make one of torch's imports torch.compile, for seconds.
    optimizer = SimpleNamespace(param_groups=[{"params": weights}])
    loss: Any = scaler.scale(_flat(*weights).square().sum())
    loss.backward()
    return scaler, optimizer, weights


def _unscaled(on: _On) -> Tensor:
    scaler, optimizer, weights = _scaled(on)
    scaler.unscale_(optimizer)
    return _flat(*(one.grad for one in weights if one.grad is not None))[:6]


def _next_scale(on: _On) -> Tensor:
    scaler, optimizer, weights = _scaled(on)
    scaler.step(optimizer)
    scaler.update()
    return weights[0].new_tensor(scaler.get_scale())


def _lstm(on: _On) -> Tensor:
    torch.manual_seed(0)
    layer = nn.LSTM(5, 7)
    x = on(_drawn(4, 2, 5))
    found: Tensor = layer.to(x.device)(x)[0]
    return found


def _put(on: _On) -> Tensor:
    # Into every other column.
    into = on(torch.zeros(4, 12))[:, ::2]
    return into.put_(on(torch.tensor([5, -1, 7])), on(_drawn(3)))


def _unique(on: _On) -> Tensor:
    unique: Any = torch.unique
    found: Tensor = unique(on(torch.tensor([3, 1, 3, 7])))
    return found


PROGRAMS: Final = MappingProxyType[str, _Program](
    {
        "bincount": lambda on: on(torch.tensor([1, 4, 1, 0])).bincount(minlength=6),
        "bmm of transposed batches": lambda on: torch.bmm(
            on(_drawn(3, 6, 4)).mT, on(_drawn(3, 5, 6)).mT
        ),
        "cholesky_solve": lambda on: torch.cholesky_solve(
            on(_drawn(5, 2)), torch.linalg.cholesky(on(_positive(5)))
        ),
        "conv2d, channels last": _conv(2),
        "conv3d, channels last": _conv(3),
        "ctc_loss": _ctc_loss,
        "ctc_loss, gradient": _ctc_loss_gradient,
        "cummax": lambda on: on(_drawn(4, 9)).cummax(1).values,
        "float64": lambda on: on(_drawn(3).double()) * 2,
        "grid_sampler_3d": lambda on: _sampled(on, wanted=False)[2],
        "grid_sampler_3d, gradient": _grid_sample_gradient,
        "GradScaler, unscale_": _unscaled,
        "GradScaler, update": _next_scale,
        "histc": lambda on: on(_drawn(50)).histc(8, -2.0, 2.0),
        "index_copy_ into a view": _index_copy,
        "isin": lambda on: torch.isin(on(torch.arange(9)), on(torch.tensor([2, 7]))),
        "kthvalue": lambda on: on(_drawn(4, 9)).kthvalue(3, 1).values,
        "lgamma and digamma": lambda on: torch.special.digamma(on(_drawn(9)).abs() + 0.1).add(
            torch.lgamma(on(_drawn(9)).abs() + 0.1)
        ),
        "linalg.eig": _eigenvectors,
        "linalg.eigvals": _eigenvalues,
        "linalg.eigh": lambda on: torch.linalg.eigvalsh(on(_positive(6))),
        "linalg.lstsq": lambda on: torch.linalg.lstsq(on(_drawn(7, 3)), on(_drawn(7, 2))).solution,
        "linalg.qr": lambda on: torch.linalg.qr(on(_positive(5))).R.abs(),
        "linalg.svd": lambda on: torch.linalg.svdvals(on(_drawn(6, 4))),
        "logcumsumexp": lambda on: on(_drawn(4, 9)).logcumsumexp(1),
        "LSTM": _lstm,
        "max_unpool2d": _max_unpool2d,
        "max_unpool3d": _max_unpool3d,
        "median of a dimension": lambda on: on(_drawn(4, 9)).median(1).values,
        "mode": lambda on: on(torch.tensor([[1, 2, 2, 5], [3, 3, 4, 0]])).mode(1).values,
        "nonzero": lambda on: on(_drawn(4, 9) > 0).nonzero(),
        "put_": _put,
        "searchsorted": lambda on: torch.searchsorted(on(torch.arange(9.0)), on(_drawn(6))),
        "sort, stable": lambda on: torch.sort(on(_drawn(4, 9).round()), dim=1, stable=True).indices,
        "take": lambda on: on(_drawn(4, 9)).mT.take(on(torch.tensor([[0, -1], [5, 7]]))),
        "topk of 50": lambda on: on(_drawn(2, 200)).topk(50).values,
        "unique": lambda on: _unique(on),
    }
)
