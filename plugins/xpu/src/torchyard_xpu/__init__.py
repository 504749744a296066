"""torchyard on Intel GPUs.

Importing this package imports neither torch nor triton.
"""

__all__: list[str] = []

__version__ = "0.1.0.dev0"
