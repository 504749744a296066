"""Other processes: forked ones inherit the device, spawned ones load it themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

FreshPython = Callable[..., str]

_PROGRAM = """
import multiprocessing
import torch

def work(queue, x):
    y = x if x is not None else torch.ones(3, device="simulated")
    queue.put(((y * 2 + 1).cpu().tolist(), torch.accelerator.device_count()))

if __name__ == "__main__":
    x = {tensor}
    context = multiprocessing.get_context("{method}")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue, x))
    child.start()
    print(queue.get(timeout=500))
    child.join()
    assert child.exitcode == 0
    print((torch.ones(2, device="simulated") + 1).tolist())
"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("method", "tensor"),
    [("fork", "torch.ones(3, device='simulated')"), ("fork", "None"), ("spawn", "None")],
)
def test_a_child_process_computes_on_the_device(
    fresh_python: FreshPython, tmp_path: object, method: str, tensor: str
) -> None:
    # A spawned child imports the main program, so it has to be a file.
    program = f"""
import pathlib, runpy, sys
path = pathlib.Path({str(tmp_path)!r}) / "program.py"
path.write_text({_PROGRAM.format(method=method, tensor=tensor)!r})
import subprocess
sys.exit(subprocess.run([sys.executable, str(path)]).returncode)
"""
    lines = fresh_python(program).splitlines()
    assert lines == ["([3.0, 3.0, 3.0], 2)", "[2.0, 2.0]"]


def test_queued_work_is_inherited_by_a_fork(fresh_python: FreshPython) -> None:
    program = """
import os
import torch
x = torch.zeros(1, device="simulated")
torch.accelerator.synchronize()
with torch.Stream("simulated") as stream:
    x.fill_(7)
child = os.fork()
stream.synchronize()
assert x.item() == 7
if child == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert fresh_python(program) == "0"


@pytest.mark.sweep
def test_threads_share_the_device(fresh_python: FreshPython) -> None:
    program = """
import threading
import torch

def work(results, seed):
    x = torch.full((50, 50), float(seed), device="simulated", requires_grad=True)
    for _ in range(20):
        (g,) = torch.autograd.grad((x.t() @ x).sum(), x)
    results[seed] = g[0, 0].item()

results = {}
threads = [threading.Thread(target=work, args=(results, seed)) for seed in range(1, 5)]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
print(sorted(results.items()))
"""
    assert fresh_python(program) == str([(seed, 100.0 * seed) for seed in range(1, 5)])


def test_a_process_that_ends_right_after_a_backward_ends_well(fresh_python: FreshPython) -> None:
    """The engine's threads free tensors late, but not once the interpreter is finalised."""
    program = """
import sys
import torch
# A thread that waits for the interpreter's lock does not get it before the main thread ends.
sys.setswitchinterval(1000)
for _ in range(20):
    x = torch.ones(50, 50, device="simulated", requires_grad=True)
    (g,) = torch.autograd.grad((x.t() @ x).sum(), x)
"""
    assert fresh_python(program) == ""
