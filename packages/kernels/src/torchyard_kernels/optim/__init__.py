"""Optimisers whose pointwise work is one fused call per step, for any number of parameters.

They keep torch's names, arguments and state: a ``state_dict`` of torch.optim's goes on here, and
one of these goes on there. What is pointwise is computed in float32 for bfloat16 and float16
parameters and rounded once per step, where torch rounds at every operation.
"""

from __future__ import annotations

from torchyard_kernels.optim._adafactor import Adafactor
from torchyard_kernels.optim._adamw import AdamW
from torchyard_kernels.optim._lion import Lion
from torchyard_kernels.optim._muon import Muon
from torchyard_kernels.optim._steps import StepOptionError

__all__ = ["Adafactor", "AdamW", "Lion", "Muon", "StepOptionError"]
