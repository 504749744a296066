"""The broken plugins: one row per way in which a plugin can misbehave, and how each must end."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

from torchyard._version import __version__

from .distribution import Distribution

_HEAD = """
schema = 1
name = "{name}"
summary = "broken on purpose"
[requires]
torchyard = ">=0.1.0.dev0"
"""
_IMPLEMENTS = """
[[implements]]
contract = "toy/1"
module = "{package}.toy"
devices = ["*"]
"""
# What an honest plugin would hold; a broken one goes wrong before, in or after it.
_HOOK = """
from torchyard import Implementation, Verdict, hookimpl


@hookimpl
def torchyard_implementations(contract):
    return [
        Implementation(
            contract=contract,
            name="{name}.add",
            supports=lambda request, platform: Verdict.yes(),
            load=lambda: lambda numbers: [number + 1 for number in numbers],
        )
    ]
"""


@dataclass(frozen=True, slots=True)
class Broken:
    """One broken plugin and how it must end once everything it offers was asked for.

    Attributes:
        misbehaviour: what it does, in words.
        distribution: the plugin.
        state: its state in the end.
        code: the reason code; empty where nothing is wrong with what it offers.
        text: what its reason must say.
        hint: what its hint must say.
        note: a pattern that one of its notes has; empty where there need be none.
        imported: whether only importing it shows what is wrong.
    """

    misbehaviour: str
    distribution: Distribution
    state: str
    code: str
    text: str
    hint: str
    note: str = ""
    imported: bool = True

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.distribution.plugin


def plugin(
    name: str,
    *,
    manifest: str = _IMPLEMENTS,
    requires: str = "",
    code: str = _HOOK,
    distribution: str = "",
) -> Distribution:
    """Return a plugin that implements toy/1, with something changed."""
    package = (distribution or f"yard-{name}").replace("-", "_")
    words = {"name": name, "package": package}

    def filled(text: str) -> str:
        for key, value in words.items():
            text = text.replace(f"{{{key}}}", value)
        return text

    return Distribution(
        distribution or f"yard-{name}",
        name,
        package,
        {
            f"{package}/torchyard.toml": filled(_HEAD) + requires + filled(manifest),
            f"{package}/toy.py": filled(dedent(code)),
        },
    )


_SLOT = """
[[devices]]
name = "{device}"
slot = "PrivateUse1"
"""

BROKEN = (
    Broken(
        "raises at import",
        plugin("raises-at-import", code="raise RuntimeError('no such driver')\n"),
        "failed",
        "E_PLUGIN",
        "import of module 'yard_raises_at_import.toy': RuntimeError: no such driver",
        "report it to the author of 'yard-raises-at-import', or switch the plugin off: "
        "TORCHYARD_PLUGINS=-raises-at-import",
    ),
    Broken(
        "has a bad manifest",
        plugin("bad-manifest", manifest='[[implements]]\ncontract = "toy"\n'),
        "failed",
        "E_PLUGIN",
        "bad manifest (yard_bad_manifest:torchyard.toml): implements[0].devices: expected a list",
        "report it to the author of 'yard-bad-manifest', or uninstall it",
        imported=False,
    ),
    Broken(
        "implements another version of the contract",
        plugin("wrong-contract", manifest=_IMPLEMENTS.replace("toy/1", "toy/9")),
        "incompatible",
        "E_VERSION",
        "implements toy/9, but the installed component defines toy/1",
        "install matching versions of the component and the plugin",
        imported=False,
    ),
    Broken(
        "is slow to import",
        plugin("slow-import", code="import time\n\ntime.sleep(0.6)\n" + _HOOK),
        "active",
        "",
        "",
        "",
        note=r"slow import: module 'yard_slow_import\.toy' took \d+\.\d s; budget 0\.5 s",
    ),
    Broken(
        "has the name of another plugin",
        plugin("good", distribution="yard-other-good"),
        "incompatible",
        "E_PLUGIN",
        "duplicate name 'good', announced by: torchyard-good, yard-other-good",
        "uninstall all but one of them",
        imported=False,
    ),
    Broken(
        "lacks a dependency that its manifest names",
        plugin("missing-module", requires='modules = ["module_that_nobody_has"]\n'),
        "unavailable",
        "E_DEPENDENCY",
        "needs the modules ['module_that_nobody_has'], which are not installed",
        "install them, or reinstall yard-missing-module with its dependencies",
        imported=False,
    ),
    Broken(
        "lacks a dependency that its manifest keeps quiet about",
        plugin("missing-import", code="import module_that_nobody_has\n"),
        "failed",
        "E_PLUGIN",
        "ModuleNotFoundError: No module named 'module_that_nobody_has'",
        "install 'module_that_nobody_has'; the plugin should list it under requires.modules",
    ),
    Broken(
        "raises in a hook",
        plugin(
            "raises-in-hook",
            code="""
                from torchyard import hookimpl


                @hookimpl
                def torchyard_implementations(contract):
                    raise KeyError(contract)
            """,
        ),
        "failed",
        "E_PLUGIN",
        "module 'yard_raises_in_hook.toy', hook torchyard_implementations: KeyError: 'toy/1'",
        "TORCHYARD_PLUGINS=-raises-in-hook",
    ),
    Broken(
        "needs a newer torchyard",
        Distribution(
            "yard-needs-newer",
            "needs-newer",
            "yard_needs_newer",
            {
                "yard_needs_newer/torchyard.toml": (
                    _HEAD.replace(">=0.1.0.dev0", ">=99")
                    + _IMPLEMENTS.replace("{package}", "yard_needs_newer")
                ).replace("{name}", "needs-newer")
            },
        ),
        "incompatible",
        "E_VERSION",
        f"needs torchyard >=99, found {__version__}",
        "pip install 'torchyard>=99', or another version of the plugin",
        imported=False,
    ),
    Broken(
        "needs a newer torch",
        plugin("needs-torch", requires='torch = ">=99"\n'),
        "incompatible or unavailable",
        "E_VERSION or E_DEPENDENCY",
        "needs torch >=99, found",
        "install",
        imported=False,
    ),
    Broken(
        "claims PrivateUse1 for two devices",
        plugin(
            "two-slots",
            manifest=_SLOT.replace("{device}", "first") + _SLOT.replace("{device}", "second"),
        ),
        "failed",
        "E_PLUGIN",
        "torch has one PrivateUse1 slot per process; expected at most one device",
        "report it to the author of 'yard-two-slots', or uninstall it",
        imported=False,
    ),
    Broken(
        "claims PrivateUse1 as the first of two",
        plugin(
            "slot-one",
            manifest=_SLOT.replace("{device}", "slot-one") + _IMPLEMENTS,
        ),
        "unavailable",
        "E_SLOT",
        "torch has one PrivateUse1 slot per process;",
        "set TORCHYARD_PRIVATEUSE1=slot-one before torch is imported, or uninstall the others",
        imported=False,
    ),
    Broken(
        "claims PrivateUse1 as the second of two",
        plugin(
            "slot-two",
            manifest=_SLOT.replace("{device}", "slot-two") + _IMPLEMENTS,
        ),
        "unavailable",
        "E_SLOT",
        "torch has one PrivateUse1 slot per process;",
        "set TORCHYARD_PRIVATEUSE1=slot-two before torch is imported, or uninstall the others",
        imported=False,
    ),
    Broken(
        "returns junk",
        plugin(
            "returns-junk",
            code="""
                from torchyard import hookimpl


                @hookimpl
                def torchyard_implementations(contract):
                    return [object(), "and more"]
            """,
        ),
        "failed",
        "E_PLUGIN",
        "expected a sequence of Implementation, got one with object",
        "report it to the author of 'yard-returns-junk'",
    ),
    Broken(
        "returns what its own repr cannot survive",
        plugin(
            "returns-poison",
            code="""
                from torchyard import hookimpl


                class Poison:
                    def __repr__(self):
                        raise RuntimeError("not even this")


                @hookimpl
                def torchyard_implementations(contract):
                    return Poison()
            """,
        ),
        "failed",
        "E_PLUGIN",
        "expected a sequence of Implementation, got Poison (cannot be shown)",
        "report it to the author of 'yard-returns-poison'",
    ),
    Broken(
        "exits at import",
        plugin("exits", code="import sys\n\nsys.exit(7)\n"),
        "failed",
        "E_PLUGIN",
        "import of module 'yard_exits.toy': SystemExit: 7",
        "TORCHYARD_PLUGINS=-exits",
    ),
    Broken(
        "prints at import, by every means it has",
        plugin(
            "prints",
            code="""
                import os
                import subprocess
                import sys

                print("thank you for using prints")
                os.write(1, b"written to the descriptor\\n")
                subprocess.run([sys.executable, "-c", "print('printed by a child')"])
            """
            + "".join(f"                {line}\n" for line in _HOOK.splitlines()),
        ),
        "active",
        "",
        "",
        "",
        note="printed 'thank you for using prints'",
    ),
    Broken(
        "asks the registry for itself at import",
        plugin(
            "asks-at-import",
            code="""
                import torchyard

                torchyard.registry().activate(torchyard.registry().plugin("asks-at-import"))
            """
            + "".join(f"                {line}\n" for line in _HOOK.splitlines()),
        ),
        "failed",
        "E_PLUGIN",
        "asked the registry for itself while it was being imported",
        "TORCHYARD_PLUGINS=-asks-at-import",
    ),
    Broken(
        "offers implementations in another plugin's name",
        plugin("takes-names", code=_HOOK.replace("{name}.add", "good.fast")),
        "failed",
        "E_PLUGIN",
        "expected implementations of toy/1 named 'takes-names.*', got 'good.fast' of toy/1",
        "report it to the author of 'yard-takes-names'",
    ),
)
