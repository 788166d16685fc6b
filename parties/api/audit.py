"""Audits from programs.

Provides ``audit`` and ``AuditResult``. Secret: nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from parties.api.notebook import embedded_page
from parties.audit.bundle import unpacked_run
from parties.audit.findings import FAIL, Check
from parties.audit.html import render_audit
from parties.audit.runner import Audit, audit_folder


class AuditResult:
    """What an audit found: ``checks`` in their order, ``limits``, what no audit shows, and ``html``, the page.

    ``passed`` is whether no check failed, and some passed; it has to be asked for.
    """

    def __init__(self, found: Audit) -> None:
        self.passed = found.ok
        self.checks: tuple[Check, ...] = found.checks
        self.limits = found.limits
        self.html = render_audit(found)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == FAIL)

    def to_dict(self) -> dict[str, object]:
        """As `syncret audit --json`."""
        checks = [
            {"name": check.name, "status": check.status, "detail": check.detail}
            for check in self.checks
        ]
        return {"ok": self.passed, "checks": checks}

    def __bool__(self) -> NoReturn:
        raise TypeError("an audit has no truth value; ask for .passed")

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        lines = [f"{check.status:<15}{check.name}: {check.detail}" for check in self.checks]
        return "\n".join([f"AuditResult({verdict})", *lines])

    def _repr_html_(self) -> str:
        return embedded_page(self.html)


def audit(
    run: str | Path,
    *,
    config: str | Path | None = None,
    certificates: str | Path | None = None,
) -> AuditResult:
    """Make every check of `syncret audit` on a run's folder or bundle; writes nothing.

    ``config`` is the configuration that was agreed on, from a source of your own. ``certificates`` are in the run's
    folder unless given. Raises StoreError where there are no transcripts.
    """
    with unpacked_run(Path(run)) as folder:
        found = audit_folder(
            folder,
            certificates=None if certificates is None else Path(certificates),
            agreed=None if config is None else Path(config),
        )
        return AuditResult(found)
