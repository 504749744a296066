"""``use``: demands of implementations inside a ``with`` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchyard._errors import PolicyError
from torchyard._registry.policy import contract_of, demanding
from torchyard._registry.registry import REGISTRIES, registry

__all__ = ["use"]


@contextmanager
def use(**implementations: str) -> Iterator[None]:
    """Demand implementations inside a ``with`` block: ``use(attention="cpu.native")``.

    A keyword is an op's name (any version) or, with ``_v`` before the version, a contract
    (``attention_v1``). The demand never falls back: what the implementation does not support raises
    UnsupportedError. Blocks nest; the innermost wins. Follows the current context (thread, task).

    Raises:
        PolicyError: a keyword or a name that cannot be one, or an op that no installed component
            defines, of which a demand would be without effect.
    """
    known = {item for made in (registry(), *REGISTRIES) for item in made.contracts()}
    for keyword in implementations:
        contract = contract_of(keyword)
        if not any(contract in {str(item), item.op} for item in known):
            ops = ", ".join(sorted({item.op for item in known})) or "none; install a component"
            raise PolicyError(
                f"use({keyword}=...): expected an op of an installed component, got {contract!r}; "
                f"the ops are: {ops}"
            )
    with demanding(implementations):
        yield
