"""torchyard on Apple GPUs: random distributions, recorded programs in Metal, and their kernels.

What a launch needs is data, which ``torchyard_conformance.metal`` runs on any machine; only
``_runner`` touches a device.
"""

__all__: list[str] = []

__version__ = "0.1.0.dev0"
