"""An import-linter contract that lists what may be imported, so that new modules are forbidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph

__all__ = ["AllowedImports"]


class AllowedImports(Contract):
    """Allow some packages to import, of another package, nothing but the modules listed.

    Options:
        importers: the packages that the contract binds, with everything in them.
        imported: the package from which little may be imported.
        allowed: the modules of it that may be imported directly.
    """

    type_name = "allowed"

    importers = fields.ListField(subfield=fields.StringField())
    imported = fields.StringField()
    allowed = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every direct import that the list does not allow."""
        allowed = {str(name) for name in self.allowed}  # type: ignore[attr-defined]
        violations = [
            (importer, imported)
            for package in self.importers  # type: ignore[attr-defined]
            for importer in sorted({str(package)} | graph.find_descendants(str(package)))
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if f"{imported}.".startswith(f"{self.imported}.") and imported not in allowed
        ]
        return ContractCheck(kept=not violations, metadata={"violations": violations})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line per forbidden import."""
        for importer, imported in check.metadata["violations"]:
            output.print_error(f"{importer} imports {imported}, which the contract does not list")
