"""An import-linter contract that lists what may be imported, so that new modules are forbidden."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph

__all__ = ["AllowedImports"]


class AllowedImports(Contract):
    """Allow some packages to import, of another package, nothing but the modules listed.

    Options:
        importers: the packages that the contract binds, with everything in them; ``name.*`` binds
            what is in a package but not its ``__init__``.
        imported: the package from which little may be imported.
        allowed: the modules of it that may be imported directly; shell patterns.
        exceptions: single imports that are allowed besides, written ``importer -> imported``.
    """

    type_name = "allowed"

    importers = fields.ListField(subfield=fields.StringField())
    imported = fields.StringField()
    allowed = fields.SetField(subfield=fields.StringField())
    exceptions = fields.SetField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every direct import that the list does not allow."""
        allowed = [str(name) for name in self.allowed]  # type: ignore[attr-defined]
        exceptions = {str(pair) for pair in self.exceptions}  # type: ignore[attr-defined]
        violations = [
            (importer, imported)
            for package in self.importers  # type: ignore[attr-defined]
            for importer in _bound(graph, str(package))
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if f"{imported}.".startswith(f"{self.imported}.")
            and not any(fnmatchcase(imported, pattern) for pattern in allowed)
            and f"{importer} -> {imported}" not in exceptions
        ]
        return ContractCheck(kept=not violations, metadata={"violations": violations})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line per forbidden import."""
        for importer, imported in check.metadata["violations"]:
            output.print_error(f"{importer} imports {imported}, which the contract does not list")


def _bound(graph: ImportGraph, package: str) -> list[str]:
    name = package.removesuffix(".*")
    modules = graph.find_descendants(name) | ({name} if name == package else set())
    return sorted(modules)
