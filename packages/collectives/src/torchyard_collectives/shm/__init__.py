"""The backend ``"shm"`` of torch.distributed: processes of one host share memory.

``torch.distributed.init_process_group("shm")``, or ``"cpu:shm,cuda:nccl"``, once this is imported.
Hosts are bridged by gloo. Nothing native is loaded before a group is made.
"""

from __future__ import annotations

from typing import Any

from torch.distributed import Backend, ProcessGroup

from torchyard_collectives._torch_compat import backend_creator
from torchyard_collectives.shm._errors import (
    ForkedProcessError,
    GroupClosedError,
    RankLostError,
    RankMismatchError,
    RankTimeoutError,
    SharedMemoryError,
    WaitTimeoutError,
)

__all__ = [
    "ForkedProcessError",
    "GroupClosedError",
    "RankLostError",
    "RankMismatchError",
    "RankTimeoutError",
    "SharedMemoryError",
    "WaitTimeoutError",
    "register_backend",
]

_NAME = "shm"


def register_backend() -> None:
    """Tell torch.distributed of the backend; more than once does no harm."""
    if backend_creator(_NAME) is None:
        Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu"])


def _create(options: Any, backend_options: Any) -> ProcessGroup:
    """Make the group that torch.distributed asks for."""
    from torchyard_collectives.shm._create import make_group

    return make_group(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
        list(options.global_ranks_in_group),
    )
