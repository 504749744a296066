"""``save``, ``load``, ``merge``, ``inspect`` and ``prune``."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchyard import arguments
from torchyard.evidence.keys import PublicKey
from torchyard_cache import torch_compat
from torchyard_cache._errors import BundleError
from torchyard_cache.artifacts._bundle import Bundle, check_key, parse_bundle
from torchyard_cache.artifacts._explanation import graph_names
from torchyard_cache.artifacts._keys import signing_key, trusted_keys
from torchyard_cache.artifacts._kinds import LIBRARIES, TORCH, folder_kinds, put_file, saved_files
from torchyard_cache.artifacts._manifest import (
    SCHEMA,
    Artifact,
    Manifest,
    packages_here,
    this_machine,
)
from torchyard_cache.artifacts._process import LOADED, check_serial
from torchyard_cache.artifacts._stores import read_bundle, write_bundle

__all__ = ["Inspection", "Loading", "Merging", "inspect", "load", "merge", "prune", "save"]

_Path = str | os.PathLike[str]
_Keys = Sequence[_Path] | None
_Found = dict[tuple[str, str], tuple[Artifact, bytes]]


@dataclass(frozen=True, slots=True)
class Loading:
    """What came of loading a bundle.

    Attributes:
        manifest: of the bundle.
        loaded: how many artifacts were put where they are looked for.
        present: how many files were there already, and were left as they are.
        skipped: why the others were left out.
    """

    manifest: Manifest
    loaded: int
    present: int
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Merging:
    """What came of merging bundles.

    Attributes:
        manifest: of the new bundle.
        conflicts: kind and key of artifacts with several contents; the one that was used last was
            kept.
    """

    manifest: Manifest
    conflicts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a bundle says, whoever made it.

    Attributes:
        manifest: of the bundle; its digests hold.
        signer: of the trusted keys the one that signed it, in hexadecimal; None where none did.
        differences: in what its machine differs from this one; empty where its code fits here.
    """

    manifest: Manifest
    signer: str | None
    differences: str


def save(
    path: _Path,
    *,
    name: str | None = None,
    kinds: Sequence[str] | None = None,
    key: _Path | None = None,
) -> Manifest:
    """Save what was compiled in this process, and what was loaded into it, as a signed bundle.

    Args:
        path: a file, a folder, or a URL that fsspec opens.
        name: of the bundle; None: the file's.
        kinds: to save; None: torch's, with the libraries (``cpp``) that its C++ became.
            ``triton`` and ``tuned`` are whole folders of the user's.
        key: file of the private key that signs; None: the user's own, which is made if need be.

    Returns:
        The manifest.

    Raises:
        TypeError, ValueError: an argument does not fit.
        BundleError: it cannot be written.
        CacheError: torch has no such artifacts, or a library is missing.
    """
    chosen = _kinds("save", kinds)
    signer = signing_key("save", key)
    title = Path(str(path)).stem if name is None else arguments.text("save", "name", name)
    found: _Found = {k: v for k, v in LOADED.artifacts.items() if k[0] in chosen}
    now = time.time()
    names = graph_names() if chosen & TORCH else {}
    for kind, artifact_key, content in torch_compat.made_artifacts() if chosen & TORCH else ():
        if kind in chosen:
            graph = names.get((kind, artifact_key), "")
            _add(found, kind, artifact_key, content, now, graph)
    folders = folder_kinds()
    for kind in sorted(chosen - TORCH):
        for artifact_key, content, used in saved_files(kind, folders[kind]):
            _add(found, kind, artifact_key, content, used)
    bundle = _bundle(title, found)
    write_bundle("save", path, bundle.to_bytes(signer))
    return bundle.manifest


def load(
    path: _Path,
    *,
    keys: _Keys = None,
    trust_unsigned: bool = False,
    newer_than: int = 0,
    allow_older: bool = False,
    kinds: Sequence[str] | None = None,
) -> Loading:
    """Verify a bundle, and put its artifacts where torch and torchyard look for them.

    Nothing is written, and nothing unpickled, before the signature, every digest and every key
    hold. Artifacts of another torch, Python, Triton, processor or accelerator are left out, with
    the reason.

    Args:
        path: a file, a folder, or a URL that fsspec opens.
        keys: files of the public keys that are trusted; None: the user's own.
        trust_unsigned: whether a bundle that none of them signed is loaded. Artifacts are code:
            torch unpickles them, so that whoever made the bundle runs what they like here.
        newer_than: the serial that the bundle's must be above.
        allow_older: whether the bundle may be older than one of its name and key before.
        kinds: to load; None: all that the bundle has.

    Raises:
        TypeError, ValueError: an argument does not fit.
        BundleError: the bundle is refused; says why.
    """
    unsigned = arguments.boolean("load", "trust_unsigned", trust_unsigned)
    newer = arguments.integer("load", "newer_than", newer_than, least=0)
    older = arguments.boolean("load", "allow_older", allow_older)
    chosen = None if kinds is None else _kinds("load", kinds)
    bundle = parse_bundle(read_bundle("load", path), trusted_keys("load", keys), unsigned=unsigned)
    check_serial(bundle, newer, allow_older=older)
    if bundle.signer is None:
        warnings.warn(
            f"{path}: loaded without a trusted signature: torch will run code of whoever made it",
            stacklevel=2,
        )
    return _put(bundle, chosen)


def _put(bundle: Bundle, chosen: frozenset[str] | None) -> Loading:
    folders = folder_kinds()
    differences = this_machine().differences(bundle.manifest.machine)
    wanted, skipped = [], []
    for item in bundle.manifest.artifacts:
        if chosen is not None and item.kind not in chosen:
            continue
        # What was measured is keyed by the machine itself.
        if differences and item.kind != "tuned":
            skipped.append(f"{item.kind} {item.key}: made with {differences}")
        elif item.kind not in TORCH and item.kind not in folders:
            skipped.append(f"{item.kind} {item.key}: no kind of that name is registered")
        else:
            wanted.append((item, bundle.contents[item.sha256]))
    torch_compat.watch_compilations()
    torchs = [(item.kind, item.key, data) for item, data in wanted if item.kind in TORCH]
    loaded = torch_compat.put_artifacts(torchs) if torchs else 0
    present = 0
    for item, data in wanted:
        if item.kind not in TORCH:
            is_new = put_file(item.kind, folders[item.kind], item.key, data)
            loaded, present = loaded + is_new, present + (not is_new)
    LOADED.bundles += 1
    LOADED.artifacts.update({(item.kind, item.key): (item, data) for item, data in wanted})
    LOADED.skipped += skipped
    return Loading(bundle.manifest, loaded, present, tuple(skipped))


def merge(
    paths: Sequence[_Path],
    out: _Path,
    *,
    name: str | None = None,
    keys: _Keys = None,
    trust_unsigned: bool = False,
    key: _Path | None = None,
) -> Merging:
    """Join bundles of several ranks or machines of one kind.

    Args:
        paths: two bundles or more; those of other machines than the first are refused.
        out: where the new one goes.
        name: of the new one; None: the file's.
        keys, trust_unsigned: as of :func:`load`.
        key: as of :func:`save`.

    Raises:
        TypeError, ValueError: an argument does not fit.
        BundleError: a bundle is refused; says which, and why.
    """
    where: Sequence[_Path] = arguments.sequence("merge", "paths", paths, least=1)
    unsigned = arguments.boolean("merge", "trust_unsigned", trust_unsigned)
    trusted, signer = trusted_keys("merge", keys), signing_key("merge", key)
    title = Path(str(out)).stem if name is None else arguments.text("merge", "name", name)
    found: _Found = {}
    conflicts = []
    first: Manifest | None = None
    for path in where:
        bundle = _parsed("merge", path, trusted, unsigned)
        first = first or bundle.manifest
        differences = first.machine.differences(bundle.manifest.machine)
        if differences:
            raise BundleError(f"merge: paths: {path} is of another machine: {differences}")
        for item in bundle.manifest.artifacts:
            known = found.get((item.kind, item.key))
            if known is not None and known[0].sha256 != item.sha256:
                conflicts.append(f"{item.kind} {item.key}")
            if known is None or item.used > known[0].used:
                found[item.kind, item.key] = item, bundle.contents[item.sha256]
    assert first is not None
    merged = _bundle(title, found)
    merged = replace(merged, manifest=replace(merged.manifest, machine=first.machine))
    write_bundle("merge", out, merged.to_bytes(signer))
    return Merging(merged.manifest, tuple(sorted(set(conflicts))))


def inspect(path: _Path, *, keys: _Keys = None) -> Inspection:
    """Read a bundle's manifest and compare every digest; nothing of it is used.

    Args:
        path: a file, a folder, or a URL that fsspec opens.
        keys: as of :func:`load`.

    Raises:
        TypeError, ValueError: an argument does not fit.
        BundleError: the bundle is damaged.
    """
    bundle = _parsed("inspect", path, trusted_keys("inspect", keys), True)
    signer = None if bundle.signer is None else bundle.signer.hex
    return Inspection(bundle.manifest, signer, this_machine().differences(bundle.manifest.machine))


def prune(
    path: _Path,
    *,
    max_bytes: int | None = None,
    max_days: float | None = None,
    keys: _Keys = None,
    key: _Path | None = None,
) -> Manifest:
    """Drop artifacts that were not used for long, then the least recently used above a size.

    Args:
        path: of the bundle, which is replaced.
        max_bytes: of all artifacts; None: no bound.
        max_days: since the last use; None: no bound.
        keys: as of :func:`load`; a bundle that none of them signed is refused.
        key: as of :func:`save`.

    Returns:
        The new manifest.

    Raises:
        TypeError, ValueError: an argument does not fit.
        BundleError: the bundle is refused.
    """
    most = (
        None if max_bytes is None else arguments.integer("prune", "max_bytes", max_bytes, least=0)
    )
    days = None if max_days is None else arguments.number("prune", "max_days", max_days, least=0)
    if most is None and days is None:
        raise arguments.wrong_value("prune", "max_bytes", "a bound, here or of max_days", "neither")
    bundle = _parsed("prune", path, trusted_keys("prune", keys), False)
    now, kept, size = time.time(), [], 0
    for item in sorted(bundle.manifest.artifacts, key=lambda item: -item.used):
        if days is not None and now - item.used > days * 86400:
            continue
        if most is not None and size + item.size > most:
            continue
        kept.append(item)
        size += item.size
    found = {(item.kind, item.key): (item, bundle.contents[item.sha256]) for item in kept}
    pruned = _bundle(bundle.manifest.name, found)
    pruned = replace(pruned, manifest=replace(pruned.manifest, machine=bundle.manifest.machine))
    write_bundle("prune", path, pruned.to_bytes(signing_key("prune", key)))
    return pruned.manifest


def _parsed(of: str, path: _Path, keys: Sequence[PublicKey], unsigned: bool) -> Bundle:
    try:
        return parse_bundle(read_bundle(of, path), keys, unsigned=unsigned)
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from error


def _kinds(of: str, kinds: Sequence[str] | None) -> frozenset[str]:
    if kinds is None:
        return TORCH | {LIBRARIES}
    known = sorted({*TORCH, *folder_kinds()})
    given: Sequence[str] = arguments.sequence(of, "kinds", kinds, least=1)
    return frozenset(
        arguments.choice(of, f"kinds[{n}]", kind, known) for n, kind in enumerate(given)
    )


def _add(found: _Found, kind: str, key: str, content: bytes, used: float, graph: str = "") -> None:
    check_key(kind, key)
    digest = hashlib.sha256(content).hexdigest()
    known = found.get((kind, key))
    made = known[0].made if known is not None and known[0].sha256 == digest else used
    graph = graph or (known[0].graph if known is not None else "")
    found[kind, key] = Artifact(kind, key, len(content), digest, made, used, graph), content


def _bundle(name: str, found: _Found) -> Bundle:
    items: Iterable[Artifact] = (found[each][0] for each in sorted(found))
    manifest = Manifest(SCHEMA, name, time.time_ns(), this_machine(), packages_here(), tuple(items))
    contents = {item.sha256: content for item, content in found.values()}
    return Bundle(manifest, contents)
