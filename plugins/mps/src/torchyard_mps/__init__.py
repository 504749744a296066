"""torchyard on Apple GPUs: recorded programs in Metal, and kernels that compute them.

Nothing here imports Metal or touches a device: what a launch needs is data, which
``torchyard_conformance.metal`` runs on any machine.
"""

__all__: list[str] = []

__version__ = "0.1.0.dev0"
