"""Tests that torch has for its own backends, from its wheel, on this one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

from .ranks import run_ranks

# What differs on purpose: torch.distributed refuses all backends but gloo there, or the test
# compares the backend's name or gloo's words.
_GLOO_ONLY = {
    "test_get_backend",
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_gloo_rank_0_timeout",
    "test_monitored_barrier_gloo_subgroup",
}
# Needs a server at a port, torchvision, NCCL, accelerators, or four ranks.
_ELSEWHERE = {
    "test_barrier_timeout_global",
    "test_batch_isend_irecv_mixed_backend_err",
    "test_batch_isend_irecv_op_err",
    "test_new_subgroups_with_group_param",
    "test_SyncBatchNorm_process_group",
}


def _suite(folder: str) -> tuple[list[str], dict[str, str]]:
    """Run the suite on one rank; return what passed, and what failed with the reason."""
    import torch
    import torch.distributed as dist

    # The suite takes these from the environment when it is imported; it looks for gloo's name.
    os.environ.update(
        BACKEND="gloo", WORLD_SIZE=str(dist.get_world_size()), TEMP_DIR=folder, MASTER_ADDR="::1"
    )
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test as suite

    for backends in common_distributed.DistTestCases.backend_feature.values():
        if "gloo" in backends:
            backends.add("shm")
    kind: Any = type("Suite", (suite.TestDistBackend, suite.DistributedTest._DistTestBase), {})
    skips = {skip.exit_code for skip in common_distributed.TEST_SKIPS.values()}
    passed, failed = [], {}
    for name in sorted(n for n in dir(kind) if n.startswith("test_") and "cuda" not in n):
        if name in _GLOO_ONLY | _ELSEWHERE:
            continue
        case = kind(name)
        case.rank, case.file_name = dist.get_rank(), str(Path(folder) / name)
        torch.manual_seed(0)
        try:
            getattr(case, name)()
            dist.barrier()
        except SkipTest:
            continue
        except SystemExit as end:
            if end.code not in skips:
                failed[name] = f"exit {end.code}"
        except Exception as error:
            failed[name] = repr(error)
            break
        else:
            passed.append(name)
    return passed, failed


@pytest.mark.sweep
@pytest.mark.parametrize("world", [2, 3])
def test_torchs_own_tests_of_backends_pass(world: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("barrier", "test_dir", "init_dir"):
            (Path(folder) / name).mkdir()
        found = run_ranks(world, _suite, folder, backend="shm", timeout=900, fresh=True)
    for passed, failed in found:
        assert not failed
        # 99 of them ran on torch 2.13 without an accelerator.
        assert len(passed) > 80
