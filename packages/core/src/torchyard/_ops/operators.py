"""Ops that torch sees, each under a name that lasts and under one that its package's sources give.

torch keeps compiled graphs on disk, and finds one again by its text, by torch's own sources and by
settings. A compiled graph also holds what the text does not say of an op: its schema, what its fake
promises, and the calls that its autograd formula makes. So a graph that was kept before an upgrade
of a package would be run after it. Here torch.compile traces each op as an overload that is named
after the sources of its package, which is in the text: other sources, another graph.

Eager calls, programs that are saved and what is not public of torch keep to the default overload,
whose name stays.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from torchyard import arguments

__all__ = ["Operators", "sources_digest"]


class Operators:
    """The ops of one package: ``operators["topk"](x, ...)`` calls one.

    Args:
        namespace: theirs in torch.ops.
        sources: the packages that make them what they are: their own, and those that its fakes and
            formulas call.
    """

    def __init__(self, namespace: str, sources: Sequence[str]) -> None:
        import torch  # the core does without

        self.namespace: Final = namespace
        self.sources: Final = tuple(sources)
        self.overload: Final = f"sources_{sources_digest(sources)}"
        # torch.library has no types of its own.
        self._library: Final = cast("Any", torch.library.Library)(namespace, "DEF")
        self._calls: Final[dict[str, Callable[..., Any]]] = {}
        self._of_sources: Final[dict[str, Callable[..., Any]]] = {}

    def in_graph(self, name: str) -> Callable[..., Any]:
        """Return the overload of an op that a pass of a compiler puts into a graph."""
        return self._of_sources[name]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return what calls an op, by the overload that suits the moment."""
        return self._calls[name]

    def define(
        self,
        schema: str,
        kernel: Callable[..., Any],
        fake: Callable[..., Any],
        *,
        gradient: Callable[..., Any] | None = None,
        setup_context: Callable[..., Any] | None = None,
        jvp: Callable[..., Any] | None = None,
        vmap: Callable[..., Any] | None = None,
        called: str | None = None,
        autograd: Callable[..., Any] | None = None,
        transformed: Callable[..., Any] | None = None,
        has_side_effect: bool = False,
    ) -> None:
        """Register an op. What is given here calls other ops of the package by ``operators[...]``.

        Args:
            schema: as torch.library's ``define`` takes it.
            kernel: computes it on every device, below autograd; autocast is off in it, so that
                what an implementation calls keeps to the dtypes that the fake promises.
            fake: says what comes out, without values.
            gradient, setup_context: as torch.library.register_autograd takes them.
            jvp: forward mode: takes the context, then the tangents in the structure of the op's
                arguments, None for what is no tensor, and for zeros where setup_context called
                ``set_materialize_grads(False)``; returns those of the results, None for what
                setup_context marked as not differentiable. The context has what setup_context gave
                to ``save_for_forward``.
            vmap: as torch.library.register_vmap takes it. A transform whose rule is missing raises
                TransformError.
            called: what users call, for that error; the op's name by default.
            transformed: in place of the rules: computes a call that is differentiated, in either
                mode, or transformed by torch.func. It gets the op, then the op's arguments, and
                applies a torch.autograd.Function that has setup_context and rules for what it
                takes part in. The Function's forward calls the op that was given.
            autograd: in place of all of these: a kernel for autograd, at every level of torch.func;
                ``vmap`` goes with it.
            has_side_effect: whether a graph keeps a call whose result nobody uses.
        """
        import torch
        from torch.fx.node import has_side_effect as keep

        from torchyard._ops import transforms

        name, _, rest = schema.partition("(")
        kernel = _without_autocast(kernel)
        rules = transformed
        if rules is None and (gradient, jvp, vmap) != (None, None, None):
            rules = transforms.of_rules(called or name, gradient, setup_context, jvp, vmap)
        overloads = []
        for form in (name, f"{name}.{self.overload}"):
            qualified = f"{self.namespace}::{form}"
            self._library.define(f"{form}({rest}")
            self._library.impl(form, kernel, "CompositeExplicitAutograd")
            torch.library.register_fake(qualified, fake, lib=self._library)
            packet = getattr(getattr(torch.ops, self.namespace), name)
            overloads.append(getattr(packet, "default" if form == name else self.overload))
            if autograd is not None:
                self._library.impl(form, autograd, "Autograd")
                if vmap is not None:
                    torch.library.register_vmap(qualified, vmap, lib=self._library)
            elif rules is not None:
                transforms.register(self._library, form, overloads[-1], rules)
                if vmap is not None:
                    transforms.register_batches(self._library, form, called or name, vmap)
            if has_side_effect:
                keep(overloads[-1])
        self._of_sources[name] = overloads[-1]
        self._calls[name] = _choosing(*overloads)


def _without_autocast(kernel: Callable[..., Any]) -> Callable[..., Any]:
    from torchyard import torch_compat

    # As torch's own compiled graphs do.
    is_on, off = torch_compat.is_autocast_enabled_anywhere, torch_compat.without_autocast

    def compute(*args: Any, **kwargs: Any) -> Any:
        if not is_on():
            return kernel(*args, **kwargs)
        with off():
            return kernel(*args, **kwargs)

    return compute


def _choosing(lasting: Callable[..., Any], of_sources: Callable[..., Any]) -> Callable[..., Any]:
    from torch.compiler import is_compiling, is_exporting

    def call(*args: Any) -> Any:
        # Also true while a formula is traced for a compiled graph's backward.
        if is_compiling() and not is_exporting():
            return of_sources(*args)
        return lasting(*args)

    return call


def sources_digest(packages: Sequence[str]) -> str:
    """Return a digest of the Python sources of some packages, as 16 hexadecimal digits.

    For keys of what was made by them, such as a compiled graph: the version of a package stays
    while its sources are edited. Another digest each time where a package has no sources to read.

    Args:
        packages: their names, as they are imported.

    Raises:
        TypeError, ValueError: no sequence of names.
    """
    packages = arguments.sequence("sources_digest", "packages", packages, arguments.text)
    digest = hashlib.blake2b(digest_size=8)
    for package in packages:
        spec = importlib.util.find_spec(package)
        found = [
            (Path(folder, name).relative_to(top).as_posix(), Path(folder, name))
            for top in (spec.submodule_search_locations or () if spec is not None else ())
            for folder, _, names in os.walk(top)
            for name in names
            if name.endswith(".py")
        ]
        if not found:
            return secrets.token_hex(digest.digest_size)
        for name, path in sorted(found):
            text = path.read_bytes()
            digest.update(f"{package}/{name} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()
