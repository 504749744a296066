"""What importing the packages brings in beside torch, counted rather than timed."""

from __future__ import annotations

import json
import subprocess
import sys

from torchyard import child_environ

# Each takes as long to import as torch does, or longer; only some calls need them.
_HEAVY = (
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "transformers",
    "triton",
)
_PACKAGES = (
    "torchyard_programs",
    "torchyard_kernels",
    "torchyard_collectives",
    "torchyard_attention",
    "torchyard_context_parallel",
    "torchyard_context_parallel.transformers",
    "torchyard_cache",
    "torchyard_cache.artifacts",
    "torchyard_compile",
)


def test_importing_a_package_brings_in_nothing_that_only_some_calls_need() -> None:
    program = f"""
import importlib, json, sys
import torch
seen, brought = set(sys.modules), {{}}
for package in {_PACKAGES!r}:
    importlib.import_module(package)
    brought[package] = [name for name in {_HEAVY!r} if name in sys.modules and name not in seen]
    seen.update(sys.modules)
print(json.dumps(brought))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=child_environ({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {package: [] for package in _PACKAGES}
