"""The audit of a run of tables with keys: that of every view, and what only all of them together show.

Views are runs of their own (`parties.methods.keyed_study`), audited as any. Beside that: the views are those of the
study's tables, a person pays no more for all of them than the study says, the tables are those that their models draw,
and report, page and a bundle's documents follow from these. A file in no list fails. All values here are public.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from parties.audit.checks.keyed_contents import KeyedContents
from parties.audit.findings import FAIL, Check, make_check, require, skipped_check
from parties.audit.runner import Audit, audit_folder
from parties.config import Config
from parties.local.keyed import KeyedFolder
from parties.methods.keyed_study import KeyedStudy, load_keyed_study, person_epsilon

_UNREADABLE = "the audit of every view"
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class KeyedAudit:
    """Audits of the views by name, and the checks on all of them together, with a ``notice`` of what is unchecked."""

    views: Mapping[str, Audit]
    checks: tuple[Check, ...]
    notice: str = ""

    @property
    def ok(self) -> bool:
        """True if every view's audit is, and no check failed."""
        return all(audit.ok for audit in self.views.values()) and not self.failed

    @property
    def failed(self) -> list[str]:
        """Names of the failed checks, those of a view behind its name."""
        own = [check.name for check in self.checks if check.status == FAIL]
        return own + [
            f"{name}: {check.name}"
            for name, audit in self.views.items()
            for check in audit.checks
            if check.status == FAIL
        ]

    def to_dict(self) -> dict[str, object]:
        """Returns the document that `syncret audit --json` prints."""
        return {
            "ok": self.ok,
            "notice": self.notice,
            "checks": [asdict(check) for check in self.checks],
            "views": {name: audit.to_dict() for name, audit in self.views.items()},
        }


def audit_keyed(
    path: Path,
    *,
    agreed: Path | None = None,
    left_out: Sequence[str] = (),
    independent: bool = False,
) -> KeyedAudit:
    """Makes every check on the run of tables with keys in the folder ``path``.

    ``agreed`` is the study's configuration as the auditor knows it; otherwise it is the folder's. ``left_out`` are
    names of an archive's files that were not unpacked into it. With ``independent`` packages of others check each view,
    too. Raises StoreError for a view without transcripts, ConfigError.
    """
    folder = KeyedFolder.of(path)
    study = folder.study if agreed is None else load_keyed_study(agreed)
    whole = KeyedContents(folder, study, left_out)
    views = dict[str, Audit]()
    with _agreed_views(study if agreed is not None else None) as files:
        for name in study.configs:
            views[name] = audit_folder(
                folder.view(name),
                agreed=files.get(name),
                left_out=whole.left_out_of(name),
                independent=independent,
            )
    found = {name: audit.config for name, audit in views.items() if audit.config is not None}

    def made(name: str, check: Callable[[], str]) -> Check:
        if len(found) < len(views):
            return skipped_check(name, _UNREADABLE)
        return make_check(name, check)

    checks = (
        made("views", lambda: _views(study, found)),
        made("budget", lambda: _budget(study, found)),
        make_check("tables", whole.check_tables),
        make_check("report", whole.check_report),
        make_check("contents", whole.check_files),
    )
    return KeyedAudit(views, checks, whole.notice())


@contextlib.contextmanager
def _agreed_views(study: KeyedStudy | None) -> Iterator[Mapping[str, Path]]:
    """Yields files with the agreed configuration of each view, by name; none without a study."""
    with tempfile.TemporaryDirectory(prefix="syncret-audit-") as folder:
        found = dict[str, Path]()
        for name, config in study.configs.items() if study is not None else ():
            found[name] = Path(folder) / f"{name}.toml"
            found[name].write_text(config.resolved_toml(), encoding="utf-8")
        yield found


def _views(study: KeyedStudy, found: Mapping[str, Config]) -> str:
    for name, config in study.configs.items():
        other = found[name]
        require(
            config.domain.digest() == other.domain.digest(),
            f"the run of {name} had other columns than the study's view {name}",
        )
        for key in ("unit", "rows_per_person", "more_rows"):
            said, ran = getattr(config.run, key), getattr(other.run, key)
            require(
                said == ran, f"the run of {name} had run.{key} = {ran!r}; the view has {said!r}"
            )
        require(
            config.sources == other.sources,
            f"the run of {name} linked other sources than the study's view {name}",
        )
    return f"The runs have the columns and the rows of a person of the study's views: {', '.join(found)}."


def _budget(study: KeyedStudy, found: Mapping[str, Config]) -> str:
    spent = person_epsilon(found.values(), study.delta)
    require(
        spent <= study.epsilon * _ROUNDING,
        f"all views together cost a person epsilon {spent:.6g} at delta {study.delta:g}; the study has "
        f"{study.epsilon:g}",
    )
    return (
        f"All views together cost a person at most epsilon {spent:.4g} at delta {study.delta:g}, as the study has it: "
        f"{study.epsilon:g}."
    )
