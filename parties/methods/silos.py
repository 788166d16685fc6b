"""Methods between silos as a kind of method with one server: its registration.

Each of them is a `parties.federation.algorithm.FederatedMethod`, found by its table in the configuration.
"""

import shutil
from pathlib import Path

from parties.config import Config
from parties.federation.client import Participation, silo_participation
from parties.federation.client_session import SiloSession
from parties.federation.method import ServedMethod
from parties.federation.result import RESULT
from parties.federation.server import FederationPlan
from parties.federation.session import TRANSCRIPT, server_certificate_files
from parties.federation.silos import silos_plan
from parties.foundation.untrusted_text import parse_json
from parties.methods.federated_report import silos_report, write_silos_report
from parties.methods.registry import plan_of
from parties.session.owner import Table
from parties.storage.files import disk_errors, write_atomic


def _plan(config: Config) -> FederationPlan:
    return silos_plan(config, plan_of(config))


def _participation(config: Config, table: Table) -> Participation[SiloSession]:
    plan, text = plan_of(config), table.kept(table.text(config), config)
    plan.check_table(text, table.source.shown)
    return silo_participation(config, plan, text)


def _write_report(config: Config, folder: Path) -> None:
    """Writes the report, and beside it the files that an audit reads. Raises StoreError."""
    result = parse_json((folder / RESULT).read_text(encoding="utf-8"))
    transcript, files = folder / TRANSCRIPT, server_certificate_files(config)
    report = silos_report(config, result, dataset=config.run.id, transcript=transcript, trial=False)
    write_silos_report(folder, report)
    with disk_errors(folder):
        for name in ("transcripts", "certificates"):
            (folder / name).mkdir(exist_ok=True)
        shutil.copyfile(transcript, folder / "transcripts" / "server.jsonl")
        for name, source in (("ca.crt", files.ca), (f"{files.cert.stem}.crt", files.cert)):
            shutil.copyfile(source, folder / "certificates" / name)
    public = config.override({"tls": None, "compute": None, "network": None})
    write_atomic(folder / "config.toml", public.resolved_toml())


SERVED = ServedMethod(
    key="silos",
    title="methods between silos",
    again="the same command goes on after the last sum",
    join_options=("checks", "directory", "epsilon", "not_private"),
    run_options=("security", "processes", "beta", "by"),
    plan=_plan,
    participation=_participation,
    write_report=_write_report,
)
