"""Prometheus rules: each fires on a value and is silent on another, of metrics that there are, and has a section."""

import operator
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from parties.service.metrics import render
from tests.parties.test_metrics import SERVICE

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "deploy" / "prometheus" / "syncret.rules.yml"
RULES = [
    rule
    for group in yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
_EXPRESSION = re.compile(r"(\w+) (<|<=|>|==|!=) ([\d.]+)")
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}

QUIET: dict[str, Any] = {
    **deepcopy(SERVICE),
    "certificates": [{"kind": "peer", "name": "beta", "left_s": 90 * 86_400}],
    "folder": {"free_bytes": 30 * 10**9, "total_bytes": 60 * 10**9, "backup_age_s": 3_600.0},
    "clock": {"off_s": None, "known": True},
}
for _study in QUIET["studies"]:
    _study["waits"] = []
FAULTS: dict[str, dict[str, Any]] = {
    "SyncretCertificateEndsSoon": {
        "certificates": [{"kind": "server", "name": "alpha", "left_s": 29 * 86_400}]
    },
    "SyncretCertificateEnded": {
        "certificates": [{"kind": "admin", "name": "0.0.0.0:7444", "left_s": -1}]
    },
    "SyncretDiskLow": {"folder": {**QUIET["folder"], "free_bytes": 5 * 10**9}},
    "SyncretDiskFull": {"folder": {**QUIET["folder"], "free_bytes": 10**8}},
    "SyncretBackupOld": {"folder": {**QUIET["folder"], "backup_age_s": None}},
    "SyncretPeerAway": {"peers": [{**peer, "there": False} for peer in QUIET["peers"]]},
    "SyncretClockOff": {"clock": {"off_s": -40.0, "known": True}},
    "SyncretStudyWaits": {"studies": deepcopy(SERVICE["studies"])},
    "SyncretStudyFailed": {
        "studies": [{**QUIET["studies"][1], "state": "failed", "ended_s": 6 * 86_400.0}]
    },
    "SyncretNoticesPending": {"notify": [{**QUIET["notify"][0], "pending": 1}]},
}


def firing(status: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    """The alerts that a service with this status raises, with the labels of each."""
    text = render([], own=status)[0].decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    found: dict[str, list[dict[str, str]]] = {}
    for rule in RULES:
        parsed = _EXPRESSION.fullmatch(rule["expr"])
        assert parsed is not None, f"{rule['alert']}: this test does not read {rule['expr']!r}"
        name, comparison, limit = parsed.groups()
        compares = _COMPARISONS[comparison]
        for sample in samples:
            if sample.name == name and compares(sample.value, float(limit)):
                found.setdefault(rule["alert"], []).append(dict(sample.labels))
    return found


def test_no_alert_fires_where_nothing_is_wrong() -> None:
    assert firing(QUIET) == {}


def test_every_rule_has_a_fault_that_raises_it() -> None:
    assert sorted(rule["alert"] for rule in RULES) == sorted(FAULTS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_fires_at_its_fault_and_leads_to_what_is_to_be_done(rule: dict[str, Any]) -> None:
    found = firing({**QUIET, **FAULTS[rule["alert"]]})
    assert found[rule["alert"]]
    also = {"SyncretCertificateEnded": 2, "SyncretDiskFull": 2}
    assert len(found) == also.get(rule["alert"], 1), found
    for labels in found[rule["alert"]]:
        for name in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert labels[name]
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    heading = anchor.replace("-", " ")
    section = next(s for s in text.split("\n## ") if s.lower().startswith(f"{heading}\n"))
    assert f"`{rule['alert']}`" in section


@pytest.mark.slow
def test_prometheus_itself_fires_each_alert_after_its_time_and_none_where_nothing_is_wrong(
    tmp_path: Path,
) -> None:
    """The rules' own expressions and times, by Debian's package `prometheus`."""
    promtool = shutil.which("promtool") or pytest.skip("promtool is not installed here")
    cases = [
        unit_test(f"count(ALERTS{FIRING}) by (alertname)", QUIET, []),
        *(
            unit_test(
                f"count(ALERTS{FIRING[:-1]},alertname={name!r}}})",
                {**QUIET, **fault},
                [{"labels": "{}", "value": len(firing({**QUIET, **fault})[name])}],
            )
            for name, fault in FAULTS.items()
        ),
    ]
    tests = tmp_path / "tests.yml"
    tests.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "tests": cases}))
    done = subprocess.run(
        [promtool, "test", "rules", str(tests)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


FIRING = '{alertstate="firing"}'


def unit_test(query: str, status: dict[str, Any], samples: list[object]) -> dict[str, object]:
    """A test of promtool's: what the query finds after two hours of a service's status."""
    text = render([], own=status)[0].decode().replace("+Inf", "1e300")
    pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    series = [{"series": name, "values": f"{value}+0x130"} for name, value in pairs]
    test = {"expr": query, "eval_time": "2h", "exp_samples": samples}
    return {"interval": "1m", "input_series": series, "promql_expr_test": [test]}


def test_backup_of_two_days_ago_is_old_and_none_is_older() -> None:
    for age, fires in ((172_799.0, False), (172_801.0, True), (None, True)):
        folder = {**QUIET["folder"], "backup_age_s": age}
        assert ("SyncretBackupOld" in firing({**QUIET, "folder": folder})) == fires


def test_study_that_has_failed_is_seen_for_a_week_and_as_long_as_none_of_its_name_ends_later() -> (
    None
):
    failed = {**QUIET["studies"][1], "state": "failed"}
    for studies, fires in (
        ([{**failed, "ended_s": 6.9 * 86_400}], True),
        ([{**failed, "ended_s": 7.1 * 86_400}], False),
        ([{**failed, "ended_s": 5_000.0}, {**QUIET["studies"][1], "ended_s": 60.0}], False),
        # It was approved again.
        ([{**failed, "state": "approved", "ended_s": 5_000.0}], False),
    ):
        assert ("SyncretStudyFailed" in firing({**QUIET, "studies": studies})) == fires
