"""torch.distributed on a device: two processes over loopback."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, nn

from torchyard_conformance._device._model import compare, gradients, pair
from torchyard_conformance._outcome import Violated, unverified, violated

__all__ = ["check_collectives", "run_rank"]

_RANKS = 2
_LIMIT = timedelta(minutes=4)


def check_collectives(device: str, first: str = "") -> None:
    """Have two processes exchange tensors of a device, and train under DDP, FSDP2 and DTensor.

    Args:
        device: its type.
        first: code that each process runs first.

    Raises:
        Violated: the device has no backend, a process failed, or a result differs.
        Unverified: this torch has no torch.distributed.
    """
    if not distributed.is_available():
        unverified("this torch has no torch.distributed")
    backend = distributed.get_default_backend_for_device(device)
    if device not in distributed.Backend.backend_capability.get(backend, []):
        violated(f"expected a backend of torch.distributed for {device}, got {backend}")
    with tempfile.TemporaryDirectory(prefix="torchyard-ranks-") as folder:
        code = f"{first}\nfrom {__name__} import run_rank\n"
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", f"{code}run_rank({device!r}, {rank}, {folder!r})"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(_RANKS)
        ]
        try:
            errors = [process.communicate(timeout=300)[1] for process in processes]
        except subprocess.TimeoutExpired:
            violated("expected two ranks to end, they were still running after 300 s")
        finally:
            for process in processes:
                process.kill()
        said = [path.read_text() for path in sorted(Path(folder).glob("broken-*"))]
    if said:
        violated(said[0])
    for rank, process in enumerate(processes):
        if process.returncode:
            last = " ".join(errors[rank].split()[-40:])
            violated(f"expected rank {rank} to end well, got status {process.returncode}: {last}")


def run_rank(device: str, rank: int, folder: str) -> None:
    """Be one of the processes; write down what is broken."""
    from torchyard import registry

    registry().probe_device(device)
    backend = distributed.get_default_backend_for_device(device)
    place = Path(folder, "store").as_uri()
    distributed.init_process_group(
        backend, init_method=place, rank=rank, world_size=_RANKS, timeout=_LIMIT
    )
    torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
    try:
        _exchange(device, rank)
        _train(device, rank)
        _shard(device, rank)
        _split(device)
    except Violated as error:
        Path(folder, f"broken-{rank}").write_text(f"rank {rank}: {error}", encoding="utf-8")
    else:
        distributed.destroy_process_group()


def _exchange(device: str, rank: int) -> None:
    mine = torch.arange(4.0) + 10 * rank
    both = [torch.arange(4.0), torch.arange(4.0) + 10]
    summed = mine.to(device)
    distributed.all_reduce(summed)
    compare("all_reduce", summed, both[0] + both[1])
    sent = mine.to(device)
    distributed.broadcast(sent, 1)
    compare("broadcast", sent, both[1])
    gathered = torch.empty(8, device=device)
    distributed.all_gather_into_tensor(gathered, mine.to(device))
    compare("all_gather_into_tensor", gathered, torch.cat(both))
    part = torch.empty(2, device=device)
    distributed.reduce_scatter_tensor(part, mine.to(device))
    compare("reduce_scatter_tensor", part, (both[0] + both[1])[2 * rank : 2 * rank + 2])


def _train(device: str, rank: int) -> None:
    host, module, x = pair(device)
    spread = nn.parallel.DistributedDataParallel(module)
    spread(x[2 * rank : 2 * rank + 2].to(device)).square().mean().backward()
    host(x).square().mean().backward()
    wanted = gradients(host)
    for name, gradient in gradients(module).items():
        compare(f"the gradient of {name} under DDP", gradient, wanted[name])


def _shard(device: str, rank: int) -> None:
    # A torch without torch.distributed has neither.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    host, module, x = pair(device)
    mesh = init_device_mesh(device, (_RANKS,))
    # The layers and the rest are gathered by themselves, as in a model of many blocks.
    fully_shard(module.mlp, mesh=mesh)
    fully_shard(module, mesh=mesh)
    # Adam would divide by the norm of gradients that are rounding alone, as a key's bias has.
    ours = torch.optim.SGD(module.parameters(), lr=0.1)
    theirs = torch.optim.SGD(host.parameters(), lr=0.1)
    module(x[2 * rank : 2 * rank + 2].to(device)).square().mean().backward()
    host(x).square().mean().backward()
    wanted = gradients(host)
    for name, gradient in _whole_gradients(module, "FSDP2").items():
        compare(f"the gradient of {name} under FSDP2", gradient, wanted[name])
    ours.step()
    theirs.step()
    stepped = dict(host.named_parameters())
    for name, parameter in module.named_parameters():
        compare(f"{name} after a step under FSDP2", _whole(parameter), stepped[name])


def _split(device: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    host, module, x = pair(device)
    mesh = init_device_mesh(device, (_RANKS,))
    parallelize_module(module.mlp, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    out, expected = module.mlp(x.to(device)), host.mlp(x)
    compare("two linear layers under tensor parallelism", out, expected)
    out.square().mean().backward()
    expected.square().mean().backward()
    wanted = gradients(host.mlp)
    for name, gradient in _whole_gradients(module.mlp, "tensor parallelism").items():
        compare(f"the gradient of {name} under tensor parallelism", gradient, wanted[name])


def _whole_gradients(module: nn.Module, under: str) -> dict[str, torch.Tensor]:
    """Return gradients that lie on several ranks, whole.

    Raises:
        Violated: a parameter has none.
    """
    found = {}
    for name, parameter in module.named_parameters():
        if parameter.grad is None:
            violated(f"expected a gradient of {name} under {under}, got None")
        found[name] = _whole(parameter.grad)
    return found


def _whole(spread: torch.Tensor) -> torch.Tensor:
    """Return what the ranks have of a tensor.

    Raises:
        Violated: it lies on one rank alone.
    """
    from torch.distributed.tensor import DTensor

    if not isinstance(spread, DTensor):
        violated(f"expected a DTensor on {_RANKS} ranks, got {type(spread).__name__}")
    return spread.full_tensor().detach()
