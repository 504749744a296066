"""Every op has the same modules: a reader of one op knows where to look in another."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.tree import ROOT, sources

# Module -> what it holds. It is a file or a folder, private or public.
ROOMS: Final = {
    "api": "the functions that users call: signature, checks, one call",
    "validation": "every check of an argument, and its message",
    "contract": "the call, the request, and what an implementation does",
    "ops": "the ops of torch.library, their fake kernels and their derivatives",
    "reference": "what the op means, in float64",
    "implementations": "what the package itself offers for the contract",
}
# Contracts that no op of torch.library belongs to.
NO_OP: Final = {
    "export_target/1": "a format that a model is exported to",
    "graph_capture/1": "runs a function of any ops again; the function is its own reference",
    "shared_memory/1": "memory that ranks share; the ops of collectives are its users",
}


def _defined() -> dict[str, Path]:
    """Return the folder of each contract that a package defines."""
    found: dict[str, Path] = {}
    for path in sources(".toml"):
        if path.name != "torchyard.toml":
            continue
        manifest = tomllib.loads((ROOT / path).read_text(encoding="utf-8"))
        for entry in manifest.get("defines", ()):
            package = path.parent
            below = str(entry["module"]).split(".")[1:-1]
            found[str(entry["contract"])] = package.joinpath(*below)
    return found


_DEFINED: Final = _defined()


def _has(folder: Path, room: str) -> bool:
    return any(
        (ROOT / folder / name).exists()
        for prefix in ("", "_")
        for name in (f"{prefix}{room}.py", f"{prefix}{room}/__init__.py")
    )


@pytest.mark.parametrize("contract", sorted(set(_DEFINED) - set(NO_OP)))
def test_an_op_has_every_room(contract: str) -> None:
    folder = _DEFINED[contract]
    missing = [f"{room}: {holds}" for room, holds in ROOMS.items() if not _has(folder, room)]
    assert not missing, f"{contract}: {folder} lacks {missing}"


@pytest.mark.parametrize("contract", sorted(_DEFINED))
def test_a_contract_is_in_a_module_of_that_name(contract: str) -> None:
    assert _has(_DEFINED[contract], "contract")


def test_contracts_without_an_op_are_defined() -> None:
    assert not set(NO_OP) - set(_DEFINED)
