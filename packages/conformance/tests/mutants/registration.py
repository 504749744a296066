"""Mutants of registration: plugins that are found, loaded or left in a wrong way."""

from __future__ import annotations

from textwrap import dedent

from .distribution import Distribution
from .mutant import Mutant

_MANIFEST = """
schema = 1
name = "{plugin}"
summary = "knots of a rope, counted"

[requires]
torchyard = ">=0.1.0.dev0"
{requires}

[[defines]]
contract = "knots/1"
module = "{package}.contract"

[[implements]]
contract = "knots/1"
module = "{package}.rope"
devices = ["*"]

[order."knots/1"]
"*" = ["{plugin}.{listed}"]
{more}
"""
_CONTRACT = """
from dataclasses import dataclass

from torchyard import ContractDefinition


@dataclass(frozen=True, slots=True)
class KnotsRequest:
    device: str = "cpu"

    def bucket(self):
        return self.device


DEFINITIONS = {
    "knots/1": ContractDefinition(
        contract="knots/1",
        summary="the knots of a rope, counted",
        fields=(),
        parse=lambda fields: KnotsRequest(),
        cases=lambda device: [KnotsRequest(device)],
    )
}
"""
_ROPE = """
from torchyard import Implementation, Verdict, hookimpl

{at_import}


def load():
{in_load}
    return lambda rope: rope.count("o")


@hookimpl
def torchyard_implementations(contract):
{in_hook}
    return [
        Implementation(
            contract=contract,
            name="{plugin}.count",
            supports=lambda request, platform: Verdict.yes(),
            load=load,
        )
    ]
"""


def plugin(
    name: str,
    *,
    requires: str = "",
    listed: str = "count",
    more: str = "",
    at_import: str = "",
    in_load: str = "",
    in_hook: str = "",
    files: dict[str, str] | None = None,
    required: tuple[str, ...] = (),
) -> Distribution:
    """Return a plugin that defines and implements knots/1, with something added."""
    package = f"torchyard_{name}".replace("-", "_")
    # What is filled in may hold the plugin's names itself, so these come last.
    words = {
        "requires": requires,
        "listed": listed,
        "more": dedent(more),
        "at_import": dedent(at_import).strip(),
        "in_load": _indented(in_load),
        "in_hook": _indented(in_hook),
        "plugin": name,
        "package": package,
    }

    def filled(text: str) -> str:
        for key, value in words.items():
            text = text.replace(f"{{{key}}}", value)
        return text

    texts = {
        f"{package}/torchyard.toml": filled(_MANIFEST),
        f"{package}/contract.py": _CONTRACT,
        f"{package}/rope.py": filled(_ROPE),
        **{filled(path): filled(dedent(text)) for path, text in (files or {}).items()},
    }
    return Distribution(name, tuple(texts.items()), required)


def _indented(text: str) -> str:
    lines = dedent(text).strip().splitlines()
    return "\n".join(f"    {line}" for line in lines)


_SLEEP = "import time\n\ntime.sleep(0.6)"
_LOCK = """
    import fcntl
    from pathlib import Path

    lock = Path(__file__).with_suffix(".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError("another process has the rope") from None
"""
_SIGNAL = "import signal\n\nsignal.signal(signal.SIGINT, signal.SIG_DFL)"
_DRIVER = 'raise RuntimeError("no such driver")'
_TORCH = 'torch = ">=2.11"'
_RUNTIME = {"rope_runtime.py": "READY = True\n"}
_DEVICE = """
    [[devices]]
    name = "{plugin}"
    module = "{package}.device"
"""
_PROBE = """
    from torchyard import DeviceStatus, hookimpl


    @hookimpl
    def torchyard_probe_device(device):
        return DeviceStatus({told}, False, "no rope is near", "bring one", 0)
"""
_COMMAND = """
    [[commands]]
    name = "{name}"
    target = "{package}.command:command"
    help = "Count knots."
"""
_CLICK = """
    import click


    @click.command()
    def command():
        click.echo("none")
"""

# What each mutant does, done where and as it may be done.
_WITH_TORCH = plugin("with-torch", requires=_TORCH, required=("torch>=2.11",))
_AT_IMPORT = plugin(
    "at-import",
    requires=_TORCH,
    files={**_RUNTIME, "rope.pth": "rope_more\n"},
    at_import="""
        import atexit
        import logging
        import threading

        atexit.register(print, end="")
        logging.getLogger(__name__).info("thank you")
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        calls = []
    """,
    in_hook="calls.append(contract)",
)
_IN_LOAD = plugin(
    "in-load",
    files=_RUNTIME,
    in_load="\n".join(
        ["import os", "import rope_runtime", "owner = os.getpid()", _SIGNAL, dedent(_LOCK), _SLEEP]
    )
    + f"\n{_DRIVER}",
)
_DECLARES = plugin(
    "declares",
    more=_DEVICE + _COMMAND.replace("{name}", "knots"),
    files={
        "{package}/device.py": _PROBE.replace("{told}", "device"),
        "{package}/command.py": _CLICK,
    },
)

REGISTRATION = (
    Mutant(
        "unknown-key",
        "its manifest has a key that nobody reads",
        "registration.manifest-valid",
        plugin("unknown-key", requires='pytorch = ">=2.11"'),
        _WITH_TORCH,
    ),
    Mutant(
        "wakes-at-start",
        "a .pth file imports its runtime into every interpreter",
        "registration.discovery-imports-nothing",
        plugin("wakes-at-start", files={**_RUNTIME, "rope.pth": "import rope_runtime\n"}),
        _AT_IMPORT,
    ),
    Mutant(
        "takes-a-command",
        "its command has the name of a built-in one",
        "registration.name-clash",
        plugin(
            "takes-a-command",
            more=_COMMAND.replace("{name}", "doctor"),
            files={"{package}/command.py": _CLICK},
        ),
        _DECLARES,
    ),
    Mutant(
        "no-click-command",
        "its command is a function that is no click command",
        "registration.commands",
        plugin(
            "no-click-command",
            more=_COMMAND.replace("{name}", "knots"),
            files={"{package}/command.py": "def command():\n    print('none')\n"},
        ),
        _DECLARES,
    ),
    Mutant(
        "no-driver",
        "it raises when it is imported",
        "registration.activates",
        plugin("no-driver", at_import=_DRIVER),
        _IN_LOAD,
    ),
    Mutant(
        "misspelt",
        "its list names an implementation that it does not offer",
        "registration.offers-what-it-declares",
        plugin("misspelt", listed="cuont"),
        _WITH_TORCH,
    ),
    Mutant(
        "slow",
        "importing it takes longer than half a second",
        "registration.import-budget",
        plugin("slow", at_import=_SLEEP),
        _IN_LOAD,
    ),
    Mutant(
        "greets",
        "it writes to stdout below Python when it is imported",
        "registration.quiet",
        plugin("greets", at_import='import os\n\nos.write(1, b"thank you\\n")'),
        _AT_IMPORT,
    ),
    Mutant(
        "takes-signals",
        "it sets a signal handler for the whole process",
        "registration.leaves-process-alone",
        plugin("takes-signals", at_import=_SIGNAL),
        _IN_LOAD,
    ),
    Mutant(
        "wrong-device",
        "its probe returns the status of another device than it was asked for",
        "registration.device-probe",
        plugin(
            "wrong-device",
            more=_DEVICE,
            files={"{package}/device.py": _PROBE.replace("{told}", "'cable'")},
        ),
        _DECLARES,
    ),
    Mutant(
        "torch-first",
        "it wants torch to have been imported before",
        "registration.import-orders",
        plugin(
            "torch-first",
            requires=_TORCH,
            at_import="""
                import sys

                if "torch" not in sys.modules:
                    raise ImportError("import torch first")
            """,
        ),
        _WITH_TORCH,
    ),
    Mutant(
        "once-only",
        "its hook raises when it is called again",
        "registration.re-entrant",
        plugin(
            "once-only",
            at_import="calls = []",
            in_hook="""
                calls.append(contract)
                if len(calls) > 1:
                    raise RuntimeError("already registered")
            """,
        ),
        _AT_IMPORT,
    ),
    Mutant(
        "stores-its-process",
        "it works in the process that imported it, and in no forked child",
        "registration.fork",
        plugin(
            "stores-its-process",
            at_import="import os\n\nOWNER = os.getpid()",
            in_hook="""
                if os.getpid() != OWNER:
                    raise RuntimeError("the runtime was opened in another process")
            """,
        ),
        _IN_LOAD,
    ),
    Mutant(
        "alone-on-the-machine",
        "it takes a lock at import that a second process does not get",
        "registration.spawn",
        plugin("alone-on-the-machine", at_import=_LOCK),
        _IN_LOAD,
    ),
    Mutant(
        "never-ends",
        "it leaves a thread that keeps the process from ending",
        "registration.unload",
        plugin(
            "never-ends",
            at_import="import threading\n\nthreading.Thread(target=threading.Event().wait).start()",
        ),
        _AT_IMPORT,
    ),
    Mutant(
        "ends-badly",
        "an exit handler of it turns success into failure",
        "registration.unload",
        plugin("ends-badly", at_import="import atexit, os\n\natexit.register(lambda: os._exit(3))"),
        _AT_IMPORT,
    ),
    Mutant(
        "any-torch",
        "it is loaded beside a torch that it cannot run with, and raises",
        "registration.refuses-unsupported-torch",
        plugin(
            "any-torch",
            at_import="""
                from importlib.metadata import version

                if version("torch").split(".")[0] < "2":
                    raise ImportError("undefined symbol: at::Tensor")
            """,
        ),
        _WITH_TORCH,
    ),
    Mutant(
        "requires-torch",
        "its distribution requires a torch, its manifest takes any",
        "registration.refuses-unsupported-torch",
        plugin("requires-torch", required=("torch>=2.11",)),
        _WITH_TORCH,
    ),
)
