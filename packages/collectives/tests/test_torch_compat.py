"""torch's private parts: this torch has all that the package uses, and what it does with them."""

from __future__ import annotations

import subprocess
import sys
from types import MappingProxyType

import pytest
import torch
from torch.distributed import device_mesh

from torchyard import child_environ
from torchyard_collectives import _torch_compat as compat

# The compiler imports a module of torch whose default arguments are the default group.
_LEAVES = """
import os, weakref
import torch, torch.distributed as dist
import torchyard_collectives
def threads():
    return sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in
                  os.listdir("/proc/self/task"))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(2))
assert any("gloo" in name for name in threads()), threads()
import torch._dynamo
group = weakref.ref(dist.group.WORLD)
dist.destroy_process_group()
assert group() is None
assert not any("gloo" in name for name in threads()), threads()
"""


# torch 2.11 compiles no collective of a group, and has no registry for what it may read.
_LACKS = (
    () if hasattr(device_mesh, "_register_distributed_opaque_types") else ("let_compiler_read",)
)


def test_this_torch_has_every_part() -> None:
    assert compat.missing() == _LACKS


def test_a_part_that_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> bool:
        return bool(vars(torch._C)["_no_such_part"])

    probes = MappingProxyType({**compat.PROBES, "gone": gone, "other": lambda: False})
    monkeypatch.setattr(compat, "PROBES", probes)
    assert compat.missing() == (*_LACKS, "gone", "other")


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="threads are listed in /proc")
def test_a_destroyed_group_is_gone_with_its_threads() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _LEAVES], env=child_environ({}), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
