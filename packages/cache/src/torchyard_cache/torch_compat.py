"""What torch does not publish and this package uses of it: compiled artifacts one by one.

``torch.compiler.save_cache_artifacts`` and ``load_cache_artifacts`` have all artifacts in one
piece. Each function here says which parts of torch it needs, tried with torch 2.13; where one is
missing it raises CacheError, and nothing else of the package is affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from torchyard_cache._errors import CacheError

__all__ = [
    "compile_counters",
    "compile_events",
    "graphs_of_artifacts",
    "inductor_folder",
    "made_artifacts",
    "put_artifacts",
    "watch_compilations",
]

# Kind and key -> torch's number of the graph whose compilation made or found it.
_GRAPHS: Final[dict[tuple[str, str], str]] = {}


def made_artifacts() -> Iterator[tuple[str, str, bytes]]:
    """Yield (kind, key, content) of what torch has compiled, or found compiled, in this process.

    Nothing is unpickled.
    """
    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        return
    found = _manager().deserialize(saved[0])
    if found is None:
        raise CacheError("torch cannot read the artifacts that it has written itself")
    for kind, artifacts in found.items():
        for artifact in artifacts:
            yield kind, artifact.key, artifact.content


def put_artifacts(artifacts: Iterable[tuple[str, str, bytes]]) -> int:
    """Put (kind, key, content) into torch's caches, which unpickle them where they are used.

    Args:
        artifacts: verified, with keys that were checked: torch writes below its cache's folder
            where the key says.

    Returns:
        How many there were.
    """
    manager, factory = _manager(), _part("CacheArtifactFactory")
    manager._ensure_cache_artifacts_registered()
    grouped: dict[str, list[Any]] = {}
    for kind, key, content in artifacts:
        try:
            artifact = factory.create(kind, key, content)
        except AssertionError as error:
            raise CacheError(
                f"torch {torch.__version__} has no artifacts of kind {kind!r}"
            ) from error
        grouped.setdefault(kind, []).append(artifact)
    manager.populate_caches(grouped)
    return sum(map(len, grouped.values()))


def watch_compilations() -> None:
    """Note from now on which graph's compilation an artifact comes from.

    Torch without such callbacks, or whose new artifacts are elsewhere, is left as it is: which
    graph an artifact belongs to is then not known.
    """
    try:
        from torch._dynamo.callback import callback_handler
    except ImportError:
        return
    callbacks = getattr(callback_handler, "end_callbacks", None)
    if callbacks is not None and _note_artifacts not in callbacks:
        callback_handler.register_end_callback(_note_artifacts)


def _note_artifacts(compilation: Any) -> None:
    """Note the graph of the artifacts that are new since the compilation before."""
    made: Any = getattr(_manager(), "_new_cache_artifacts", {})
    for kind, artifacts in made.items():
        # The newest come last.
        for artifact in reversed(artifacts):
            name = kind, artifact.key
            if name in _GRAPHS:
                break
            _GRAPHS[name] = str(compilation.compile_id)


def graphs_of_artifacts() -> Mapping[tuple[str, str], str]:
    """Return torch's number of the graph of each artifact, by kind and key, as far as noted."""
    return _GRAPHS


def inductor_folder() -> Path:
    """Return where torch keeps what it compiles."""
    try:
        from torch._inductor.runtime.cache_dir_utils import cache_dir
    except ImportError as error:
        raise CacheError(f"torch {torch.__version__} has no Inductor") from error
    return Path(cache_dir())


def compile_events() -> list[Mapping[str, Any]]:
    """Return what torch recorded of each compilation in this process, the oldest first.

    Of torch's ``CompilationMetrics`` by field; a field that another torch has not is absent.
    """
    try:
        from torch._dynamo.utils import get_compilation_metrics
    except ImportError as error:
        raise CacheError(f"torch {torch.__version__} keeps no record of compilations") from error
    return [vars(event) for event in get_compilation_metrics()]


def compile_counters() -> Mapping[str, Mapping[str, int]]:
    """Return how often the caches were bypassed and why, as torch counts it."""
    try:
        from torch._dynamo.utils import counters
    except ImportError as error:
        raise CacheError(f"torch {torch.__version__} has no counters of compilations") from error
    return {name: dict(found) for name, found in counters.items()}


def _manager() -> Any:
    manager = _part("CacheArtifactManager")
    for name in ("deserialize", "populate_caches", "_ensure_cache_artifacts_registered"):
        if not hasattr(manager, name):
            raise CacheError(
                f"torch {torch.__version__} has no CacheArtifactManager.{name}: bundles of its "
                f"artifacts need a torch from 2.11 on that has it"
            )
    return manager


def _part(name: str) -> Any:
    try:
        from torch.compiler import _cache
    except ImportError as error:
        raise CacheError(f"torch {torch.__version__} has no torch.compiler._cache") from error
    found = getattr(_cache, name, None)
    if found is None:
        raise CacheError(f"torch {torch.__version__} has no torch.compiler._cache.{name}")
    return found
