"""torch for the command line: imported if it is there, and a reason if it is not."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType

from torchyard._failure import describe


@dataclass(frozen=True, slots=True)
class TorchStatus:
    """Torch as this process has it.

    Attributes:
        module: torch, or None.
        installed: whether there is a torch to import.
        problem: why it could not be imported; empty where it could or is not installed.
    """

    module: ModuleType | None
    installed: bool
    problem: str = ""


def load_torch() -> TorchStatus:
    """Import torch, which also loads the device plugins that torch knows."""
    try:
        if find_spec("torch") is None:
            return TorchStatus(None, False)
        import torch
    except KeyboardInterrupt:
        raise
    # A device plugin of torch may do anything while torch imports it, and that is fatal to torch.
    except BaseException as error:
        return TorchStatus(None, True, describe(error))
    return TorchStatus(torch, True)
