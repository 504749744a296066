"""The versions of torch that a plugin supports."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement

from torchyard_conformance import Subject, law, violated
from torchyard_conformance._laws.registration._observed import (
    OLD_TORCH,
    is_well,
    loaded,
    with_old_torch,
)


@law("registration.refuses-unsupported-torch", profiles=("core", "smoke"))
def test_an_unsupported_torch_is_refused(subject: Subject) -> None:
    """Beside a torch that it was not made for it is `incompatible`, with a reason, and not broken.

    A fresh interpreter finds a torch 1.0 that cannot be imported. A plugin that needs no torch may
    work with it; any other must be refused by its manifest, before code of it runs.

    Why: the first thing a user does to a working installation is to change torch. The reason must
    say which one to install, instead of an undefined symbol.

    Fix: give the range under `requires.torch` in the manifest, with a lower bound.
    """
    loaded(subject)
    observation = with_old_torch(subject)
    found = observation.step("activation")
    if "raised" in found:
        violated(f"expected a refusal of torch {OLD_TORCH}, got {found['raised']}")
    needs = _torch_requirement(subject)
    if found["state"] == "incompatible" and found["code"] == "E_VERSION":
        own = [name for name in observation.seen["imported"] if _is_own(name, subject)]
        if own:
            violated(f"expected none of its code to run beside torch {OLD_TORCH}, got {own[:5]}")
        return
    if not is_well(found):
        violated(
            f"expected it to be incompatible with torch {OLD_TORCH}, or to work, it is "
            f"{found['state']}: {found['reason']}"
        )
    if needs:
        violated(
            f"expected it to be incompatible with torch {OLD_TORCH}, it is {found['state']}: its "
            f"distribution requires {needs}, its manifest "
            f"{subject.manifest.requires.torch or 'any torch'}"
        )


def _is_own(module: str, subject: Subject) -> bool:
    return f"{module}.".startswith(f"{subject.package}.")


def _torch_requirement(subject: Subject) -> str:
    """Return what the distribution requires of torch; empty where it requires none."""
    try:
        lines = requires(subject.distribution) or []
    except PackageNotFoundError:
        return ""
    for requirement in map(Requirement, lines):
        if requirement.name == "torch" and (
            requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ):
            return str(requirement)
    return ""
