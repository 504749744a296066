"""What of the public API changed since the last release, and whether the changes say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import griffe
from packaging.version import Version

from torchyard_release._errors import WorkspaceError
from torchyard_release._fragments import Fragment
from torchyard_release._package import Package

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
        WorkspaceError: the package cannot be read, or has no public name.
    """
    module = _load(package, now)
    names = sorted(_public(module))
    if not names:
        raise WorkspaceError(
            f"{package.folder}: no public name was found in {package.module}",
            "see whether `folder` is right; public names stand in __all__",
        )
    if before is None:
        return ApiChange(package.name, len(names), (), (), (), ())
    old = _load(package, before)
    broken = tuple(dict.fromkeys(_broken(old, module)))
    was = dict(_public(old))
    notified = {path for path, item in was.items() if _is_deprecated(item)}
    deprecated = tuple(
        path
        for path, item in sorted(_public(module))
        if _is_deprecated(item) and path not in notified
    )
    gone = sorted(was.keys() - set(dict(_public(module))))
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
    """Yield the public names below a module or class; what another package made is not ours."""
    for name, member in parent.members.items():
        try:
            if not member.is_public or (member.is_imported and not member.is_exported):
                continue
            yield f"{parent.path}.{name}", member
            inside = member.is_module or member.is_class
            if inside and member.canonical_path not in seen:
                yield from _public(member, seen | {member.canonical_path})
        except (griffe.AliasResolutionError, griffe.CyclicAliasError):
            yield f"{parent.path}.{name}", member


def _broken(old: griffe.Object | griffe.Alias, new: griffe.Object | griffe.Alias) -> Iterator[str]:
    for breakage in griffe.find_breaking_changes(old, new):
        # It changes with every release.
        if not breakage.obj.path.endswith(".__version__"):
            values = f": {breakage.old_value} -> {breakage.new_value}"
            detail = "" if breakage.kind is griffe.BreakageKind.OBJECT_REMOVED else values
            yield f"{breakage.obj.path}: {str(breakage.kind.value).lower()}{detail}"


def _is_deprecated(item: griffe.Object | griffe.Alias) -> bool:
    try:
        decorators = getattr(item, "decorators", ())
        docstring = item.docstring.value if item.docstring else ""
    except (griffe.AliasResolutionError, griffe.CyclicAliasError):
        return False
    marked = any("deprecated" in str(mark.value) for mark in decorators)
    return marked or ".. deprecated" in docstring or docstring.startswith("Deprecated")
