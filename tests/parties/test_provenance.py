"""Domains that were read from a table: a study in earnest refuses them by name, a trial says how much it was."""

import io
import json
import re
import zipfile
from pathlib import Path

import pytest

from mechanisms.draft import draft_domain
from mechanisms.reading import read_table
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import Address, load_config
from parties.foundation.exit_codes import Status
from parties.identity.join_documents import ensure_join_request, ensure_server_card
from parties.identity.study_setup import CERTIFICATES, create_study, issue_certificates
from parties.identity.tls import Authority
from parties.local.assemble import finish_trial
from parties.local.methods import open_method_folder, run_method
from parties.local.request import TrialRequest, load_trial
from parties.observability.events import Progress, TextLines
from parties.session.draft_config import draft_text
from tests.parties.commands import ROOT, snapshot
from tests.parties.test_report import Page

STUDIES = {
    "distaim": (ROOT / "examples" / "three-hosts" / "study.toml", "submit"),
    "flaim": (ROOT / "examples" / "flaim-hosts" / "study.toml", "flaim-client"),
    "silos": (ROOT / "examples" / "tda" / "study.toml", "silos-client"),
}
NAMES = ("alpha", "beta", "gamma")
PUBLIC = 'from = "public: the joint data catalogue"'


def cards_of(kind: str, folder: Path) -> list[Path]:
    """The cards of three compute servers, or of one server."""
    cards = []
    for name in NAMES if kind == "distaim" else ("hub",):
        ends = ("mesh", "ingest") if kind == "distaim" else ("address",)
        card = folder / f"{name}.card"
        at = {end: Address(f"{name}.example", 7000 + number) for number, end in enumerate(ends)}
        ensure_server_card(name, at, keys=folder / name, path=card)
        cards.append(card)
    return cards


@pytest.mark.parametrize("kind", STUDIES)
def test_a_study_in_earnest_refuses_what_was_read_from_a_table(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    source, client = STUDIES[kind]
    study = tmp_path / "study.toml"
    table = tmp_path / "table.csv"
    cards = cards_of(kind, tmp_path)
    authority, founded_in = tmp_path / "authority", tmp_path / "s"
    Authority.make(authority, 10)
    study.write_text(source.read_text())
    founded = create_study(study, cards, authority=authority, out=founded_in, valid_days=9)
    table.write_text(",".join(founded.domain.written_names) + "\n")
    ensure_join_request("north", keys=tmp_path / "tls", path=tmp_path / "north.request")
    issue_certificates(
        [tmp_path / "north.request"],
        authority=authority,
        out=founded_in / CERTIFICATES,
        valid_days=9,
    )
    confirmed = founded_in / "study.toml"
    # One column is as a draft has it: its key is named, and nothing else.
    unconfirmed = founded_in / "unconfirmed.toml"
    unconfirmed.write_text(confirmed.read_text().replace(PUBLIC, 'from = "table"', 1))
    study.write_text(source.read_text().replace(PUBLIC, 'from = "table"', 1))
    column = founded.domain.written_names[0]
    before = snapshot(tmp_path)
    for arguments in (
        [
            *("certs", "merge", str(study), *map(str, cards)),
            *("--authority", str(authority), "--out", str(tmp_path / "other")),
        ],
        ["kit", str(unconfirmed), *map(str, cards), "--out", str(tmp_path / "kits")],
        ["study", "propose", str(unconfirmed), "--dir", str(tmp_path / "service")],
        [client, str(unconfirmed), "--data", str(table)],
    ):
        if kind == "silos" and arguments[0] == "study":
            continue
        assert run_command_line(cli, arguments) == Status.CONFIG, arguments
        said = capsys.readouterr().err
        assert "column.from: what was read from a table" in said
        assert f"{column!r} (" in said
        assert said.count(" (") <= 3, "no other column is named"
    assert snapshot(tmp_path) == before
    # Confirmed, the same commands do not mind: the kit is made.
    kits = ["kit", str(confirmed), *map(str, cards), "--out", str(tmp_path / "kits")]
    assert run_command_line(cli, kits) == Status.DONE


async def test_a_trial_of_a_draft_says_how_many_values_no_epsilon_covers(tmp_path: Path) -> None:
    table, study = tmp_path / "t.csv", tmp_path / "t.toml"
    table.write_text("sex,age\n" + "".join(f"{'fm'[i % 2]},{i % 7 + 40}\n" for i in range(80)))
    drafted = draft_domain(table)
    study.write_text(draft_text("t.csv", drafted))
    config = load_config(study)
    request = TrialRequest("aim", "t", None, "iid", None, 0)
    trial = load_trial(config, read_table(table), request, source=str(table))
    folder = open_method_folder(trial, tmp_path / "run")
    document = finish_trial(
        trial, folder, await run_method(trial, folder, Progress(TextLines(stream=io.StringIO())))
    )
    counts = document["about"]["provenance"]  # type: ignore[index]
    assert set(counts) == {"table"}
    said = Page((folder.path / "report.html").read_text()).text
    assert "public before" not in said
    assert f"Not covered by this: {counts['table']} values of the domain" in said
    assert (
        run_command_line(
            cli,
            ["bundle", str(folder.path), "--out", str(tmp_path / "b.zip"), "--uncharged", "drawn"],
        )
        == Status.DONE
    )
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        files = {Path(name).name: bundle.read(name) for name in bundle.namelist()}
    for name in ("schema.json", "datapackage.json"):
        assert json.loads(files[name])["provenance"] == counts
    assert f"{counts['table']} of its {counts['table']} values" in files["model-card.md"].decode()


def test_a_draft_says_table_of_every_column(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("sex,age\n" + "".join(f"{'fm'[i % 2]},{i % 7 + 40}\n" for i in range(80)))
    text = draft_text("t.csv", draft_domain(table))
    assert re.findall(r"^from = .*$", text, re.MULTILINE) == ['from = "table"'] * 2
