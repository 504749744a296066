"""Changes of the public API since the last release, and whether fragments announce them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import griffe
from packaging.version import Version

from torchyard_release._cut._fragments import Fragment
from torchyard_release._declaration._package import Package
from torchyard_release._errors import WorkspaceError

_BREAKING = "breaking"
_DEPRECATED = "deprecated"


@dataclass(frozen=True, slots=True)
class ApiChange:
    """What changed in the API of one package.

    Attributes:
        package: its name.
        names: how many public names it has now.
        broken: what no longer works as it did, a line each.
        deprecated: the public names that are deprecated now and were not before.
        unannounced: the public names that are gone and were not deprecated before.
        faults: what of this the fragments or the version do not allow.
    """

    package: str
    names: int
    broken: tuple[str, ...]
    deprecated: tuple[str, ...]
    unannounced: tuple[str, ...]
    faults: tuple[str, ...]


def compare_api(
    package: Package,
    now: Path,
    before: Path | None,
    versions: tuple[Version, Version | None],
    fragments: Sequence[Fragment],
) -> ApiChange:
    """Compare a package's public API in two trees.

    From 1.0 on only a new major may break; before it a new minor may, and a patch never. What
    breaks needs a fragment of type ``breaking``, what is deprecated one of type ``deprecated``.

    Args:
        package: of the train.
        now: the tree that is to be released.
        before: the tree of the last release; None before the first, or for a new package.
        versions: of both.
        fragments: of this release.

    Raises:
        WorkspaceError: the package cannot be read.
    """
    module = _load(package, now)
    names = dict(_public(module))
    if before is None:
        return ApiChange(package.name, len(names), (), (), (), ())
    old = _load(package, before)
    was = dict(_public(old))
    gone = tuple(path for path in sorted(was) if path not in names)
    broken = tuple(dict.fromkeys([*(f"{path}: removed" for path in gone), *_broken(old, module)]))
    notified = {path for path, item in was.items() if _is_deprecated(item)}
    deprecated = tuple(
        path
        for path, item in sorted(names.items())
        if _is_deprecated(item) and path not in notified
    )
    unannounced = tuple(path for path in gone if path not in notified)
    kinds = {item.kind for item in fragments if item.package == package.folder.name}
    faults = tuple(_faults(package, broken, deprecated, unannounced, versions, kinds))
    return ApiChange(package.name, len(names), broken, deprecated, unannounced, faults)


def _faults(
    package: Package,
    broken: tuple[str, ...],
    deprecated: tuple[str, ...],
    unannounced: tuple[str, ...],
    versions: tuple[Version, Version | None],
    kinds: set[str],
) -> Iterator[str]:
    now, before = versions
    assert before is not None
    folder = package.folder.name
    if broken:
        first = f"{package.name}: {broken[0]}" + (
            f" and {len(broken) - 1} more" * (len(broken) > 1)
        )
        bumped = now.major > before.major or (
            now.major == 0 and (now.major, now.minor) > (before.major, before.minor)
        )
        if not bumped:
            yield f"{first}: {now} after {before} may not break; release it in a later series"
        if _BREAKING not in kinds:
            yield f"{first}: no fragment says so; add changelog.d/<change>.{folder}.{_BREAKING}.md"
    if unannounced and now.major >= 1:
        yield (
            f"{package.name}: {unannounced[0]} is gone and was not deprecated in {before}; "
            f"deprecate it for one release first"
        )
    if deprecated and _DEPRECATED not in kinds:
        yield (
            f"{package.name}: {deprecated[0]} is deprecated and no fragment says so; add "
            f"changelog.d/<change>.{folder}.{_DEPRECATED}.md"
        )


def _load(package: Package, root: Path) -> griffe.Object | griffe.Alias:
    folder = root / package.folder
    try:
        return griffe.load(
            package.module,
            search_paths=[folder / "src", folder],
            allow_inspection=False,
            resolve_aliases=True,
            resolve_external=False,
        )
    except (ImportError, griffe.GriffeError, SyntaxError) as error:
        raise WorkspaceError(
            f"{package.folder}: {package.module} cannot be read: {error}", "correct it"
        ) from error


def _public(
    parent: griffe.Object | griffe.Alias, seen: frozenset[str] = frozenset()
) -> Iterator[tuple[str, griffe.Object | griffe.Alias]]:
    """Yield the public names below a module or class: those in ``__all__``, and public modules.

    A module without ``__all__`` makes public what it defines and does not begin with ``_``.
    """
    exports = None
    if parent.is_module and parent.exports is not None:
        exports = set(map(str, parent.exports))
    for name, member in parent.members.items():
        path = f"{parent.path}.{name}"
        special = parent.is_class and name.startswith("__") and name.endswith("__")
        private = name.startswith("_") and not special
        try:
            if member.is_module or exports is None:
                # What a module imports is another's; a class has it from its own definition.
                shown = not private and (parent.is_class or not member.is_alias)
            else:
                shown = name in exports
            if not shown:
                continue
            yield path, member
            if (member.is_module or member.is_class) and member.canonical_path not in seen:
                yield from _public(member, seen | {member.canonical_path})
        except (griffe.AliasResolutionError, griffe.CyclicAliasError):
            # Made by another package, and public here all the same.
            if exports is not None and name in exports:
                yield path, member


def _broken(old: griffe.Object | griffe.Alias, new: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Yield what griffe finds about public names, those that are gone left out."""
    public = set()
    for _, item in _public(old):
        with contextlib.suppress(griffe.AliasResolutionError, griffe.CyclicAliasError):
            public.add(item.canonical_path)
    for breakage in griffe.find_breaking_changes(old, new):
        path = breakage.obj.canonical_path
        # A version changes with every release.
        if path not in public or path.endswith(".__version__"):
            continue
        if breakage.kind is not griffe.BreakageKind.OBJECT_REMOVED:
            kind = str(breakage.kind.value).lower()
            yield f"{path}: {kind}: {breakage.old_value} -> {breakage.new_value}"


def _is_deprecated(item: griffe.Object | griffe.Alias) -> bool:
    try:
        decorators = getattr(item, "decorators", ())
        docstring = item.docstring.value if item.docstring else ""
    except (griffe.AliasResolutionError, griffe.CyclicAliasError):
        return False
    marked = any("deprecated" in str(mark.value) for mark in decorators)
    return marked or ".. deprecated" in docstring or docstring.startswith("Deprecated")
