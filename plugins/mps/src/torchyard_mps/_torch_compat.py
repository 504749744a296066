"""What torch does not publish and this plugin uses of it: modes below autograd.

No other module of the package names a private part of torch. Without it an ImportError where
indices are to be checked.
"""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode

__all__ = ["DispatchMode"]
