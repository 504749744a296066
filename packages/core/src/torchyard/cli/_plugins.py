"""``torchyard plugins``: what is installed, and why what is out of use is out of use."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import click

from torchyard._plugins.plugin import Plugin, PluginState
from torchyard._progress import Steps
from torchyard._registry.registry import registry
from torchyard.cli._commands import CommandClash, find_plugin_commands
from torchyard.cli._output import answer_only, console, json_option, write_json

_STYLES: Final = {
    PluginState.DISCOVERED: "green",
    PluginState.ACTIVE: "green",
    PluginState.BLOCKED: "yellow",
    PluginState.INCOMPATIBLE: "yellow",
    PluginState.UNAVAILABLE: "yellow",
    PluginState.FAILED: "bold red",
}


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Show manifests, import times, tracebacks.")
@click.option(
    "--activate",
    is_flag=True,
    help="Import all that each plugin offers and call its hooks, so that a broken one shows.",
)
@json_option
@click.pass_context
def plugins(ctx: click.Context, verbose: bool, activate: bool, as_json: bool) -> None:
    """List the installed plugins, their state and the reason for it."""
    assert ctx.parent is not None
    assert isinstance(ctx.parent.command, click.Group)
    built_in = frozenset(ctx.parent.command.commands)
    with answer_only(as_json):
        found = registry().plugins
        if activate:
            with Steps(len(found)) as steps:
                for plugin in found:
                    steps.step(plugin.name)
                    registry().activate(plugin)
        clashes = find_plugin_commands(built_in).clashes
    if as_json:
        write_json(
            {
                "plugins": [_as_data(plugin, verbose) for plugin in found],
                "command_clashes": [dataclasses.asdict(clash) for clash in clashes],
            }
        )
    else:
        _write(found, clashes, verbose)


def _as_data(plugin: Plugin, verbose: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": plugin.name,
        "version": plugin.source.version,
        "distribution": plugin.source.distribution,
        "state": str(plugin.state),
        "code": plugin.code and str(plugin.code),
        "reason": plugin.reason,
        "hint": plugin.hint,
        "notes": plugin.notes,
    }
    if verbose:
        data["entry_point"] = plugin.source.value
        data["discovery_seconds"] = plugin.discovery_seconds
        data["import_seconds"] = plugin.import_seconds
        data["traceback"] = plugin.traceback
        data["manifest"] = None
        if plugin.manifest is not None:
            data["manifest"] = _plain(dataclasses.asdict(plugin.manifest))
    return data


def _plain(value: Any) -> Any:
    """Return a manifest's data with contracts as ``op/version``."""
    if isinstance(value, dict):
        if value.keys() == {"op", "version"}:
            return f"{value['op']}/{value['version']}"
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _write(found: tuple[Plugin, ...], clashes: tuple[CommandClash, ...], verbose: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(box=None, pad_edge=False)
    for heading in ("plugin", "version", "distribution", "state", "reason"):
        table.add_column(heading, overflow="fold")
    for plugin in found:
        words = Text(f"{plugin.code}: {plugin.reason}" if plugin.code else "")
        for label, text in [("hint", plugin.hint), *(("note", note) for note in plugin.notes)]:
            if text:
                words.append(f"{chr(10) if words else ''}{label}: {text}", style="dim")
        state = Text(plugin.state, style=_STYLES[plugin.state])
        source = plugin.source
        table.add_row(Text(plugin.name), source.version, source.distribution, state, words)
    out.print(table if found else "no plugin is installed")
    for clash in clashes:
        out.print(f"clash: {clash.text}", soft_wrap=True)
    for plugin in found if verbose else ():
        _write_verbose(plugin)


def _write_verbose(plugin: Plugin) -> None:
    import json

    out = console()
    out.rule(plugin.name, align="left")
    data = _as_data(plugin, True)
    out.print(f"entry point: {plugin.source.value}", soft_wrap=True)
    out.print(f"manifest read in {plugin.discovery_seconds * 1e3:.1f} ms")
    for module, seconds in plugin.import_seconds.items():
        out.print(f"import of {module}: {seconds * 1e3:.1f} ms")
    if data["manifest"] is not None:
        out.print(json.dumps(data["manifest"], indent=2), soft_wrap=True)
    if plugin.traceback:
        out.print(plugin.traceback, soft_wrap=True)
