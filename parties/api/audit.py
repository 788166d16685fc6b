"""Audits from programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from parties.api.arguments import check_path, optional_path
from parties.api.errors import in_terms_of_python
from parties.api.notebook import embedded_page
from parties.audit.bundle import unpacked_run
from parties.audit.findings import FAIL, Check
from parties.audit.html import render_audit
from parties.audit.runner import Audit, audit_folder
from parties.foundation.process import require_server_packages
from parties.local.keyed_run import is_keyed_run

if TYPE_CHECKING:
    from parties.audit.keyed import KeyedAudit


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


class KeyedAuditResult:
    """Result of an audit of tables with keys: ``views``, by name, and the ``checks`` on all of them together.

    ``passed`` is true if every view's audit passed and no check failed; the object itself has no truth value.
    """

    def __init__(self, found: KeyedAudit) -> None:
        self._found = found
        self.passed = found.ok
        self.views = {name: AuditResult(view) for name, view in found.views.items()}
        self.checks: tuple[Check, ...] = found.checks

    @property
    def headline(self) -> str:
        """First sentences of each view's audit, after what nobody has checked of the whole."""
        said = [f"{name}: {view.headline}" for name, view in self.views.items()]
        return " ".join([*([self._found.notice] if self._found.notice else []), *said])

    @property
    def failed(self) -> tuple[Check, ...]:
        """Failed checks, those of views as well."""
        own = tuple(check for check in self.checks if check.status == FAIL)
        return (*own, *(check for view in self.views.values() for check in view.failed))

    def to_dict(self) -> dict[str, object]:
        """Returns the document of `syncret audit --json`."""
        return self._found.to_dict()

    def __bool__(self) -> NoReturn:
        raise TypeError("an audit has no truth value; ask for .passed")

    def __repr__(self) -> str:
        lines = [f"{check.status:<15}{check.name}: {check.detail}" for check in self.checks]
        lines += [f"view {name}: {view.headline}" for name, view in self.views.items()]
        return "\n".join([f"KeyedAuditResult({'passed' if self.passed else 'failed'})", *lines])


@in_terms_of_python
def audit(
    run: str | Path,
    *,
    config: str | Path | None = None,
    certificates: str | Path | None = None,
) -> AuditResult | KeyedAuditResult:
    """Makes every check of `syncret audit` on a run's folder or bundle; writes nothing.

    Of a run of tables with keys every view is audited, and all together.

    Args:
        run: Folder or bundle of the run.
        config: Agreed configuration, from an independent source.
        certificates: Folder of the certificates; by default in the run's folder.

    Raises StoreError if there are no transcripts, TypeError for no path, ValueError for certificates of several views.
    """
    folder, agreed = (
        optional_path("certificates", certificates),
        optional_path("config", config),
    )
    path = check_path("run", run)
    with unpacked_run(path) as unpacked:
        if is_keyed_run(unpacked.folder):
            if folder is not None:
                raise ValueError("certificates are of one view; give the run of a view, in views/")
            require_server_packages("an audit of tables with keys")
            from parties.audit.keyed import audit_keyed

            return KeyedAuditResult(
                audit_keyed(unpacked.folder, agreed=agreed, left_out=unpacked.left_out)
            )
        found = audit_folder(
            unpacked.folder,
            left_out=unpacked.left_out,
            certificates=folder,
            agreed=agreed,
        )
        return AuditResult(found)
