"""Sets of artifacts with one thing wrong each, and the name by which inspection must catch it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packages.release.tests.foreign import PLATFORM
from torchyard_release._artifacts._findings import Fault
from torchyard_release._artifacts._members import members_of
from torchyard_release._declaration._train import Train

__all__ = ["MUTANTS", "Mutant", "Subject"]

_ORCHARD: Final = "orchard-1.4.0-py3-none-any.whl"
_PRESS: Final = f"orchard_press-1.4.0-py3-none-{PLATFORM}.whl"
_SHOP: Final = "orchard_shop-1.4.0-py3-none-any.whl"
_SDIST: Final = "orchard-1.4.0.tar.gz"


@dataclass
class Subject:
    """What is inspected: a folder of artifacts, and what they are held against."""

    dist: Path
    train: Train
    projects: dict[str, dict[str, Any]]

    def path(self, name: str) -> Path:
        return self.dist / name

    def wheel(
        self, name: str, change: Callable[[dict[str, bytes]], None], *, record: bool = True
    ) -> None:
        """Change the members of a wheel; its RECORD is rewritten unless that is the fault."""
        members = members_of(self.path(name))
        change(members)
        if record:
            [listing] = [member for member in members if member.endswith("/RECORD")]
            members[listing] = _record(members, listing)
        with zipfile.ZipFile(self.path(name), "w") as archive:
            for member, content in members.items():
                archive.writestr(zipfile.ZipInfo(member, (2020, 2, 2, 0, 0, 0)), content)

    def sdist(self, name: str, change: Callable[[dict[str, bytes]], None]) -> None:
        """Change the members of an sdist."""
        members = members_of(self.path(name))
        change(members)
        with tarfile.open(self.path(name), "w:gz") as archive:
            for member, content in members.items():
                item = tarfile.TarInfo(member)
                item.size = len(content)
                archive.addfile(item, io.BytesIO(content))

    def metadata(self, name: str, old: str, new: str) -> None:
        """Change a text in METADATA."""

        def change(members: dict[str, bytes]) -> None:
            [member] = [member for member in members if member.endswith("/METADATA")]
            text = members[member].decode()
            assert old in text, text
            members[member] = text.replace(old, new, 1).encode()

        self.wheel(name, change)

    def declare(self, package: str, **changes: Any) -> None:
        """Change what train.toml declares of a package."""
        packages = [
            dataclasses.replace(item, **changes) if item.name == package else item
            for item in self.train.packages
        ]
        self.train = dataclasses.replace(self.train, packages=tuple(packages))


@dataclass(frozen=True)
class Mutant:
    """One thing that is wrong.

    Attributes:
        name: what it is.
        fault: the name by which it must be caught.
        file: the artifact that must be named; empty for the set.
        change: what makes it.
        rebuilt: whether the record of the candidate agrees with the changed bytes, as it would if
            they had been built so.
    """

    name: str
    fault: Fault
    file: str
    change: Callable[[Subject], None]
    rebuilt: bool = True


def _record(members: Mapping[str, bytes], listing: str) -> bytes:
    lines = []
    for member, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        known = f"sha256={digest},{len(content)}" if member != listing else ","
        lines.append(f"{member},{known}\n")
    return "".join(lines).encode()


def _add(name: str, content: bytes = b"x = 1\n") -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({name: content})


def _drop(end: str) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        [name] = [name for name in members if name.endswith(end)]
        del members[name]

    return change


def _empty(subject: Subject) -> None:
    for path in subject.dist.iterdir():
        path.unlink()


def _tag_of_a_newer_python(subject: Subject) -> None:
    tag = f"cp313-cp313-{PLATFORM}"
    subject.declare("orchard-press", wheels=(tag,))
    subject.path(_PRESS).rename(subject.path(f"orchard_press-1.4.0-{tag}.whl"))


def _no_torch(subject: Subject) -> None:
    subject.declare("orchard-press", torch=">=2.11")
    subject.projects["orchard-press"]["dependencies"].append("torch>=2.11")


def _no_license(subject: Subject) -> None:
    subject.projects["orchard"]["license-files"] = ["LICENSE"]


def _comment(subject: Subject) -> None:
    with zipfile.ZipFile(subject.path(_ORCHARD), "a") as archive:
        archive.comment = b"swapped"


def _unrecorded(members: dict[str, bytes]) -> None:
    members["orchard/__init__.py"] += b"import os\n"


# Tags that promise what libraries are compiled not to hold.
_MACHINE: Final = PLATFORM.removeprefix("linux_")
_OLD: Final = f"py3-none-manylinux_2_17_{_MACHINE}"
_OTHER: Final = f"py3-none-manylinux_2_17_{'x86_64' if _MACHINE == 'aarch64' else 'aarch64'}"
_STABLE: Final = f"cp311-abi3-{PLATFORM}"


def _named(tag: str, source: str, library: str = "press.abi3.so") -> Callable[[Subject], None]:
    """Return a change that puts a library of a source into the wheel and gives it another tag."""

    def change(subject: Subject) -> None:
        place = subject.dist.parent / "compiled"
        place.mkdir()
        (place / "press.c").write_text(source)
        words = ["-shared", "-fPIC", "-Wl,-z,lazy", "-o", library, "press.c"]
        subprocess.run(["cc", *words], cwd=place, check=True)
        content = (place / library).read_bytes()

        def replaced(members: dict[str, bytes]) -> None:
            del members["orchard_press/libpress.so"]
            members[f"orchard_press/{library}"] = content

        subject.wheel(_PRESS, replaced)
        subject.path(_PRESS).rename(subject.path(f"orchard_press-1.4.0-{tag}.whl"))
        subject.declare("orchard-press", wheels=(tag,))

    return change


MUTANTS: Final = (
    Mutant("nothing at all", Fault.EMPTY, "", _empty),
    Mutant("a wheel lost", Fault.MISSING, _PRESS, lambda s: s.path(_PRESS).unlink()),
    Mutant("an sdist lost", Fault.MISSING, _SDIST, lambda s: s.path(_SDIST).unlink()),
    Mutant(
        "a wheel of somebody else",
        Fault.EXTRA,
        "melon-1.0-py3-none-any.whl",
        lambda s: s.path("melon-1.0-py3-none-any.whl").write_bytes(b"melon") and None,
    ),
    Mutant(
        "a note among the wheels",
        Fault.WRONG_NAME,
        "notes.txt",
        lambda s: s.path("notes.txt").write_bytes(b"x") and None,
    ),
    Mutant(
        "a wheel of another processor",
        Fault.WRONG_TAG,
        "orchard_press-1.4.0-py3-none-manylinux_2_28_riscv64.whl",
        lambda s: (
            s.path(_PRESS).rename(s.path("orchard_press-1.4.0-py3-none-manylinux_2_28_riscv64.whl"))
            and None
        ),
    ),
    Mutant(
        "a wheel of another version",
        Fault.WRONG_VERSION,
        "orchard-1.4.1-py3-none-any.whl",
        lambda s: s.path(_ORCHARD).rename(s.path("orchard-1.4.1-py3-none-any.whl")) and None,
    ),
    Mutant(
        "another version in METADATA",
        Fault.VERSION_INSIDE,
        _SHOP,
        lambda s: s.metadata(_SHOP, "Version: 1.4.0", "Version: 0.8.0"),
    ),
    Mutant(
        "another version in the sources",
        Fault.VERSION_INSIDE,
        _ORCHARD,
        lambda s: s.wheel(_ORCHARD, _add("orchard/_version.py", b'__version__ = "1.4.0.dev0"\n')),
    ),
    Mutant(
        "a wheel cut short",
        Fault.UNREADABLE,
        _ORCHARD,
        lambda s: s.path(_ORCHARD).write_bytes(s.path(_ORCHARD).read_bytes()[:300]) and None,
    ),
    Mutant(
        "an sdist cut short",
        Fault.UNREADABLE,
        _SDIST,
        lambda s: s.path(_SDIST).write_bytes(s.path(_SDIST).read_bytes()[:300]) and None,
    ),
    Mutant(
        "another license",
        Fault.METADATA,
        _SHOP,
        lambda s: s.metadata(_SHOP, "License-Expression: MIT", "License-Expression: ISC"),
    ),
    Mutant(
        "metadata that is none",
        Fault.METADATA,
        _SHOP,
        lambda s: s.metadata(_SHOP, "Name: orchard-shop", "Nom: orchard-shop"),
    ),
    Mutant("no metadata", Fault.METADATA, _SHOP, lambda s: s.wheel(_SHOP, _drop("/METADATA"))),
    Mutant(
        "an older Python let in",
        Fault.PYTHON,
        _ORCHARD,
        lambda s: s.metadata(_ORCHARD, "Requires-Python: >=3.11", "Requires-Python: >=3.8"),
    ),
    Mutant(
        "no Requires-Python",
        Fault.PYTHON,
        _ORCHARD,
        lambda s: s.metadata(_ORCHARD, "Requires-Python: >=3.11\n", ""),
    ),
    Mutant(
        "a classifier of a Python that is not tested",
        Fault.CLASSIFIERS,
        _ORCHARD,
        lambda s: s.metadata(_ORCHARD, ":: 3.11", ":: 3.14"),
    ),
    Mutant(
        "a wheel for a newer Python alone",
        Fault.TAG_PYTHON,
        f"orchard_press-1.4.0-cp313-cp313-{PLATFORM}.whl",
        _tag_of_a_newer_python,
    ),
    Mutant(
        "a sibling's pin lost on one wheel",
        Fault.SIBLING_PIN,
        _SHOP,
        lambda s: s.metadata(_SHOP, "Requires-Dist: orchard-press~=1.4.0\n", ""),
    ),
    Mutant(
        "a sibling's pin loosened",
        Fault.SIBLING_PIN,
        _SHOP,
        lambda s: s.metadata(_SHOP, "orchard-press~=1.4.0", "orchard-press>=1"),
    ),
    Mutant("torch's pin lost", Fault.TORCH_PIN, _PRESS, _no_torch),
    Mutant(
        "a requirement that nobody declared",
        Fault.REQUIREMENTS,
        _ORCHARD,
        lambda s: s.metadata(
            _ORCHARD, "Requires-Python", "Requires-Dist: leftpad\nRequires-Python"
        ),
    ),
    Mutant(
        "a requirement by address",
        Fault.DIRECT,
        _SHOP,
        lambda s: s.metadata(_SHOP, "orchard~=1.4.0", "orchard @ https://orchard.example/o.whl"),
    ),
    Mutant(
        "a requirement of a prerelease",
        Fault.PRERELEASE,
        _SHOP,
        lambda s: s.metadata(_SHOP, "orchard~=1.4.0", "orchard==1.4.0.dev0"),
    ),
    Mutant("no library", Fault.LIBRARY, _PRESS, lambda s: s.wheel(_PRESS, _drop(".so"))),
    Mutant(
        "no library of those that its platform's wheels have",
        Fault.LIBRARY,
        _PRESS,
        lambda s: s.declare("orchard-press", contains_on=(("linux_*", ("orchard_press/_shm.*",)),)),
    ),
    Mutant(
        "a library without a byte",
        Fault.LIBRARY,
        _PRESS,
        lambda s: s.wheel(_PRESS, _add("orchard_press/libpress.so", b"")),
    ),
    Mutant(
        "a library in a wheel for every platform",
        Fault.PURITY,
        _ORCHARD,
        lambda s: s.wheel(_ORCHARD, _add("orchard/speed.so", b"\x7fELF")),
    ),
    Mutant(
        "a library that needs a newer glibc than its tag",
        Fault.PLATFORM,
        f"orchard_press-1.4.0-{_OLD}.whl",
        _named(_OLD, "#include <pthread.h>\nvoid *press = pthread_create;\n"),
    ),
    Mutant(
        "a library for another processor than its tag",
        Fault.PLATFORM,
        f"orchard_press-1.4.0-{_OTHER}.whl",
        _named(_OTHER, "int press(int apples) { return 3 * apples; }\n"),
    ),
    Mutant(
        "an extension module beyond the stable ABI",
        Fault.ABI,
        f"orchard_press-1.4.0-{_STABLE}.whl",
        _named(_STABLE, "extern int _PyLong_Sign(void *);\nvoid *press = _PyLong_Sign;\n"),
    ),
    Mutant(
        "no extension module of the stable ABI that its tag names",
        Fault.ABI,
        f"orchard_press-1.4.0-{_STABLE}.whl",
        _named(_STABLE, "int press;\n", "press.data"),
    ),
    Mutant(
        "compiled Python",
        Fault.STRAY,
        _ORCHARD,
        lambda s: s.wheel(_ORCHARD, _add("orchard/__pycache__/_version.cpython-311.pyc")),
    ),
    Mutant(
        "tests beside the package",
        Fault.STRAY,
        _ORCHARD,
        lambda s: s.wheel(_ORCHARD, _add("tests/test_apples.py")),
    ),
    Mutant(
        "a key in an sdist",
        Fault.STRAY,
        _SDIST,
        lambda s: s.sdist(_SDIST, _add("orchard-1.4.0/signing.pem")),
    ),
    Mutant(
        "a file that RECORD knows otherwise",
        Fault.RECORD,
        _ORCHARD,
        lambda s: s.wheel(_ORCHARD, _unrecorded, record=False),
    ),
    Mutant(
        "no RECORD",
        Fault.RECORD,
        _ORCHARD,
        lambda s: s.wheel(_ORCHARD, _drop("/RECORD"), record=False),
    ),
    Mutant(
        "a wheel that grew",
        Fault.BUDGET,
        _ORCHARD,
        lambda s: s.wheel(_ORCHARD, _add("orchard/data.bin", bytes(range(256)) * 500)),
    ),
    Mutant("no license", Fault.LICENSE, _ORCHARD, _no_license),
    Mutant(
        "an sdist that cannot be built",
        Fault.METADATA,
        _SDIST,
        lambda s: s.sdist(_SDIST, _drop("/pyproject.toml")),
    ),
    Mutant("bytes swapped after the build", Fault.CHANGED, _ORCHARD, _comment, rebuilt=False),
)
