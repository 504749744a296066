"""Compares the index with what was signed and tagged, after the release; plans yanks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchyard_release._artifacts._wheel import requirements_of_text
from torchyard_release._errors import ReleaseError
from torchyard_release._gates._clean_room import CleanRoom, InstallError
from torchyard_release._index._folder import project_and_version
from torchyard_release._index._upload import Index
from torchyard_release._publish._publish import Remote


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that was looked at.

    Attributes:
        about: a file, a version or a release.
        fine: whether it is as it should be.
        text: what was found; where it is not fine, what to do next too.
    """

    about: str
    fine: bool
    text: str


def compare_files(
    remote: Remote, files: Mapping[str, str], projects: Sequence[str], versions: Sequence[str]
) -> tuple[Observation, ...]:
    """Compare a release's files with what the index lists.

    Args:
        remote: the index.
        files: file name -> sha256 of the signed manifest.
        projects: every distribution of the train.
        versions: the versions that this release has.
    """
    found = []
    for project in projects:
        listed = remote.listed(project, again=True)
        own = {
            name: digest
            for name, digest in files.items()
            if project_and_version(name)[0] == canonicalize_name(project)
        }
        for name, digest in sorted(own.items()):
            if name not in listed:
                text = "signed, not on the index; publish again: what is there is left alone"
                found.append(Observation(name, False, text))
            elif listed[name].sha256 != digest:
                text = f"the index has sha256 {listed[name].sha256}, signed was {digest}; yank it"
                found.append(Observation(name, False, text))
            else:
                found.append(Observation(name, True, "as it was signed"))
        for name in sorted(listed.keys() - own.keys()):
            if _version(name) in versions:
                text = "on the index, but nobody signed it; find out who uploaded it, and yank it"
                found.append(Observation(name, False, text))
    return tuple(found)


def compare_tags(
    remote: Remote, projects: Mapping[str, Sequence[str]], tags: Sequence[str]
) -> tuple[Observation, ...]:
    """Compare the versions that the index has with those that a tag or a manifest vouches for.

    Args:
        remote: the index.
        projects: distribution -> the versions that manifests kept here vouch for.
        tags: every tag of the repository.
    """
    tagged = {str(Version(tag)) for tag in tags if _is_version(tag)}
    found = []
    for project, vouched in projects.items():
        listed = remote.listed(project)
        live = {_version(name) for name, file in listed.items() if not file.yanked}
        for version in sorted(live | set(vouched), key=Version):
            about = f"{project} {version}"
            if version not in {*tagged, *vouched}:
                text = "on the index without a tag; find out who uploaded it, and yank it"
                found.append(Observation(about, False, text))
            elif version not in live:
                text = "released, but not on the index any more; publish it again, or retract it"
                found.append(Observation(about, False, text))
            else:
                found.append(Observation(about, True, "tag and index agree"))
    return tuple(found)


def install_again(
    scratch: Path, simple: str, requirements: Sequence[str], *, base: CleanRoom | None = None
) -> tuple[Observation, ...]:
    """Install past releases again, each in its own environment: what they need may have gone.

    Args:
        scratch: a folder for the rooms.
        simple: the address of the index's simple pages.
        requirements: what to install, such as ``torchyard==0.1.0``, blank between several.
        base: a room with what is large and many need.
    """
    found = []
    for number, words in enumerate(requirements):
        room = CleanRoom(scratch / f"again{number}", base).make()
        try:
            installed = room.install(*words.split(), overlay=simple)
        except InstallError as error:
            text = f"{error.text.splitlines()[-1]}; pin what it lost in a patch release"
            found.append(Observation(words, False, text))
            continue
        names = [Requirement(word).name for word in words.split()]
        wrong = [line for lines in room.smoke(names).values() for line in lines]
        text = wrong[0] if wrong else f"{len(installed)} distributions, imported"
        found.append(Observation(words, not wrong, text))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class YankPlan:
    """What yanking a version would mean.

    Attributes:
        project: the distribution.
        version: which is to go.
        files: to yank.
        stranded: versions of the train's packages that no other version of it satisfies.
        replacement: the version that users get instead; empty where none is left.
    """

    project: str
    version: str
    files: tuple[str, ...]
    stranded: tuple[str, ...]
    replacement: str

    def steps(self) -> tuple[str, ...]:
        """Return what to do, in order."""
        first = (
            f"announce that {self.project} {self.version} goes, and that "
            f"{self.replacement} replaces it"
            if self.replacement
            else f"publish a replacement of {self.project} {self.version} first: none is left"
        )
        return (
            first,
            *(
                f"yank {name} as well: nothing else satisfies what it requires"
                for name in self.stranded
            ),
            *(f"yank {file}" for file in self.files),
            "run `torchyard release audit` afterwards",
        )


def yank_plan(index: Index, projects: Sequence[str], project: str, version: str) -> YankPlan:
    """Return what yanking a version would mean for the other packages of the train."""
    project = canonicalize_name(project)
    listed = index.listed(project, again=True)
    live = {name: _version(name) for name, file in listed.items() if not file.yanked}
    files = tuple(sorted(name for name, found in live.items() if found == str(Version(version))))
    if not files:
        known = ", ".join(sorted(set(live.values()), key=Version)) or "none"
        raise ReleaseError(
            f"{project}: expected a version that the index has, got {version!r}; it has {known}",
            "name one of them",
        )
    left = [Version(found) for found in set(live.values()) - {str(Version(version))}]
    stranded = []
    for other in projects:
        if canonicalize_name(other) == project:
            continue
        wheels = {
            n: f for n, f in index.listed(other).items() if n.endswith(".whl") and not f.yanked
        }
        for name, file in sorted(wheels.items()):
            wanted = [
                item.specifier
                for item in requirements_of_text(index.metadata(file))
                if canonicalize_name(item.name) == project
            ]
            hit = any(specifier.contains(version, prereleases=True) for specifier in wanted)
            saved = all(any(s.contains(v, prereleases=True) for v in left) for s in wanted)
            if hit and not saved:
                stranded.append(f"{canonicalize_name(other)} {_version(name)}")
    stable = sorted(found for found in left if not found.is_prerelease)
    return YankPlan(
        project,
        str(Version(version)),
        files,
        tuple(sorted(set(stranded))),
        str(stable[-1]) if stable else "",
    )


def _version(name: str) -> str:
    try:
        return project_and_version(name)[1]
    # An index may list what is no distribution of ours, such as an old installer.
    except ReleaseError:
        return "0"


def _is_version(tag: str) -> bool:
    try:
        return not Version(tag).is_prerelease
    except ValueError:
        return False
