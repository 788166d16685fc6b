"""Reading configs: what is accepted, what is refused and how, what is agreed on."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.errors import DataError
from parties.config import (
    CHECKS,
    MAX_ROWS,
    Address,
    Config,
    agreed_config,
    config_from_dict,
    load_config,
)
from parties.config.files import overrides_from_options
from parties.foundation.errors import ConfigError
from protocols.select_spec import FRACTION_BITS, widths
from tests.parties.support import document, make_config

FULL: dict[str, object] = {
    "run.rows": 77,
    "run.seed": 5,
    "clients.participation": 0.25,
    "tls": {"ca": "certs/ca.crt", "cert": "certs/party-{pid}.crt", "key": "certs/party-{pid}.key"},
}


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        FULL,
        {"workload": {"queries": [["sex", "ward"], ["age"]]}},
        {"workload": {"degree": 1, "count": 2, "seed": 9}},
        {"party": None},
        {
            "flaim": {
                "variant": "naive",
                "address": "10.0.0.1:7300",
                "key": "ab" * 32,
                "clients": ["a", "b", "c"],
            }
        },
    ],
)
def test_resolved_toml_loads_to_an_equal_config(
    tmp_path: Path, overrides: dict[str, object]
) -> None:
    config = make_config(overrides)
    path = tmp_path / "elsewhere" / "config.toml"
    path.parent.mkdir()
    path.write_text(config.resolved_toml(), encoding="utf-8")
    again = load_config(path)
    assert again.resolved_toml() == config.resolved_toml()
    assert again.digest() == config.digest()
    assert again.build_workload().digest() == config.build_workload().digest()


def test_load_config_fills_in_defaults_and_the_id_from_the_file_name(tmp_path: Path) -> None:
    sparse = document()
    sparse["run"] = {"epsilon": 1, "delta": 1e-5, "rounds": 4}
    del sparse["workload"], sparse["timeouts"], sparse["party"]
    path = tmp_path / "my first run!.toml"
    path.write_text(tomli_w.dumps(sparse), encoding="utf-8")
    config = load_config(path, {"run.rounds": 7})
    assert config.run.id == "my-first-run"
    assert (config.run.epsilon, config.run.rounds) == (1.0, 7)
    assert isinstance(config.run.epsilon, float)
    assert (config.workload.degree, config.workload.count, config.workload.seed) == (2, None, 123)
    assert (config.run.iterations, config.run.final_iterations) == (100, 1000)
    assert config.clients.minimum == 3
    assert config.max_rows == 300
    assert config.parties == ()


def test_clients_minimum_defaults_to_one_when_not_everyone_participates() -> None:
    raw = document()
    raw["clients"] = {"expected": 9, "rows_per_client": 2, "participation": 0.5}
    assert config_from_dict(raw, source="x", base=Path()).clients.minimum == 1


@pytest.mark.parametrize(
    ("overrides", "key", "message"),
    [
        ({"run.epsilom": 1}, "run.epsilom", "did you mean 'epsilon'"),
        ({"rum": {}}, "rum", "unknown section; did you mean 'run'"),
        ({"zzz.x": 1}, "zzz", "expected one of run, workload"),
        ({"run.epsilon": None}, "run.epsilon", "is missing"),
        ({"clients": None}, "clients", "is missing"),
        ({"run.epsilon": "1"}, "run.epsilon", "is text; expected a number"),
        ({"run.epsilon": True}, "run.epsilon", "is true or false; expected a number"),
        ({"run.epsilon": 0}, "run.epsilon", "expected a finite number above 0"),
        ({"run.epsilon": float("nan")}, "run.epsilon", "expected a finite number above 0"),
        ({"run.epsilon": float("inf")}, "run.epsilon", "expected a finite number above 0"),
        ({"run.delta": 1.0}, "run.delta", "between 0 and 1"),
        ({"run.rounds": 0}, "run.rounds", "at least 1"),
        ({"run.rounds": 2.5}, "run.rounds", "expected a whole number"),
        ({"run.measure_share": 1}, "run.measure_share", "between 0 and 1"),
        (
            {"run.noise": "none"},
            "run.noise",
            "expected one of discrete-gaussian, box-muller, distributed",
        ),
        (
            {"run.security": "active"},
            "run.security",
            "expected one of semi-honest, malicious",
        ),
        (
            {"run.security": "malicious", "run.noise": "distributed"},
            "run.noise",
            "rests on the word of single servers",
        ),
        ({"run.schedule": "slow"}, "run.schedule", "expected one of fixed, annealed"),
        ({"run.schedule": "annealed"}, "run.rounds", "has 48 at most (16 a column)"),
        ({"run.rounds": None}, "run.rounds", "is missing"),
        ({"run.upload": "zip"}, "run.upload", "expected one of seeded, plain"),
        ({"run.id": "../up"}, "run.id", "letters, digits"),
        ({"run.rows": 0}, "run.rows", "at least 1"),
        ({"run.rows": MAX_ROWS + 1}, "run.rows", f"at most {MAX_ROWS}"),
        ({"run": 3}, "run", "expected a [run] table"),
        ({"workload.count": "some"}, "workload.count", 'a whole number or "all"'),
        ({"workload.queries": [["sex"]]}, "workload.queries", "stands beside"),
        ({"workload": {"queries": []}}, "workload.queries", "is empty"),
        ({"workload": {"queries": "sex"}}, "workload.queries", "lists of column names"),
        ({"workload": {"queries": [["sex", 3]]}}, "workload.queries", "lists of column names"),
        ({"clients.expected": 0}, "clients.expected", "at least 1"),
        ({"clients.minimum": 4}, "clients.minimum", "at most 3"),
        ({"clients.participation": 0}, "clients.participation", "above 0 and at most 1"),
        ({"clients.rows_per_client": MAX_ROWS}, "clients.rows_per_client", f"at most {MAX_ROWS}"),
        ({"timeouts.receive_s": 0}, "timeouts.receive_s", "at least 0.1"),
        ({"timeouts.receive": 3}, "timeouts.receive", "did you mean 'receive_s'"),
        ({"column": []}, "column", "no columns"),
        ({"column": {"name": "x"}}, "column", "expected [[column]] tables"),
        ({"column": [{"name": "x", "kind": "time"}]}, "column", "kind"),
        ({"party": [{"name": "a"}]}, "party.mesh", "is missing"),
        ({"tls": {"ca": "ca.crt"}}, "tls.cert", "is missing"),
        ({"tls": {"ca": 1, "cert": "", "key": ""}}, "tls.ca", "expected text"),
    ],
)
def test_config_refuses_with_file_key_and_what_would_be_right(
    overrides: dict[str, object], key: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        make_config(overrides)
    assert caught.value.key == key
    assert str(caught.value).startswith(f"trial.toml: {key}")


def parties(change: Callable[[list[dict[str, str]]], None]) -> dict[str, object]:
    tables: list[dict[str, str]] = document()["party"]  # type: ignore[assignment]
    change(tables)
    return {"party": tables}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tables: tables.pop(), "stands 2 times; expected exactly 3"),
        (lambda tables: tables[1].update(name="party-0"), "repeats"),
        (lambda tables: tables[1].update(name="a b"), "letters, digits"),
        (lambda tables: tables[1].update(mesh=tables[0]["ingest"]), "addresses repeat"),
        (lambda tables: tables[2].update(mesh="localhost"), "expected host:port"),
        (lambda tables: tables[2].update(mesh="localhost:99999"), "not a TCP address"),
        (lambda tables: tables[2].update(port="1"), "unknown key"),
    ],
)
def test_config_refuses_parties_that_cannot_work(
    change: Callable[[list[dict[str, str]]], None], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make_config(parties(change))
    assert caught.value.key.startswith("party")


def test_config_says_what_is_missing_where_it_is_needed() -> None:
    config = make_config({"party": None})
    with pytest.raises(ConfigError, match=r"party: is missing; expected three \[\[party\]\]"):
        config.require_parties()
    with pytest.raises(ConfigError, match="tls: is missing"):
        config.require_tls()
    unknown = make_config({"workload": {"queries": [["sex", "height"]]}})
    with pytest.raises(ConfigError, match="height") as caught:
        unknown.build_workload()
    assert caught.value.key == "workload"


def test_require_tls_fills_in_the_server_number() -> None:
    config = make_config(FULL)
    files = config.require_tls(2)
    assert files.cert == config.base / "certs/party-2.crt"
    assert files.key == config.base / "certs/party-2.key"
    assert config.require_tls().ca == config.base / "certs/ca.crt"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[run\n", "is not valid TOML"),
        (b"\xff\xfe[run]", "is not UTF-8 text"),
        (None, "cannot be read"),
    ],
)
def test_load_config_refuses_unreadable_files(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path)
    assert caught.value.source == str(path)


AGREED: list[dict[str, object]] = [
    {"run.id": "other"},
    {"run.epsilon": 2.0},
    {"run.rounds": 5},
    {"run.upload": "plain"},
    {"run.iterations": 99},
    {"workload.degree": 1},
    {"clients.expected": 4},
    {"clients.rows_per_client": 99},
    {"clients.participation": 0.5},
    {"missing": {"values": ["NA"]}},
    parties(lambda tables: tables[0].update(name="another")),
]


@pytest.mark.parametrize("overrides", AGREED, ids=lambda o: str(next(iter(o))))
def test_digest_changes_with_what_is_agreed_on(overrides: dict[str, object]) -> None:
    assert make_config(overrides).digest() != make_config().digest()


def test_digest_stays_when_only_one_host_is_concerned() -> None:
    # Fresh ports, other files and other patience.
    other = make_config({**{k: v for k, v in FULL.items() if k == "tls"}, "timeouts.receive_s": 9})
    assert other.parties != make_config().parties
    assert other.digest() == make_config().digest()


@given(host=st.sampled_from(["127.0.0.1", "::1", "a.example"]), port=st.integers(1, 65535))
def test_address_parse_inverts_str(host: str, port: int) -> None:
    assert Address.parse(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize("text", ["", "host", "host:", ":7000", "host:x", "::1:7000", "host:0"])
def test_address_parse_refuses_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match=r"TCP address|host:port"):
        Address.parse(text)


def test_annealed_schedule_needs_no_rounds_and_survives_toml() -> None:
    config = make_config({"run.schedule": "annealed", "run.rounds": None})
    assert config.run.rounds == 16 * 3
    again = config_from_dict(tomllib.loads(config.resolved_toml()), source="x", base=config.base)
    assert again == config
    assert again.digest() != make_config({"run.rounds": 48}).digest()


def test_a_run_without_rounds_is_annealed_and_one_with_rounds_is_not() -> None:
    raw = document()
    assert config_from_dict(raw, source="x", base=Path()).run.schedule == "fixed"
    raw["run"] = {"id": "trial", "epsilon": 1.0, "delta": 1e-5}
    silent = config_from_dict(raw, source="x", base=Path())
    assert (silent.run.schedule, silent.run.rounds) == ("annealed", 48)
    # Whoever asks for rounds on the command line gets so many.
    asked = silent.override(overrides_from_options({"run.rounds": 4}))
    assert (asked.run.schedule, asked.run.rounds) == ("fixed", 4)
    back = asked.override(overrides_from_options({"run.schedule": "annealed"}))
    assert back == silent


def test_a_target_is_a_column_or_several_and_survives_toml() -> None:
    for value, read in (("age", ("age",)), (["age", "sex"], ("age", "sex"))):
        config = make_config({"workload.target": value})
        assert config.workload.target == read
        assert config.build_workload().targets == read
        again = config_from_dict(
            tomllib.loads(config.resolved_toml()), source="x", base=config.base
        )
        assert again == config
    assert "target" not in make_config().resolved_toml()
    for wrong, says in ((3, "a column's name"), (["age", "age"], "twice")):
        with pytest.raises(ConfigError, match=says):
            make_config({"workload.target": wrong})
    with pytest.raises(ConfigError, match="target 'income' is no column"):
        make_config({"workload.target": "income"}).build_workload()


def test_run_rows_may_be_as_many_as_a_table_may_have() -> None:
    assert make_config({"run.rows": MAX_ROWS}).run.rows == MAX_ROWS


def test_override_leaves_the_original_alone() -> None:
    config = make_config()
    before = config.resolved_toml()
    changed: Config = config.override({"run.rounds": 9, "run.seed": 4})
    assert (changed.run.rounds, changed.run.seed) == (9, 4)
    assert config.resolved_toml() == before
    with pytest.raises(ConfigError, match="is not a table"):
        config.override({"column.name": "x"})


FLAIM: dict[str, object] = {
    "address": "127.0.0.1:7300",
    "key": "ab" * 32,
    "clients": ["a", "b", "c"],
}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"variant": "augmented"}, "flaim.variant: is 'augmented'; expected one of naive, oracle"),
        ({"grouping": "all"}, "flaim.grouping"),
        ({"noise": "none"}, "flaim.noise"),
        ({"minimum": 2}, "flaim.minimum: is 2; expected at least 3"),
        ({"clients": ["a", "b"]}, "flaim.clients: has 2 names; expected 3"),
        ({"clients": ["a", "b", "b"]}, "flaim.clients: has a name twice"),
        ({"clients": ["a", "b", "flaim-server"]}, "flaim.clients: has a name twice"),
        ({"clients": ["a", "b", "../c"]}, "flaim.clients: is '../c'"),
        ({"clients": "abc"}, "flaim.clients: is text; expected a list of names"),
        ({"address": "nowhere"}, "flaim.address"),
        ({"corrupt": 1.0}, "flaim.corrupt"),
        ({"varient": "naive"}, "did you mean 'variant'?"),
    ],
)
def test_flaim_section_refuses(table: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        make_config({"flaim": FLAIM | table})


def test_flaim_section_is_agreed_on_but_for_where_the_server_is() -> None:
    config = make_config({"flaim": FLAIM})
    moved = make_config({"flaim": FLAIM | {"address": "10.0.0.1:1", "idle_s": 7.0}})
    assert config.digest() == moved.digest() != make_config().digest()
    for change in ({"variant": "naive"}, {"minimum": 3, "clients": ["a", "b", "d"]}):
        assert make_config({"flaim": FLAIM | change}).digest() != config.digest()
    assert config.require_flaim().clients == ("a", "b", "c")


@pytest.mark.parametrize("missing", [None, "address", "key", "clients"])
def test_require_flaim_says_what_is_missing(missing: str | None) -> None:
    table = {key: value for key, value in FLAIM.items() if key != missing}
    config = make_config({"flaim": table} if missing else None)
    with pytest.raises(ConfigError, match=f"flaim.{missing or 'address'}: is missing"):
        config.require_flaim()


@pytest.mark.parametrize("rows", [0, 1, 100])
def test_check_rows_lets_tables_pass_up_to_the_bound(rows: int) -> None:
    make_config().check_rows(rows)


def test_check_rows_states_the_bound() -> None:
    with pytest.raises(DataError, match=r"has 101 rows; expected at most 100 \(clients.rows_per_"):
        make_config().check_rows(101)


def test_check_is_of_totals_unless_it_is_said_and_is_agreed_on() -> None:
    agreed = {check: make_config({"run.check": check}).digest() for check in CHECKS}
    assert make_config().digest() == agreed["totals"]
    assert len(set(agreed.values())) == len(CHECKS) == 3
    with pytest.raises(ConfigError, match="expected one of totals, cells, none"):
        make_config({"run.check": "most"})


IMPLIED = """\
ignore = ["name"]
[run]
epsilon = 1.0
delta = 1e-5
rounds = 2
[clients]
expected = 3
rows_per_client = 100
[[column]]
name = "rank"
implied_by = "level"
table = "ranks.csv"
[[column]]
name = "level"
kind = "categorical"
categories = ["low", "high"]
[[column]]
name = "born"
kind = "date"
low = 1920-01-01
high = 2020-12-31
"""


def test_load_config_takes_the_content_of_an_implied_columns_table(tmp_path: Path) -> None:
    path = tmp_path / "trial.toml"
    path.write_text(IMPLIED)
    (tmp_path / "ranks.csv").write_text("level,rank\nlow,1\nhigh,2\n")
    config = load_config(path)
    assert config.domain.names == ("level", "born")
    assert config.domain.written_names == ("rank", "level", "born")
    assert config.domain.implied[0].values == (("high", "2"), ("low", "1"))
    assert config.domain.ignore == ("name",)
    resolved = tmp_path / "resolved.toml"
    resolved.write_text(config.resolved_toml())
    assert load_config(resolved).digest() == config.digest()
    assert agreed_config(json.loads(json.dumps(config.agreed()))).domain == config.domain
    (tmp_path / "ranks.csv").write_text("level,rank\nlow,1\nhigh,3\n")
    assert load_config(path).digest() != config.digest()


def test_load_config_counts_no_rounds_for_columns_that_are_not_modelled(tmp_path: Path) -> None:
    path = tmp_path / "trial.toml"
    path.write_text(IMPLIED.replace("rounds = 2", 'schedule = "annealed"'))
    (tmp_path / "ranks.csv").write_text("level,rank\nlow,1\nhigh,2\n")
    assert load_config(path).run.rounds == 32


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (None, "cannot be read"),
        ("level,grade\nlow,1\n", "expected exactly level and rank"),
        ("level,rank\nlow,1\nlow,2\n", "has a value of level twice"),
        ("level,rank\nlow,1\n", "no entry for 'high'"),
    ],
)
def test_load_config_says_what_is_wrong_with_an_implied_columns_table(
    tmp_path: Path, table: str | None, says: str
) -> None:
    path = tmp_path / "trial.toml"
    path.write_text(IMPLIED)
    if table is not None:
        (tmp_path / "ranks.csv").write_text(table)
    with pytest.raises(ConfigError, match=says):
        load_config(path)


def test_the_largest_table_s_errors_stay_below_2_31_with_queries_of_2_24_cells() -> None:
    """The bound of rows and the format of a selection fit: one cell more, or one row, does not."""
    largest, cells = MAX_ROWS << FRACTION_BITS, 2**24 - 1
    assert 2 * largest + cells == 2**31 - 1
    widths(np.array([cells]), largest, [1], [0])
    for cells_then, largest_then in ((cells + 1, largest), (cells, largest + 1)):
        with pytest.raises(ValueError, match="is too large"):
            widths(np.array([cells_then]), largest_then, [1], [0])
