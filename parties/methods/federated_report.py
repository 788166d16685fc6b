"""Report of a run between silos: results, guarantee, sums, bytes.

``silos_report`` makes the content of report.json from a result.json; ``write_silos_report`` writes report.json and
report.html. All inputs are public, except ``utility``, which a trial measures on the pooled table without noise:
report.json lists it under ``not_private``, and the page says so beside it. Both files mark a run without a guarantee.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechanisms.accounting import LedgerEntry
from mechanisms.origins import counted_in_words
from parties.config import PERSON, Config
from parties.federation.sum_parameters import corrupt_silos, is_malicious, silos_section
from parties.report.model import NOT_PRIVATE, TRIAL_TRUST
from parties.report.privacy_text import (
    MASKED,
    account_text,
    report_header,
    transcript_end,
    unit_trust,
)
from parties.report.render import HtmlTable, page_templates
from parties.storage.files import write_atomic

NO_GUARANTEE = (
    "Not private: sums were opened without noise, and their results may reveal anything about anybody. Do not "
    "publish them."
)
_PAGES = page_templates(__file__)
SILOS_HEADER = ("study", "configuration", "ended", "version", "provenance", "edition")
"""Facts of `parties.report.privacy_text.ReportHeader` that the report of a run between silos has."""
SILOS_TRIAL_TRUST = TRIAL_TRUST.replace("all three servers and all owners", "server and silos")


def silos_report(
    config: Config,
    result: Mapping[str, Any],
    *,
    dataset: str,
    transcript: Path,
    trial: bool,
    utility: Mapping[str, float] | None = None,
    seed: int | None = None,
) -> dict[str, object]:
    """Returns the content of report.json.

    ``trial``: one machine held everything. ``transcript`` dates the run's end.
    """
    section, run, sums = silos_section(config), config.run, result["sums"]
    clients = config.clients.expected
    entries = [LedgerEntry.from_dict(entry) for entry in result["ledger"]]
    header = report_header(config, ended=transcript_end(transcript)).to_dict()
    document: dict[str, object] = {
        "method": "" if config.algorithm is None else config.algorithm[0],
        "dataset": dataset,
        "about": {key: header[key] for key in SILOS_HEADER},
        "seed": seed,
        "private": result["private"],
        "guarantee": result["guarantee"],
        "parameters": {
            "epsilon": run.epsilon,
            "delta": run.delta,
            "rounds": run.rounds,
            "clients": clients,
            "minimum": section.minimum,
            "noise": section.noise,
            "security": run.security,
            **({} if config.algorithm is None else {"settings": dict(config.algorithm[1])}),
        },
        "privacy": {
            "rho_total": result["rho_total"],
            "rho_spent": math.fsum(entry.rho for entry in entries),
            "ledger": result["ledger"],
        },
        "result": result["facts"],
        "files": result["files"],
        "tables": result["tables"],
        "lines": result["lines"],
        "utility": dict(utility or {}),
        "sums": sums,
        "communication": {
            "silo_sent_bytes_mean": sum(result["silos_sent"].values()) / clients,
            "silo_received_bytes_mean": sum(result["silos_received"].values()) / clients,
            "silo_sent_bytes_formula": sums["formula_sent"],
            "silo_received_bytes_formula": sums["formula_received"],
            "by_kind": result["by_kind"],
        },
        "opened": result["opened"],
        "lost": result["lost"],
        "time": {f"{phase}_s": seconds for phase, seconds in result["seconds"].items()},
        "trust": trust_of(
            config, private=result["private"], charged=result["rho_total"] > 0, trial=trial
        ),
        "not_private": _not_private(result, utility),
    }
    return {key: value for key, value in document.items() if value is not None}


def _not_private(result: Mapping[str, Any], utility: Mapping[str, float] | None) -> list[str]:
    """Keys of the report's parts without a guarantee."""
    exact = [] if result["private"] else ["result", "files", "tables", "opened"]
    return [*exact, *(["utility"] if utility else [])]


def trust_of(config: Config, *, private: bool, charged: bool, trial: bool) -> list[str]:
    """Returns the guarantees of a run, and their limits."""
    section, clients = silos_section(config), config.clients.expected
    kind = "whatever it does" if is_malicious(config) else "provided that it follows the protocol"
    held = (
        f"Every sum was taken by secure aggregation, over {section.minimum} silos or more: the server saw sums and no "
        f"silo's part of them, {kind}, with up to {corrupt_silos(config, clients)} of the silos in league with it."
    )
    tried = [SILOS_TRIAL_TRUST] if trial else []
    if not private:
        return [NO_GUARANTEE, held, *tried]
    seen = "Each silo added its part of the noise before anything was sent: the server saw no sum without noise."
    if section.noise == "server":
        seen = "The server states that it added its noise: it saw those sums without noise."
    # Without a charge in zCDP the plan's guarantee says how a person's rows count.
    unit = unit_trust(config, MASKED)[:1] if not charged else unit_trust(config, MASKED)
    return [held, seen, *(unit if config.run.unit == PERSON else ()), *tried]


def write_silos_report(directory: Path, report: Mapping[str, Any]) -> None:
    """Writes report.json and report.html. Raises ValueError for a number that JSON cannot express, StoreError."""
    text = json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_atomic(directory / "report.json", text)
    write_atomic(directory / "report.html", render(report))


def render(report: Mapping[str, Any]) -> str:
    """Returns the HTML page of a report."""
    counts = report["about"].get("provenance")
    return _PAGES.get_template("federated.html").render(
        title=f"{report['dataset']}: {report['method']}",
        report=report,
        no_guarantee=NO_GUARANTEE,
        account=account_text(report),
        not_private=NOT_PRIVATE,
        tiles=_tiles(report),
        tables=[(heading, HtmlTable(heads, rows)) for heading, heads, rows in report["tables"]],
        utility=HtmlTable(("figure", "value"), list(report["utility"].items())),
        sums=_sums(report),
        traffic=_bytes(report),
        ledger=_ledger(report),
        provenance=counted_in_words(counts) if counts else "",
    )


def _tiles(report: Mapping[str, Any]) -> list[tuple[str, object]]:
    parameters, privacy, sums = report["parameters"], report["privacy"], report["sums"]
    private = f"ε {parameters['epsilon']:g}, δ {parameters['delta']:g}"
    tiles = [
        ("privacy", private if report["private"] else "none"),
        ("silos", parameters["clients"]),
        ("sums", sums["taken"] + sums["before"]),
        ("a silo sent", f"{report['communication']['silo_sent_bytes_mean'] / 1e6:.3f} MB"),
    ]
    if privacy["rho_total"]:
        spent = 100 * privacy["rho_spent"] / privacy["rho_total"]
        tiles.insert(1, ("budget spent", f"{spent:.1f} %"))
    return tiles


def _ledger(report: Mapping[str, Any]) -> HtmlTable:
    entries = report["privacy"]["ledger"]
    keys = ("round", "step", "event", "rho")
    return HtmlTable(("sum", *keys[1:]), [[entry[key] for key in keys] for entry in entries])


def _sums(report: Mapping[str, Any]) -> HtmlTable:
    sums = report["sums"]
    rows = [
        ("taken", sums["taken"]),
        ("taken by an attempt before this one", sums["before"]),
        ("given up", sums["given_up"]),
        ("least silos in one", sums["least_survivors"] or 0),
        ("dropouts", sums["dropouts"]),
        ("numbers", sums["values"]),
    ]
    return HtmlTable(("", ""), rows)


def _bytes(report: Mapping[str, Any]) -> HtmlTable:
    traffic = report["communication"]
    rows = [
        (way, traffic[f"silo_{way}_bytes_mean"], traffic[f"silo_{way}_bytes_formula"])
        for way in ("sent", "received")
    ]
    return HtmlTable(("bytes", "a silo on average", "by the formula, of its sums alone"), rows)
