"""``torchyard env``: what a bug report needs, and nothing that identifies its author."""

from __future__ import annotations

import platform as stdlib_platform
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click

from torchyard._environ import configuration, present_settings, thread_settings, user_names
from torchyard._errors import PlatformError
from torchyard._platforms.accelerators import with_accelerators
from torchyard._platforms.files import FactSource, Origin, PlatformFile
from torchyard._platforms.platform import cpu_model, probe_platform
from torchyard._plugins.installed import torchyard_distributions
from torchyard._registry.registry import registry
from torchyard._tables import NAME
from torchyard._version import __version__
from torchyard.cli._output import answer_only, json_option, write_json
from torchyard.cli._torch import load_torch

# What kernels choose by; the rest of a processor's flags says nothing about them.
_FEATURES: Final = re.compile(
    r"(avx|amx|fma|f16c|sse4|bmi2|asimd|sve|sme(?!p)|i8mm|bf16|fphp|neon|lasx|lsx|v$|zv)"
)
_SHORTEST_NAME: Final = 3


@click.command()
@click.option(
    "--platform-out",
    type=click.Path(path_type=Path),
    help="Also write this machine's facts to a TOML file, which other commands' --platform reads.",
)
@json_option
def env(platform_out: Path | None, as_json: bool) -> None:
    """Print what a bug report needs. Home folders and the user's name are left out."""
    with answer_only(as_json):
        if platform_out is not None:
            _write_platform(platform_out)
        home = Path.home()
        data = redact(_collect(), str(home), (home.name, *user_names()))
    if as_json:
        write_json(data)
        return
    for title, content in data.items():
        if isinstance(content, dict):
            click.echo(f"{title}:")
            for name, value in content.items():
                click.echo(f"  {name}: {value}")
        else:
            click.echo(f"{title}: {content}")


def _write_platform(path: Path) -> None:
    """Write the facts of this machine; reading those of an accelerator initialises it."""
    load_torch()
    machine = probe_platform()
    for device in sorted(machine.devices):
        machine = with_accelerators(machine, device)
    models = [item.name for item in machine.accelerators] or [cpu_model()]
    name = re.sub(r"[^a-z0-9_-]+", "-", path.stem.lower()).strip("-_")
    file = PlatformFile(
        name if NAME.fullmatch(name) else f"machine-{name}".rstrip("-"),
        f"{', '.join(models)}; {machine.system} {machine.machine}",
        machine,
        (FactSource(("*",), Origin.MEASURED, f"read on the machine by torchyard {__version__}"),),
    )
    try:
        path.write_text(file.to_toml(), encoding="utf-8")
    except OSError as error:
        raise PlatformError(f"{path}: cannot be written: {error.strerror}") from error


def redact(value: Any, home: str, names: tuple[str, ...]) -> Any:
    """Return data with the home folder as ``~`` and the user's names as ``<user>``."""
    if isinstance(value, dict):
        return {key: redact(item, home, names) for key, item in value.items()}
    if isinstance(value, list):
        return [redact(item, home, names) for item in value]
    if not isinstance(value, str):
        return value
    if len(home) > 1:
        value = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", value)
    for name in names:
        # A name such as "a" would turn the report into noise and tell nothing.
        if len(name) >= _SHORTEST_NAME:
            value = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "<user>", value)
    return value


def _collect() -> dict[str, Any]:
    torch = load_torch()
    known = registry()
    machine = known.platform
    data: dict[str, Any] = {
        "distributions": torchyard_distributions(),
        "python": f"{stdlib_platform.python_implementation()} {machine.python}",
        "executable": sys.executable,
        "system": stdlib_platform.platform(),
        "cpu": {
            "model": cpu_model(),
            "cores for this process": machine.cpu_cores,
            "features": " ".join(sorted(filter(_FEATURES.match, machine.cpu_features))),
        },
        "torch": torch.problem or "not installed",
        "plugins": {
            plugin.name: f"{plugin.source.version} {plugin.state}"
            + (f": {plugin.code}: {plugin.reason}" if plugin.code else "")
            for plugin in known.plugins
        },
        "settings": present_settings(),
        "configuration file": dict(configuration()),
        "threads": thread_settings(),
    }
    if torch.module is not None:
        data["torch"] = _torch_summary(torch.module)
    return data


def _torch_summary(torch: ModuleType) -> dict[str, str]:
    shown = str(torch.__config__.show())
    kept = [
        line.strip().removeprefix("- ")
        for line in shown.splitlines()
        if line.strip().startswith("- ") and "Build settings" not in line
    ]
    return {
        "version": str(torch.__version__),
        "git": str(torch.version.git_version),
        "cuda": str(torch.version.cuda),
        "hip": str(torch.version.hip),
        "devices": ", ".join(sorted(registry().platform.devices)),
        "threads": f"{torch.get_num_threads()} within an op, {torch.get_num_interop_threads()} "
        f"between ops",
        "build": "; ".join(kept),
    }
