"""Audits from programs."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from parties.api.arguments import check_path, optional_path
from parties.api.errors import in_terms_of_python
from parties.api.notebook import embedded_page
from parties.audit.bundle import unpacked_run
from parties.audit.findings import FAIL, Check
from parties.audit.html import render_audit
from parties.audit.runner import Audit, audit_folder


class AuditResult:
    """Result of an audit: ``headline``, ``checks`` in order, ``limits`` (facts that no audit shows), and ``html``.

    ``passed`` is true if no check failed and at least one passed; the object itself has no truth value.
    """

    def __init__(self, found: Audit) -> None:
        self._found = found
        self.passed = found.ok
        self.headline = found.headline
        self.checks: tuple[Check, ...] = found.checks
        self.limits = found.limits
        self.answers = found.answers
        self.html = render_audit(found)

    @property
    def failed(self) -> tuple[Check, ...]:
        """Failed checks."""
        return tuple(check for check in self.checks if check.status == FAIL)

    def to_dict(self) -> dict[str, object]:
        """Returns the document of `syncret audit --json`."""
        return self._found.to_dict()

    def __bool__(self) -> NoReturn:
        raise TypeError("an audit has no truth value; ask for .passed")

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        verdict += f"): {self.headline}"
        lines = [f"{check.status:<15}{check.name}: {check.detail}" for check in self.checks]
        return "\n".join([f"AuditResult({verdict}", *lines])

    def _repr_html_(self) -> str:
        return embedded_page(self.html)


@in_terms_of_python
def audit(
    run: str | Path,
    *,
    config: str | Path | None = None,
    certificates: str | Path | None = None,
) -> AuditResult:
    """Makes every check of `syncret audit` on a run's folder or bundle; writes nothing.

    Args:
        run: Folder or bundle of the run.
        config: Agreed configuration, from an independent source.
        certificates: Folder of the certificates; by default in the run's folder.

    Raises StoreError if there are no transcripts, TypeError for no path.
    """
    folder, agreed = (
        optional_path("certificates", certificates),
        optional_path("config", config),
    )
    with unpacked_run(check_path("run", run)) as unpacked:
        found = audit_folder(
            unpacked.folder,
            left_out=unpacked.left_out,
            certificates=folder,
            agreed=agreed,
        )
        return AuditResult(found)
