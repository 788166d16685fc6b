"""For which tables epsilon is: said wherever it is printed, with what a replaced row costs where sizes are public."""

import json
from pathlib import Path

import pytest

from mechanisms.accounting import LedgerEntry, rho, rho_from_epsilon_delta
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.replacement import rho_of_replacing
from parties.cli.attend import attendance_text
from parties.cli.run_federation import flaim_closing_lines
from parties.config import CertificateFiles, FlaimSection
from parties.federation.client import ParticipantReport
from parties.identity.tls import make_certificates
from parties.methods.flaim.report import write_server_report
from parties.methods.flaim.settings import ReplacementCost, neighbours_text, settings_of
from tests.parties.flaim_support import NAMES, SERVER, flaim_config, play
from tests.parties.support import make_config
from tests.parties.test_report import Page

ROW = "one row added to or removed from one client's table"
DECLARED = f"{ROW}, its declared number of rows, which is public, being the same"


def test_sizes_are_estimated_by_default() -> None:
    assert FlaimSection().sizes == "estimated"
    assert FlaimSettings.preset("private", rho=1.0).sizes == "estimated"
    assert settings_of(make_config({"party": None})).sizes == "estimated"


@pytest.mark.parametrize("sizes", ["estimated", "public"])
async def test_epsilon_is_printed_with_its_neighbours_everywhere(
    tmp_path: Path, sizes: str
) -> None:
    certificates: dict[str, CertificateFiles] = make_certificates(tmp_path, [SERVER], NAMES)
    # The default is not said: it is what a config without the key has.
    config = flaim_config(certificates, {"flaim.sizes": sizes} if sizes == "public" else None)
    _, clients = await play(config, certificates, tmp_path)
    write_server_report(config, tmp_path / "server")
    report = json.loads((tmp_path / "server" / "report.json").read_text())
    assert "not_private" not in report
    assert len(report["quality"]["marginals"]) == len(config.build_workload().candidates)
    page = Page((tmp_path / "server" / "report.html").read_text()).text
    lines = dict(flaim_closing_lines(report))
    (mine, *_) = (client for client in clients if isinstance(client, ParticipantReport))
    said = attendance_text(mine, config)
    guarantee, trust = report["flaim"]["guarantee"], " ".join(report["trust"])
    expected = ROW if sizes == "estimated" else DECLARED
    assert guarantee["unit"] == expected
    for text in (page, lines["guarantee"], said, trust):
        assert expected in text.replace("&#39;", "'")
        assert ("declared number" in text) == (sizes == "public")
    assert "chosen queries" in lines
    setting = report["flaim"]["setting"] | {"variant": "pairs"}
    of_pairs = report | {"flaim": report["flaim"] | {"setting": setting}}
    assert "chosen queries" not in dict(flaim_closing_lines(of_pairs))
    events = [LedgerEntry.from_dict(entry).event for entry in report["privacy"]["ledger"]]
    replaced = ReplacementCost.of(FlaimSection(sizes=sizes), events, delta=config.run.delta)
    if sizes == "estimated":
        assert replaced is None
        assert mine.facts["replaced"] is None
        assert not any("replaced" in text for text in (page, said, trust, *lines))
        return
    assert replaced is not None
    assert replaced.rho == rho_of_replacing(events)
    assert guarantee["replaced"] == lines["row replaced"] == str(replaced)
    assert str(replaced) in page
    assert str(replaced) in trust
    assert mine.facts["replaced"] is not None
    assert mine.facts["replaced"] in said


def test_replaced_is_2_2_times_rho_and_its_epsilon_of_a_run_as_the_paper_has_it() -> None:
    rho_total = rho_from_epsilon_delta(1.0, 1e-5)
    schedule = FlaimSettings.preset("private", rho=rho_total).schedule(14)
    events = [event for round in range(schedule.rounds + 1) for event in schedule.events(round)]
    found = ReplacementCost.of(FlaimSection(sizes="public"), events, delta=1e-5)
    assert found is not None
    assert found.times == pytest.approx(2.2, abs=1e-3)
    assert found.rho == pytest.approx(2.2 * sum(map(rho, events)), rel=1e-3)
    assert found.epsilon == pytest.approx(1.538, abs=1e-3)
    assert ReplacementCost.of(FlaimSection(sizes="public"), [], delta=1e-5) is None


def test_unit_names_what_is_declared() -> None:
    assert neighbours_text(make_config()) == ROW
    assert neighbours_text(make_config({"flaim.sizes": "public"})) == DECLARED
