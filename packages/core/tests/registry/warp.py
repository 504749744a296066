"""A plugin of a device called warp, and requests for the toy component."""

from __future__ import annotations

import importlib
from typing import Any

from packages.core.tests.broken_plugins import plugin

__all__ = ["LISTED", "ask", "offer", "warp"]

LISTED = """
[[devices]]
name = "warp"
[[implements]]
contract = "toy/1"
module = "{package}.toy"
devices = ["warp"]
[order."toy/1"]
warp = ["warp.add"]
"""


def ask(**fields: Any) -> Any:
    return importlib.import_module("torchyard_toy.contract").ToyRequest(**fields)


def warp(code: str, manifest: str = LISTED) -> Any:
    return plugin("warp", manifest=manifest, code=code)


def offer(**changes: str) -> str:
    fields = {
        "contract": "contract",
        "name": "'warp.add'",
        "supports": "lambda request, platform: Verdict.yes()",
        "load": "lambda: lambda numbers: 'warped'",
        **changes,
    }
    arguments = ", ".join(f"{name}={text}" for name, text in fields.items())
    return f"""
from torchyard import Implementation, Verdict, hookimpl

calls = []

@hookimpl
def torchyard_implementations(contract):
    calls.append(contract)
    return [Implementation({arguments})]
"""
