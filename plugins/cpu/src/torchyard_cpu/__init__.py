"""Native CPU kernels for torchyard.

Importing this package imports neither torch nor the native module.
"""

__all__: list[str] = []

__version__ = "0.1.0.dev0"
