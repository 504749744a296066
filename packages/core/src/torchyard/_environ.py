"""The settings of torchyard: one table, one reader.

A setting is looked for in the environment first and then in the user's configuration file (TOML,
the same names in lower case without ``TORCHYARD_``, every value a string). A variable that is set
but empty switches the file's value off. The environment is read again for every decision, the file
once per process. Nothing else in the project reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from torchyard import arguments
from torchyard._errors import PolicyError

_PREFIX: Final = "TORCHYARD_"


@dataclass(frozen=True, slots=True)
class Variable:
    """One setting: its name, the form of its value, and what it does."""

    name: str
    form: str
    default: str
    help: str


VARIABLES: Final = (
    Variable(
        "TORCHYARD_CONFIG",
        "path",
        "torchyard/config.toml in the user's configuration folder",
        "Read settings from this file. Read at start.",
    ),
    Variable(
        "TORCHYARD_ENLIST",
        "name,name,...",
        "",
        "Let these implementations be chosen although no list of their device names them.",
    ),
    Variable(
        "TORCHYARD_FLIGHT",
        "on | off | folder=...,timeout=...,capacity=...,gather=...",
        "off",
        "Record collectives and dump them when they hang; read when torchyard_collectives is "
        "imported.",
    ),
    Variable(
        "TORCHYARD_LOCK",
        "path",
        "",
        "Choose what this file of decisions (torchyard decisions dump) chose.",
    ),
    Variable(
        "TORCHYARD_NOTICES",
        "on | off",
        "on",
        "Log once per decision which listed implementations an automatic choice skipped, and why.",
    ),
    Variable(
        "TORCHYARD_PLUGINS",
        "name,-name,... | none",
        "",
        "Load only the named plugins; -name blocks one; 'none' blocks all. Read at start.",
    ),
    Variable(
        "TORCHYARD_PRIVATEUSE1",
        "plugin",
        "",
        "Give torch's single PrivateUse1 slot to this plugin where several claim it, or where it "
        "takes part on request only, as a device for tests does. Read at start.",
    ),
    Variable(
        "TORCHYARD_TUNED",
        "on | off",
        "on",
        "Choose what was measured to be the fastest on this machine, where something was.",
    ),
    Variable(
        "TORCHYARD_USE",
        "contract=implementation,...",
        "",
        "Use exactly these implementations; an error where one does not support a request.",
    ),
)

_BY_NAME: Final = {variable.name: variable for variable in VARIABLES}

# What every decision reads, as the environment stores the names: bytes where names are bytes.
DECIDING: Final = tuple(
    os.fsencode(name) if os.supports_bytes_environ else name
    for name in ("TORCHYARD_USE", "TORCHYARD_ENLIST", "TORCHYARD_LOCK", "TORCHYARD_TUNED")
)
UNSET: Final = ("", "", "", "")
# The dictionary beneath the environment, where it has one. A look into the environment for a
# variable that is not there costs half a microsecond, an exception inside; into the dictionary a
# thirtieth of that.
_HELD: Final[Any] = getattr(os.environ, "_data", None)
ENVIRON: Final = os.environ if isinstance(_HELD, dict) else None
# Return this process's environment: somebody may have put another mapping in its place.
process_environ: Final[Callable[[], object]] = partial(getattr, os, "environ")
# Whether none of some names is set in ENVIRON.
none_set: Final[Callable[[Iterable[str | bytes]], bool]] = (
    {}.keys() if ENVIRON is None else _HELD.keys()
).isdisjoint

# What others read and torchyard only shows: they decide how many threads a kernel gets.
_THREADS: Final = (
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "MKL_DYNAMIC",
    "MKL_NUM_THREADS",
    "OMP_DYNAMIC",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OPENBLAS_NUM_THREADS",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
)


def setting(name: str, environ: Mapping[str, str] | None = None) -> str:
    """Return a setting of the table, or the empty string where nobody set it.

    Args:
        name: the variable's full name.
        environ: what to read instead of this process's environment and configuration file.

    Raises:
        ValueError: the table does not list the name.
    """
    variable = _BY_NAME[arguments.choice("setting", "name", name, _BY_NAME)]
    if environ is not None:
        arguments.mapping("setting", "environ", environ)
    source = os.environ if environ is None else environ
    value = source.get(variable.name)
    if value is not None:
        return value.strip()
    if environ is None and name != "TORCHYARD_CONFIG":
        return _configured(name)
    return ""


def decision_settings(environ: Mapping[str, str] | None = None) -> tuple[str, str, str, str]:
    """Return TORCHYARD_USE, _ENLIST, _LOCK and _TUNED, as :func:`setting` would."""
    return (
        setting("TORCHYARD_USE", environ),
        setting("TORCHYARD_ENLIST", environ),
        setting("TORCHYARD_LOCK", environ),
        setting("TORCHYARD_TUNED", environ),
    )


def plugin_setting(plugin: str, name: str, environ: Mapping[str, str] | None = None) -> str:
    """Return a plugin's own setting: ``plugin_setting("cpu", "isa")`` is ``TORCHYARD_CPU_ISA``.

    Plugins read their settings here and nowhere else, so that ``torchyard env`` can show them.
    """
    of = "plugin_setting"
    plugin, name = arguments.text(of, "plugin", plugin), arguments.text(of, "name", name)
    source = os.environ if environ is None else arguments.mapping(of, "environ", environ)
    variable = f"{_PREFIX}{plugin}_{name}".upper().replace("-", "_")
    value = source.get(variable)
    if value is None and environ is None:
        return _configured(variable)
    return (value or "").strip()


def child_environ(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return an environment for a child process that no setting of torchyard reaches.

    It is this process's, without every ``TORCHYARD_*`` variable.

    Args:
        changes: what is set besides, or removed where the value is None.
    """
    of = "child_environ"
    arguments.mapping(of, "changes", changes, "a mapping of names to strings or None")
    for name, value in changes.items():
        arguments.text(of, f"changes[{name!r}] (the name)", name)
        if value is not None and not isinstance(value, str):
            raise arguments.wrong_kind(of, f"changes[{name!r}]", "a string or None", value)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}
    kept.update((name, value) for name, value in changes.items() if value is not None)
    return {name: value for name, value in kept.items() if changes.get(name, "") is not None}


def present_settings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return every ``TORCHYARD_*`` variable that is set, known to the table or not."""
    source = os.environ if environ is None else environ
    return {name: value for name, value in sorted(source.items()) if name.startswith(_PREFIX)}


def thread_settings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that are set and steer threads or torch's autoload, for bug reports."""
    source = os.environ if environ is None else environ
    return {name: source[name] for name in _THREADS if name in source}


def user_names(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the user's name as the environment has it, to be left out of bug reports."""
    source = os.environ if environ is None else environ
    found = (source.get(name, "") for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"))
    return tuple(sorted({name for name in found if name}))


def unknown_settings(
    plugins: tuple[str, ...], environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the set ``TORCHYARD_*`` variables that neither the table nor a plugin owns.

    Keys of the configuration file that nobody owns are among them, written as variables.
    """
    owned = tuple(f"{_PREFIX}{plugin}_".upper().replace("-", "_") for plugin in plugins)
    names = set(present_settings(environ))
    if environ is None:
        names |= {f"{_PREFIX}{key}".upper() for key in configuration()}
    return tuple(
        name for name in sorted(names) if name not in _BY_NAME and not name.startswith(owned)
    )


def config_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return where the configuration file is looked for; it need not exist."""
    named = setting("TORCHYARD_CONFIG", environ)
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_config_path("torchyard")) / "config.toml"


@lru_cache(maxsize=1)
def configuration() -> Mapping[str, str]:
    """Return the configuration file's settings; empty without a file. Read once per process."""
    path = config_path()
    if not path.is_file():
        named = setting("TORCHYARD_CONFIG")
        if named:
            raise PolicyError(
                f"TORCHYARD_CONFIG: expected the path of a TOML file, got {named!r}, which does "
                f"not exist; create it or unset the variable"
            )
        return {}
    import tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PolicyError(
            f"{path}: expected a TOML file of settings, got: {error}; correct or remove it"
        ) from error
    for key, value in data.items():
        if not isinstance(value, str):
            raise PolicyError(
                f"{path}: {key}: expected a string, written as the variable "
                f"{_PREFIX}{key.upper()} would be, got {value!r}"
            )
    return data


def _configured(variable: str) -> str:
    return configuration().get(variable.removeprefix(_PREFIX).lower(), "").strip()


def restart_count() -> int:
    """Return how often torchrun has restarted this job's processes; 0 where it started none."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)
