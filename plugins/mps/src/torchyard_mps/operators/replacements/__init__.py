"""Kernels of ours for operators that torch's device may lack, in the order of registration."""

from __future__ import annotations

from typing import Final

from torchyard_mps.operators.replacements import (
    _grid_sampler,
    _indices,
    _kthvalue,
    _mode,
    _scaler,
    _unpooling,
)
from torchyard_mps.operators.replacements._replacement import Replacement

__all__ = ["REPLACEMENTS", "Replacement"]

# A gradient is behind what it is the gradient of, since its program calls both.
REPLACEMENTS: Final = (
    Replacement("kthvalue", {"kthvalue.values": _kthvalue.kthvalue_values}),
    Replacement("mode", {"mode": _mode.mode}),
    Replacement("nonzero", {"nonzero": _indices.nonzero, "nonzero.out": _indices.nonzero_out}),
    Replacement(
        "index_copy_ into a view",
        {
            "index_copy": _indices.index_copy,
            "index_copy_": _indices.index_copy_,
            "index_copy.out": _indices.index_copy_out,
        },
    ),
    Replacement("take", {"take": _indices.take, "take.out": _indices.take_out}),
    Replacement("put_", {"put_": _indices.put_}),
    Replacement(
        "max_unpool2d",
        {"max_unpool2d": _unpooling.max_unpool2d, "max_unpool2d.out": _unpooling.max_unpool2d_out},
    ),
    Replacement(
        "max_unpool3d",
        {"max_unpool3d": _unpooling.max_unpool3d, "max_unpool3d.out": _unpooling.max_unpool3d_out},
    ),
    Replacement("grid_sampler_3d", {"grid_sampler_3d": _grid_sampler.grid_sampler_3d}),
    Replacement(
        "grid_sampler_3d, gradient",
        {"grid_sampler_3d_backward": _grid_sampler.grid_sampler_3d_backward},
    ),
    Replacement(
        "GradScaler, unscale_", {"_amp_foreach_non_finite_check_and_unscale_": _scaler.unscale_}
    ),
    Replacement("GradScaler, update", {"_amp_update_scale_": _scaler.update_scale_}),
    Replacement("ctc_loss", {}, ("_ctc_loss", "_ctc_loss.Tensor")),
    Replacement("ctc_loss, gradient", {}, ("_ctc_loss_backward", "_ctc_loss_backward.Tensor")),
    Replacement("linalg.eigh", {}, ("_linalg_eigh", "_linalg_eigh.eigenvalues")),
    Replacement("linalg.svd", {}, ("_linalg_svd", "_linalg_svd.U")),
    Replacement("linalg.eig", {}, ("linalg_eig", "linalg_eig.out")),
    Replacement("linalg.eigvals", {}, ("_linalg_eigvals", "linalg_eigvals.out")),
    Replacement("linalg.qr", {}, ("linalg_qr", "linalg_qr.out")),
    Replacement("linalg.lstsq", {}, ("linalg_lstsq.out",)),
)
