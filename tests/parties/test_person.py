"""A person's key in one table: the owner's own program refuses more rows of somebody than the configuration allows."""

import json
import tomllib
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

import parties.methods.mtl
import parties.methods.tda
from mechanisms.accounting import Ledger, rho_from_epsilon_delta
from mechanisms.errors import DataError
from mechanisms.source import TableSource
from mechanisms.text_table import TextTable
from mechanisms.units import row_guarantee
from parties.audit.checks.documents import DEFAULT_TERMS
from parties.cli.main import cli
from parties.config import CertificateFiles, Config
from parties.federation.algorithm import SiloContext
from parties.foundation.errors import ConfigError
from parties.identity.tls import make_certificates
from parties.local.request import TrialRequest, load_trial
from parties.methods.federated_report import trust_of as silos_trust
from parties.methods.flaim.report import trust_of as flaim_trust
from parties.methods.flaim.settings import check_flaim
from parties.methods.registry import method_of, plan_of, served_method
from parties.report.privacy_text import unit_trust
from parties.session.owner import DataOwner, Table
from parties.session.study import Study
from tests.parties.flaim_support import flaim_config
from tests.parties.silos_support import NAMES, SERVER, silos_config
from tests.parties.support import certificates, make_config

PERSON = {
    "run.unit": "person",
    "run.rows_per_person": 2,
    "run.person": ["person_id"],
    "ignore": ["person_id"],
}


MORE_ROWS = r"the same person's key .*at most 2 rows a key \(run\.rows_per_person;"
"""Refusal of a table in which somebody has more rows."""


def table(folder: Path, people: list[str]) -> Path:
    path = folder / "visits.csv"
    lines = [f"f,x,1,{person}" for person in people]
    path.write_text("\n".join(["sex,ward,age,person_id", *lines]) + "\n")
    return path


def owner(config: Config, path: Path) -> DataOwner:
    files = certificates()["clinic-a"]
    location = Table(TableSource(str(path)), ignore_extra=False)
    return DataOwner.of(config, location, ca=files.ca, cert=files.cert, key=files.key)


def test_owner_refuses_a_table_in_which_somebody_has_more_rows(tmp_path: Path) -> None:
    config = make_config(PERSON)
    codes = owner(config, table(tmp_path, ["a", "b", "a", "c"])).codes()
    assert codes.shape == (4, 3)
    refused = owner(config, table(tmp_path, ["a", "b", "a", " A ", "b", "b"]))
    with pytest.raises(DataError, match=MORE_ROWS) as raised:
        refused.codes()
    assert "'a'" not in str(raised.value)
    with pytest.raises(DataError, match="no person's key"):
        owner(config, table(tmp_path, ["a", ""])).codes()
    # The control: without the key the same table is taken on the owners' word.
    word = make_config({**PERSON, "run.person": None})
    assert owner(word, table(tmp_path, ["a"] * 5)).codes().shape == (5, 3)


def test_trial_refuses_such_a_table_too(tmp_path: Path) -> None:
    config = make_config({**PERSON, "party": None})
    location = Table(TableSource(str(table(tmp_path, ["a"] * 5))), ignore_extra=False)
    request = TrialRequest("distaim", "visits", 3, "iid", None, 1)
    with pytest.raises(DataError, match=MORE_ROWS):
        load_trial(config, location.text(config), request, source="visits.csv")


def test_key_is_not_modelled_and_stands_in_ignore() -> None:
    with pytest.raises(ConfigError, match=r"run\.person: has 'sex'; expected columns that ignore"):
        make_config({**PERSON, "run.person": ["sex"]})
    with pytest.raises(ConfigError, match=r"run\.person: is \['person_id'\]; expected columns"):
        make_config({**PERSON, "run.unit": "row", "run.rows_per_person": 1})
    config = make_config(PERSON)
    assert config.run.person == ("person_id",)
    assert config.agreed()["run"]["person"] == ["person_id"]  # type: ignore[index]
    assert "person" not in make_config().agreed()["run"]  # type: ignore[operator]


def test_report_says_who_has_checked_the_bound() -> None:
    checked = " ".join(unit_trust(make_config(PERSON)))
    assert "own program refused a table in which somebody has more than 2 rows" in checked
    assert "at all owners together: nobody can see" in checked
    word = " ".join(unit_trust(make_config({**PERSON, "run.person": None})))
    assert "rows: nobody can see" in word
    assert "own program" not in word


def test_owner_leaves_rows_out_by_a_fixed_rule_where_the_study_says_so(tmp_path: Path) -> None:
    """The same rows stay, however the table is sorted; their number is for the owner's own screen."""
    config = make_config({**PERSON, "run.more_rows": "sample"})
    lines = [
        f"{'fm'[n % 2]},{'xyz'[n % 3]},{n % 5},{person}" for n, person in enumerate("aabacaabbb")
    ]
    found, said = [], list[str]()
    for number, rows in enumerate((lines, lines[::-1])):
        path = tmp_path / f"visits-{number}.csv"
        path.write_text("\n".join(["sex,ward,age,person_id", *rows]) + "\n")
        given = owner(config, path)
        spoken = replace(given, table=replace(given.table, say=said.append))
        codes = spoken.codes()
        assert codes.shape == (5, 3)
        found.append(Counter(map(tuple, codes.tolist())))
    assert found[0] == found[1]
    assert (
        "5 of 10 rows are left out, of persons with more than 2; that number is yours alone"
        in said[0]
    )
    said.clear()
    fits = owner(config, table(tmp_path, ["a", "b", "a"]))
    replace(fits, table=replace(fits.table, say=said.append)).codes()
    assert said == []


def test_trial_leaves_rows_out_too(tmp_path: Path) -> None:
    config = make_config({**PERSON, "run.more_rows": "sample", "party": None})
    location = Table(TableSource(str(table(tmp_path, ["a"] * 5 + ["b"]))), ignore_extra=False)
    request = TrialRequest("distaim", "visits", 3, "iid", None, 1)
    trial = load_trial(config, location.text(config), request, source="visits.csv")
    assert len(trial.codes) == 3


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CertificateFiles]:
    return make_certificates(tmp_path_factory.mktemp("persons"), [SERVER], NAMES)


FEDERATED = {
    "flaim": {"flaim.variant": "pairs"},
    "tda": {"tda": {}, "run.rounds": 3},
    "mtl": {"tda": None, "mtl": {"label": "age"}, "workload": None, "run.delta": 1e-3},
}


def of_method(name: str, files: dict[str, CertificateFiles], **changes: object) -> Config:
    """A configuration of a method with one server."""
    make = flaim_config if name == "flaim" else silos_config
    return make(files, {**PERSON, **FEDERATED[name], **changes})


@pytest.mark.parametrize("name", FEDERATED)
def test_participants_of_every_method_go_by_the_same_rule(
    name: str, one_server: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = of_method(name, one_server)
    method = served_method(method_of(config))
    location = Table(TableSource(str(table(tmp_path, ["a"] * 5 + ["b"]))), ignore_extra=False)
    with pytest.raises(DataError, match=MORE_ROWS):
        method.participation(config, location)
    sampled = of_method(name, one_server, **{"run.more_rows": "sample"})
    for extra in (False, True):
        said = list[str]()
        spoken = replace(location, ignore_extra=extra, say=said.append)
        part = method.participation(sampled, spoken)
        assert "3 of 6 rows are left out, of persons with more than 2" in said[0]
        assert part.release.unit == "person with up to 2 rows"
    # The bound is of the owner's own program: with the key's column gone, nothing is taken.
    (tmp_path / "visits.csv").write_text("sex,ward,age\nf,x,1\n")
    with pytest.raises(DataError, match="person_id"):
        method.participation(config, location)


@pytest.mark.parametrize("name", ["flaim", "tda"])
def test_a_person_of_several_rows_costs_their_square_in_every_method(
    name: str, one_server: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    """Before, Fed-TDA gave a person's guarantee in words, and charged what a row costs."""
    config = of_method(name, one_server, **{"run.rows_per_person": 5})
    location = Table(TableSource(str(table(tmp_path, ["a", "b"]))), ignore_extra=False)
    part = served_method(method_of(config)).participation(config, location)
    whole = rho_from_epsilon_delta(config.run.epsilon, config.run.delta)
    assert part.release.rho == pytest.approx(whole, rel=1e-12)
    assert Fraction(part.rho) * 25 <= Fraction(whole)
    assert part.rho * 25 == pytest.approx(whole, rel=1e-12)
    (sentence, *_) = part.guarantee(Ledger(part.rho))
    assert "one person added or removed with all of its rows, which are at most 5" in sentence


def test_a_person_of_several_rows_has_the_silos_own_epsilon(
    one_server: dict[str, CertificateFiles],
) -> None:
    config = of_method("mtl", one_server, **{"run.rows_per_person": 4, "run.epsilon": 2.0})
    plan = plan_of(config)
    assert "for one person with all of its rows, which are at most 4 at a silo" in plan.guarantee
    assert "each row by itself has 1/4 of the epsilon" in plan.guarantee
    seen = list[tuple[float, float]]()

    class Stopped(Exception):
        pass

    def stop(*_: object, epsilon: float, delta: float, **__: object) -> None:
        seen.append((epsilon, delta))
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parties.methods.mtl, "MtlSilo", stop)
        rows = {"sex": ["f"] * 8, "ward": ["x"] * 8, "age": ["1"] * 8, "person_id": [*"aabbccdd"]}
        with pytest.raises(Stopped):
            plan.silo(
                TextTable(rows, range(2, 10)), SiloContext(NAMES[0], 0, Path("none")), Ledger(0.0)
            )
    assert seen == [row_guarantee(2.0, 1e-3, 4)]


def test_persons_are_refused_where_a_method_counts_rows(
    one_server: dict[str, CertificateFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_method("flaim", one_server, **{"flaim.sizes": "public"})
    with pytest.raises(ConfigError, match=r"flaim.sizes: is 'public' beside run.unit"):
        check_flaim(Study.of(config))
    config = of_method("tda", one_server)
    rows_alone = replace(parties.methods.tda.METHOD, of_persons=False)
    monkeypatch.setattr(parties.methods.tda, "METHOD", rows_alone)
    with pytest.raises(ConfigError, match=r"run.rows_per_person: is 2; expected 1, since"):
        plan_of(config)


@pytest.mark.parametrize("sampled", [False, True])
def test_reports_of_a_federation_say_who_has_checked_the_bound(
    sampled: bool, one_server: dict[str, CertificateFiles]
) -> None:
    changes = {"run.more_rows": "sample" if sampled else None}
    did = "left rows out where" if sampled else "refused a table in which"
    flaim = of_method("flaim", one_server, **changes)
    sums = {"least_survivors": 3, "plain": 0}
    result = {"sums": sums, "single_choosers": 0, "chosen_queries": 0, "ledger": []}
    config = of_method("tda", one_server, **changes)
    for said in (
        flaim_trust(flaim, result, trial=False),
        silos_trust(config, private=True, charged=True, trial=False),
    ):
        text = " ".join(said)
        assert f"Each owner's own program {did} somebody" in text
        assert "at all owners together: nobody can see from masked sums whose rows they are" in text
        assert "a person with 2 rows costs 4 times as much" in text
    word = silos_trust(
        of_method("tda", one_server, **{"run.person": None}),
        private=True,
        charged=True,
        trial=False,
    )
    assert "rows: nobody can see from masked sums" in " ".join(word)


def test_what_is_not_private_promises_nothing(one_server: dict[str, CertificateFiles]) -> None:
    sums = {"least_survivors": 6, "plain": 0}
    result = {"sums": sums, "single_choosers": 0, "chosen_queries": 0, "ledger": []}
    said = {
        (variant, noise): " ".join(
            flaim_trust(
                flaim_config(one_server, {"flaim.variant": variant, "flaim.noise": noise}),
                result,
                trial=True,
            )
        )
        for variant in ("oracle", "private")
        for noise in ("server", "distributed")
    }
    promise = "guarantee"
    for (variant, _), text in said.items():
        assert (promise in text) == (variant == "private"), text
        assert ("nothing here is private" in text) == (variant == "oracle")
    assert "found is chance" not in DEFAULT_TERMS


def test_more_rows_is_agreed_on_and_needs_a_key() -> None:
    config = make_config({**PERSON, "run.more_rows": "sample"})
    assert config.agreed()["run"]["more_rows"] == "sample"  # type: ignore[index]
    assert "more_rows" not in make_config(PERSON).agreed()["run"]  # type: ignore[operator]
    with pytest.raises(ConfigError, match=r"run\.more_rows: stands without run\.person"):
        make_config({"run.more_rows": "sample"})
    with pytest.raises(ConfigError, match=r"run\.more_rows"):
        make_config({**PERSON, "run.more_rows": "all"})
    said = " ".join(unit_trust(config))
    assert (
        "left rows out where somebody, by person_id, has more than 2 rows; only the owner knows how many"
        in said
    )
    assert "The owners state that" in said


def test_draft_proposes_a_persons_key_and_its_rows(tmp_path: Path) -> None:
    people = [f"P{n:02}" for n in range(20) for _ in range(5)]
    path = table(tmp_path, people)
    result = CliRunner().invoke(cli, ["data", "draft", str(path)])
    assert "# There are 5 rows for each value of person_id, which is not modelled" in result.stdout
    drafted = tomllib.loads(result.stdout)
    run = drafted["run"]
    assert (run["unit"], run["person"], run["rows_per_person"]) == ("person", ["person_id"], 5)
    assert drafted["ignore"] == ["person_id"]
    assert "READ FROM THE DATA: replace or confirm\nrows_per_person = 5" in result.stdout
    assert "person_id: looks like a person's key: 5 rows for each value" in result.stderr
    shown = json.loads(CliRunner().invoke(cli, ["data", "draft", str(path), "--json"]).stdout)
    assert shown["person"] == {"column": "person_id", "most": 5, "fewest": 5}
    private = CliRunner().invoke(cli, ["data", "draft", str(path), "--private"]).stdout
    run = tomllib.loads(private)["run"]
    assert (run["person"], "rows_per_person" in run) == (["person_id"], False)
    assert " 5 " not in private.split("[run]")[1].split("[workload]")[0]
