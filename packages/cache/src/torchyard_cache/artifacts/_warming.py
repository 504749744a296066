"""A recipe: functions that compile what a model needs, each run in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.progress import Progress

from torchyard import child_environ
from torchyard_cache import torch_compat
from torchyard_cache._errors import CacheError
from torchyard_cache.artifacts._manifest import Manifest
from torchyard_cache.artifacts._saving import merge, save

__all__ = ["functions_of", "warm_recipe"]

_PREFIX = "warm"


def functions_of(recipe: Path) -> dict[str, Callable[[], object]]:
    """Import a recipe, and return its functions whose names begin with ``warm``, in its order.

    Raises:
        CacheError: it cannot be imported, or has none.
    """
    spec = importlib.util.spec_from_file_location(recipe.stem, recipe)
    if spec is None or spec.loader is None:
        raise CacheError(f"{recipe}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[recipe.stem] = module
    spec.loader.exec_module(module)
    found = {
        name: value
        for name, value in vars(module).items()
        if name.startswith(_PREFIX) and callable(value)
    }
    if not found:
        raise CacheError(f"{recipe}: expected functions whose names begin with {_PREFIX}")
    return found


def warm_recipe(recipe: Path, out: str, *, jobs: int = 1, key: str | None = None) -> Manifest:
    """Run each function of a recipe in a process of its own, and join what they compiled.

    Args:
        recipe: a Python file.
        out: where the bundle goes.
        jobs: how many processes run at once.
        key: file of the private key that signs; None: the user's own.

    Raises:
        CacheError: a function failed; with the end of what it printed.
    """
    names = list(functions_of(recipe))
    with tempfile.TemporaryDirectory() as folder, Progress() as progress:
        task = progress.add_task(recipe.name, total=len(names))

        def run(name: str) -> Path:
            part = Path(folder, f"{name}.bundle")
            command = [sys.executable, "-m", __name__, str(recipe), name, str(part)]
            # Compiles afresh: what is found in a cache of the user's is not made by this machine.
            caches = {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder, name))}
            done = subprocess.run(
                command, env=child_environ(caches), capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise CacheError(f"{recipe}: {name} failed: {done.stderr[-2000:]}")
            progress.advance(task)
            return part

        with ThreadPoolExecutor(jobs) as pool:
            parts = list(pool.map(run, names))
        return merge(parts, out, name=Path(out).stem, key=key).manifest


def _main(words: list[str]) -> None:
    recipe, name, part = words
    torch_compat.watch_compilations()
    functions_of(Path(recipe))[name]()
    save(part)


if __name__ == "__main__":
    _main(sys.argv[1:])
