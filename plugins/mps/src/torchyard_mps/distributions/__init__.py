"""Distributions of torch.distributions, drawn by kernels in Metal.

Each class is torch's of its name, with its parameters, checks, densities and moments; what is
drawn comes from kernels of ours. A draw is a function of a key, which is taken from torch's
generator of the CPU, of the element's place and of its parameters: ``torch.manual_seed`` reproduces
it, and neither the launch's shape nor the sizes before it change it.
"""

from __future__ import annotations

from torchyard_mps.distributions._angles import VonMises
from torchyard_mps.distributions._categories import Categorical, multinomial
from torchyard_mps.distributions._counts import Binomial, Geometric, NegativeBinomial, Poisson
from torchyard_mps.distributions._positive import Chi2, Exponential, Gamma, LogNormal
from torchyard_mps.distributions._real import Normal, StudentT
from torchyard_mps.distributions._simplex import Beta, Dirichlet

__all__ = [
    "Beta",
    "Binomial",
    "Categorical",
    "Chi2",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "Geometric",
    "LogNormal",
    "NegativeBinomial",
    "Normal",
    "Poisson",
    "StudentT",
    "VonMises",
    "multinomial",
]
