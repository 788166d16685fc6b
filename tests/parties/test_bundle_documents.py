"""Documents of a bundle for people: schema, model card, terms and data package, of all three kinds of runs."""

import csv
import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechanisms.model import Model
from mechanisms.schema import table_schema
from parties.audit.bundle import CARD, PACKAGE, SCHEMA, TERMS
from parties.audit.checks.documents import DEFAULT_TERMS, documents
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import Config
from parties.foundation.errors import ConfigError
from parties.foundation.exit_codes import Status
from parties.identity.join_documents import fingerprint_words
from parties.mpc.outputs import write_synthetic
from parties.report.model import SelectedQuery
from tests.parties.support import certificates, keys_of, make_config
from tests.parties.test_report import QUALITY, example, marginal

HOSTILE = "a|b <script> *x*\n# y"


def made(folder: Path, config: Config) -> Path:
    """Files of every run: model, table, configuration and report."""
    folder.mkdir()
    domain = config.domain
    singles = tuple((name,) for name in domain.names)
    even = tuple(np.full(size, 1 / size) for size in domain.shape)
    write_synthetic(folder, Model(domain, singles, (-1,) * len(even), even), config, total=50)
    (folder / "config.toml").write_text(config.resolved_toml())
    (folder / "report.json").write_text(json.dumps(example().to_dict()))
    return folder


def bundled(run: Path, *arguments: object) -> dict[str, bytes]:
    """Content of the bundle of a run."""
    out = run.with_suffix(".zip")
    word = ["--uncharged", "rows of nobody"] if (run / "run.json").exists() else []
    assert (
        run_command_line(cli, ["bundle", str(run), "--out", str(out), *word, *map(str, arguments)])
        == Status.DONE
    )
    with zipfile.ZipFile(out) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def central(tmp_path: Path, config: Config | None = None) -> Path:
    run = made(tmp_path / "central", (config or make_config()).override({"party": None}))
    (run / "run.json").write_text('{"finished": true}')
    return run


def test_bundle_of_central_aim_has_the_table_and_what_tells_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = central(tmp_path)
    files = bundled(run)
    assert "10 files are in" in capsys.readouterr().out
    assert set(files) == {
        "config.toml", "report.json", "report.html", "synthetic.csv", "model/model.json", "model/marginals.npz",
        SCHEMA, CARD, TERMS, PACKAGE,
    }  # fmt: skip
    card = files[CARD].decode()
    assert "One process on one machine, which held the whole table." in card
    assert "There are no transcripts of such a run" in card
    assert "**This was a trial on one machine**" in card
    assert "was taken out of report.json and report.html." in card
    assert files[TERMS].decode() == DEFAULT_TERMS


def test_datapackage_lists_all_other_files_with_their_hashes_and_the_tables_schema(
    tmp_path: Path,
) -> None:
    files = bundled(central(tmp_path))
    package = json.loads(files[PACKAGE])
    listed = {item["path"]: item for item in package["resources"]}
    assert set(listed) == set(files) - {PACKAGE}
    for name, item in listed.items():
        assert item["bytes"] == len(files[name])
        assert item["hash"] == f"sha256:{hashlib.sha256(files[name]).hexdigest()}"
    names = [item["name"] for item in package["resources"]]
    assert len(set(names)) == len(names)
    assert package["id"] == f"sha256:{make_config().override({'party': None}).digest()}"
    assert package["created"] == "2026-11-21T19:19:05Z"
    assert package["licenses"] == [{"path": TERMS, "title": "Terms of use"}]
    table = listed["synthetic.csv"]
    assert (table["profile"], table["schema"]) == ("tabular-data-resource", SCHEMA)
    schema: dict[str, Any] = json.loads(files[SCHEMA])
    assert schema == json.loads(json.dumps(table_schema(make_config().domain)))
    header, *rows = csv.reader(io.StringIO(files["synthetic.csv"].decode()))
    assert header == [field["name"] for field in schema["fields"]]
    for field, values in zip(schema["fields"], zip(*rows, strict=True), strict=True):
        limits = field["constraints"]
        if "enum" in limits:
            assert set(values) <= set(limits["enum"])
        else:
            assert all(limits["minimum"] <= int(v) <= limits["maximum"] for v in values)


def test_bundle_of_a_flaim_servers_own_folder_has_its_transcript(tmp_path: Path) -> None:
    keys = keys_of(certificates()["party-0"])
    config = make_config({"party": None, "flaim": {"key": keys["key"]}})
    run = made(tmp_path / "server", config)
    (run / "transcript.jsonl").write_text("{}\n")
    (run / "config.toml").unlink()
    study = tmp_path / "study"
    study.mkdir()
    tls = {"ca": "tls/ca.crt", "cert": "tls/own.crt", "key": "tls/own.key"}
    own = {"tls": tls, "compute": {"dask": "tls://cluster.example:8786"}}
    (study / "study.toml").write_text(config.override(own).resolved_toml())
    (study / "ca.crt").write_text("certificate")
    places = ("--config", study / "study.toml", "--certificates", study)
    files = bundled(run, *places, "--uncharged", "drawn")
    assert files["transcripts/server.jsonl"] == b"{}\n"
    assert files["certificates/ca.crt"] == b"certificate"
    assert b"[tls]" not in files["config.toml"]
    assert b"cluster.example" not in files["config.toml"]
    card = files[CARD].decode()
    assert f"| flaim-server | `{keys['key'][:4]} " in card
    assert fingerprint_words(keys["key"]) in card


def test_bundle_says_which_transcripts_and_which_configuration_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "lead", make_config())
    (run / "transcript.jsonl").write_text("{}\n")
    out = str(tmp_path / "x.zip")
    assert run_command_line(cli, ["bundle", str(run), "--out", out]) == Status.STORAGE
    assert "expected all three servers' there, as party-0.jsonl" in capsys.readouterr().err
    (run / "config.toml").unlink()
    assert run_command_line(cli, ["bundle", str(run), "--out", out]) == Status.STORAGE
    assert "has no config.toml; expected a run's folder, or" in capsys.readouterr().err
    (run / "config.toml").write_text(make_config().resolved_toml())
    (run / "report.json").write_text("[]")
    assert run_command_line(cli, ["bundle", str(run), "--out", out]) == Status.STORAGE
    assert "report.json: is no report" in capsys.readouterr().err
    assert not Path(out).exists()


def test_model_card_says_who_ran_it_and_what_it_guarantees() -> None:
    config = make_config()
    card = documents(config, example().to_dict())[CARD].decode()
    for part in (
        "# Model card: trial",
        "made by DistAIM of the tables of 24 data owners, with Syncret 0.2.0, on 21 November 2026",
        "epsilon = 1, delta = 1e-05, for one row of the whole table.",
        fingerprint_words(config.digest()),
        *(fingerprint_words(party.key) for party in config.parties),
        "| age × stays | 1 | 20.5 |",
        "| sex | categorical | 2 | f, m |",
        "Two servers acting together",
        "`syncret audit BUNDLE`",
        "hold figures that were computed from the real table without noise",
    ):
        assert part in card
    # What the trial's real table was needed for stays out.
    assert "0.125" not in card


def test_model_card_has_the_verdict_and_what_is_known_of_each_query() -> None:
    true = {**QUALITY, "marginals": [{**m, "true_error": 0.777} for m in QUALITY["marginals"]]}  # type: ignore[attr-defined]
    card = documents(make_config(), {**example().to_dict(), "quality": true})[CARD].decode()
    good, bad, quality = (
        card.partition(f"## {title}")[2].partition("\n## ")[0]
        for title in ("What it is for", "What it is not good for", "How good it is")
    )
    assert "- Shares of age." in good
    assert "- Pairs of sex \\| ward." in bad
    assert "holds with 95% confidence" in quality
    best, worst = "| age × stays | 10 % | 15 % |", "| sex × ward | up to 35 % | 60 % |"
    assert quality.index(best) < quality.index(worst)
    assert "| age |" not in quality
    # The true error, in none of the forms that it could take; servers' keys are hexadecimal and may have any digits.
    for shown in ("777", "77.7", "78 %", "38.8", "38.9", "39 %"):
        assert shown not in good + bad + quality
    assert "How good it is" not in documents(make_config(), example().to_dict())[CARD].decode()
    unknown = {**true, "marginals": [marginal("age", "sex", low=0.0, high=2.0)]}
    card = documents(make_config(), {**example().to_dict(), "quality": unknown})[CARD].decode()
    assert "Of no query is it known" in card


def test_model_card_says_once_which_queries_were_chosen_in_which_rounds() -> None:
    chosen = tuple(SelectedQuery(n, ("sex", "age"), 3, 60, 30.0 - n) for n in (1, 3))
    report = replace(example(), selected=chosen, method="flaim-random").to_dict()
    card = documents(make_config(), report)[CARD].decode()
    assert "By FLAIM (random): every column by itself was measured, then in 4 rounds" in card
    assert "| sex × age | 1, 3 | 27 |" in card


def test_model_card_says_of_pairs_that_all_of_them_were_measured() -> None:
    report = replace(example(), selected=(), method="flaim-pairs").to_dict()
    card = documents(make_config({"party": None, "flaim": {}}), report)[CARD].decode()
    assert (
        "By FLAIM (pairs): in 4 rounds all columns and all pairs of columns that the workload has"
        in card
    )
    assert "queries were chosen" not in card


def test_model_card_of_a_folder_without_a_report_has_what_the_configuration_says() -> None:
    card = documents(make_config(), None)[CARD].decode()
    assert (
        "epsilon = 1, delta = 1e-05, for one row added to or removed from the whole table." in card
    )
    assert "rho" not in card


def test_model_card_takes_names_for_text() -> None:
    column = {"name": HOSTILE, "kind": "categorical", "categories": [HOSTILE, "b"]}
    config = make_config({"column": [column], "workload": {"degree": 1, "count": "all"}})
    report = {**example(HOSTILE).to_dict(), "trust": [HOSTILE]}
    card = documents(config, report)[CARD].decode()
    assert "a\\|b &lt;script&gt; \\*x\\* \\# y" in card
    assert "<script" not in card
    assert "\n# y" not in card


def test_documents_are_the_same_bytes_for_the_same_run() -> None:
    report = example().to_dict()
    assert documents(make_config(), report) == documents(make_config(), report)


def test_terms_are_those_of_the_configuration_of_a_file_or_the_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, agreed = tmp_path / "mine.txt", "For teaching alone.\nEvery use is told to us."
    mine.write_text("Anything goes.")
    run = central(tmp_path)
    assert bundled(run, "--terms", mine)[TERMS] == b"Anything goes.\n"
    before = make_config()
    config = make_config({"run.terms": agreed})
    assert config.digest() != before.digest()
    assert "terms" not in before.to_dict()["run"]  # type: ignore[operator]
    (run / "config.toml").write_text(config.override({"party": None}).resolved_toml())
    assert bundled(run, "--overwrite")[TERMS].decode() == f"{agreed}\n"
    out = str(tmp_path / "x.zip")
    arguments = ["bundle", str(run), "--out", out, "--terms", str(mine), "--uncharged", "drawn"]
    assert run_command_line(cli, arguments) == Status.CONFIG
    assert "run.terms: has the terms that all agreed on" in capsys.readouterr().err


@pytest.mark.parametrize("terms", ["", " \n", "a\x07b", "x" * 20_001])
def test_terms_are_text_that_somebody_reads(terms: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.terms: is no text of 1 to 20000"):
        make_config({"run.terms": terms})
    path = tmp_path / "terms.txt"
    path.write_text(terms)
    arguments = [
        "bundle",
        str(central(tmp_path)),
        f"--out={tmp_path / 'x.zip'}",
        "--uncharged=drawn",
    ]
    assert run_command_line(cli, [*arguments, "--terms", str(path)]) == Status.CONFIG
