"""The manifest."""

from __future__ import annotations

from torchyard_conformance import Subject, law, violated


@law("registration.manifest-valid", profiles=("core", "smoke"))
def test_the_manifest_is_valid(subject: Subject) -> None:
    """Its manifest is found without importing it, and every key of it is understood.

    The entry point is followed to the TOML file, and the file is read as the registry reads it.

    Why: the manifest is all that is known of a plugin until it is needed; a registry that cannot
    read it can only leave the plugin out.

    Fix: the reason names the key, what was expected and what was found. The keys are explained in
    docs/plugins/manifest.md; an entry point's value is `package:file.toml`, with a top-level
    package.
    """
    if subject.plugin.manifest is None:
        violated(subject.plugin.reason)
