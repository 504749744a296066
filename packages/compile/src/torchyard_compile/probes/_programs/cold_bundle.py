"""A bundle of compiled artifacts saves a second process the compiler."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch


def run(folder, path=None):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    if path is not None:
        torch.compiler.load_cache_artifacts(Path(path).read_bytes())
    begun = time.perf_counter()
    torch.compile(lambda x: (x * 2).relu().sum())(torch.randn(100))
    return time.perf_counter() - begun


if len(sys.argv) > 1:
    print(run(*sys.argv[1:]))
else:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        cold = run(one)
        path = os.path.join(one, "bundle")
        with open(path, "wb") as file:
            file.write(torch.compiler.save_cache_artifacts()[0])
        command = [sys.executable, __file__, two, path]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        warm = float(done.stdout.splitlines()[-1])
        if warm > 0.5 * cold:
            sys.exit(f"slow: {warm:.1f} s from a bundle, {cold:.1f} s without")
