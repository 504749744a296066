"""``torchyard explain``: what would compute a request, and the verdict of every candidate."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import click

from torchyard._contracts.contract import ContractDefinition, Request
from torchyard._errors import TorchyardError
from torchyard._failure import describe
from torchyard._registry.decision import Decision, Outcome, request_fields
from torchyard.cli._output import answer_only, console, json_option, write_json
from torchyard.cli._platform import (
    default_device,
    describe_platform,
    platform_option,
    registry_of,
)
from torchyard.cli._torch import load_torch

_NOTHING_SERVES: Final = 3
_STYLES: Final = {Outcome.CHOSEN: "bold green", Outcome.REFUSED: "red"}


@click.command()
@click.argument("op")
@click.option("--device", help="Torch device type, such as cpu.")
@click.option("--dtype", help="Such as bfloat16.")
@click.option("--shape", help="Sizes, as the component documents them: 1,8,2048,64.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any field of the request."
)
@click.option("--use", metavar="NAME", help="Demand this implementation, as a call's argument.")
@platform_option
@json_option
def explain(
    op: str,
    device: str | None,
    dtype: str | None,
    shape: str | None,
    settings: tuple[str, ...],
    use: str | None,
    platform: str | None,
    as_json: bool,
) -> None:
    """Explain which implementation of OP would compute a request, on this machine or another.

    OP is a contract such as attention/1, or attention for its newest version. With --platform the
    device is that machine's accelerator unless --device names another. Exit status 0 if an
    implementation computes the request, 3 if none does.
    """
    given = {"device": device, "dtype": dtype, "shape": shape}
    fields = {name: text for name, text in given.items() if text is not None}
    fields.update(map(_parse_setting, settings))
    with answer_only(as_json):
        known, file = registry_of(platform)
        if file is not None:
            fields.setdefault("device", default_device(file))
        contract = known.contract(op)
        request = _parse(known.definition(contract), fields)
        if file is None and request.device not in known.platform.devices:
            # Devices besides the CPU are known only to an imported torch.
            load_torch()
        decision = known.decide(contract, request, use=use)
    if as_json:
        data = decision.to_json()
        if file is not None:
            data["platform"] = {"name": file.name, "summary": file.summary}
        write_json(data)
    else:
        if file is not None:
            console().print(f"platform {describe_platform(file)}", soft_wrap=True)
        _write(decision)
    sys.exit(0 if decision.name else _NOTHING_SERVES)


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.UsageError(f"--set: expected KEY=VALUE, got {text!r}")
    return key.strip(), value.strip()


def _parse(definition: ContractDefinition, fields: Mapping[str, str]) -> Request:
    try:
        return definition.request(fields)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except Exception as error:
        raise TorchyardError(
            f"{definition.contract}: the component cannot read these fields: {describe(error)}"
        ) from error


def _write(decision: Decision) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    headline = Text(f"{decision.contract} on {decision.request.device}: ")
    style = "bold green" if decision.name else "bold red"
    headline.append(decision.name or "no implementation", style=style)
    headline.append(f" (decided by {decision.source})")
    out.print(headline)
    fields = request_fields(decision.request)
    out.print("request: " + ", ".join(f"{name}={value}" for name, value in fields.items()))
    table = Table(box=None, pad_edge=False)
    for heading in ("candidate", "outcome", "verdict"):
        table.add_column(heading, overflow="fold")
    for candidate in decision.trace:
        verdict = candidate.verdict
        words = Text(f"{verdict.code}: {verdict.text}" if verdict.code else verdict.text)
        if verdict.hint:
            words.append(f"\nhint: {verdict.hint}", style="dim")
        outcome = Text(candidate.outcome, style=_STYLES.get(candidate.outcome, ""))
        table.add_row(Text(candidate.name), outcome, words or Text("supported"))
    out.print(table if decision.trace else "no candidate: no plugin implements this contract here")
