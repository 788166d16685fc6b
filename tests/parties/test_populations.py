"""A budget belongs to people: their tables are known by their rows, or by what the owner says, which is kept."""

import contextlib
import json
import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mechanisms.accounting import epsilon_from_rho, rho_from_epsilon_delta
from mechanisms.errors import BudgetExceeded
from mechanisms.source import TableSource
from mechanisms.text_table import TextTable
from parties.cli.main import cli
from parties.config import CertificateFiles, Config
from parties.federation.client import silo_participation, with_epsilon
from parties.foundation.errors import ConfigError, StoreError
from parties.identity.tls import make_certificates
from parties.methods.registry import plan_of
from parties.session.owner import DataOwner, Table
from parties.storage.owner_budget import OwnerBudget
from parties.storage.population_budget import APPROXIMATE, Release
from parties.storage.populations import OwnersWord, TableIdentity, owners_word, this_user
from parties.storage.refresh import forecast_refreshes
from tests.parties.silos_support import NAMES, SERVER, silos_config
from tests.parties.support import make_config
from tests.parties.test_silos_mtl import mtl_config, table_of
from tests.parties.test_table_sketch import Rows, patients, visits

RHO = rho_from_epsilon_delta(1.0, 1e-5)
ONE = Release("c1" * 32, "study-1", "distaim", RHO, 1.0, 1e-5)
SMALL = replace(ONE, rho=RHO / 100)
RNG = np.random.default_rng(12)
FILES = CertificateFiles(None, None, None)


def later(number: int, release: Release = SMALL) -> Release:
    return replace(release, config=f"{number:02}" * 32, run=f"study-{number}")


def keyed() -> Config:
    """A study that names the column of a person's key."""
    person = {"run.unit": "person", "run.rows_per_person": 3, "run.person": ["a"]}
    return make_config({**person, "ignore": ["a"]})


class Owner:
    """One owner's budget, and tables in files of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.budget = folder, folder / "places" / "budget.sqlite"
        self.config = make_config({})
        self._files = 0

    def file(
        self, rows: Rows, *, name: str = "", sign: str = ",", names: str = "abcdefghij"
    ) -> Path:
        self._files += 1
        path = self.folder / str(self._files) / (name or f"export-{self._files}.csv")
        path.parent.mkdir()
        lines = [sign.join(names[: rows.shape[1]]), *(sign.join(row) for row in rows.tolist())]
        path.write_text("\n".join(lines) + "\n")
        return path

    def charge(
        self,
        table: Path | Rows,
        release: Release,
        *,
        submission: str = "s",
        dataset: str | None = None,
        word: OwnersWord | None = None,
    ) -> str:
        path = table if isinstance(table, Path) else self.file(table)
        source = Table(TableSource(str(path)), ignore_extra=True)
        owner = DataOwner(self.config, source, FILES, "north", dataset, self.budget, word)
        return owner.account(release).spend(submission)

    @property
    def spent(self) -> dict[str, int]:
        """Charges by population."""
        return {item.name: len(item.runs) for item in OwnerBudget(self.budget).datasets()}


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


# Whose table it is


def test_twelve_monthly_exports_are_one_population_with_one_limit(owner: Owner) -> None:
    """Each month 40 patients go and 40 come; other names, order, delimiter, place, and a blank line change nothing."""
    people = patients(RNG, 1040)
    first = owner.charge(people[:600], ONE)
    with pytest.raises(BudgetExceeded, match=f"population {first}"):
        owner.charge(people[40:640], later(2))
    OwnerBudget(owner.budget).set_limit(first, 2.0, 1e-5)
    for month in range(1, 12):
        rows = RNG.permutation(people[40 * month : 40 * month + 600])
        path = owner.file(rows, name=f"month-{month}.csv", sign=",;\t|"[month % 4])
        path.write_text(path.read_text().replace("\n", "\n\n", month))
        assert owner.charge(path, later(month)) == first
    assert owner.spent == {first: 12}


def test_tables_of_other_people_are_other_populations(owner: Owner) -> None:
    """Two hospitals, by columns of their own, or by identifiers where columns are the same."""
    one, other = patients(RNG, 800), patients(RNG, 900)
    assert owner.charge(owner.file(one, name="north.csv"), ONE) == "north"
    south = owner.file(other, name="south.csv", names="opqrstuvwx")
    assert owner.charge(south, later(2)) == "south"
    OwnerBudget(owner.budget).set_limit("south", 2.0, 1e-5)
    assert owner.charge(owner.file(other[:500], name="later.csv"), later(3)) == "south"
    owner.config, owner.budget = keyed(), owner.folder / "other.sqlite"
    for number, name in enumerate(("north", "south", "west")):
        ids = RNG.integers(10**8, 10**9, 300).astype(str).tolist()
        path = owner.file(visits(ids, patients(RNG, 300)[:, :2], RNG), name=f"{name}.csv")
        assert owner.charge(path, later(4 + number)) == name


def test_other_rows_of_the_same_columns_have_to_be_assigned(owner: Owner) -> None:
    """They may be the next month's visits of the same people: nobody can tell, and no new budget comes of itself."""
    owner.charge(owner.file(patients(RNG, 600), name="january.csv"), ONE)
    february = owner.file(patients(RNG, 600), name="february.csv")
    with pytest.raises(
        StoreError,
        match="columns of the same names and other rows, which may be of the same people",
    ):
        owner.charge(february, later(2))
    with pytest.raises(StoreError, match="columns of the same names and other rows"):
        owner.charge(february, later(2), dataset="february")
    with pytest.raises(BudgetExceeded):
        owner.charge(february, later(2), word=owners_word("january", None))
    assert owner.charge(february, later(2), word=owners_word(None, "february")) == "february"
    # A file that is written over is the same place's: another month's rows there pay from the same budget.
    path = owner.file(patients(RNG, 600), name="march.csv", names="opqrstuvwx")
    assert owner.charge(path, later(3)) == "march"
    path.write_text(owner.file(patients(RNG, 600), names="opqrstuvwx").read_text())
    with pytest.raises(BudgetExceeded, match="population march"):
        owner.charge(path, later(4))


def test_other_laboratory_values_of_the_same_people_make_no_new_population(owner: Owner) -> None:
    """Seven columns are the same each year, nine are others: exports of two years were two populations."""
    people = patients(RNG, 1000)
    for year in range(2):
        measured = RNG.integers(0, 10**5, (1000, 9)).astype(str)
        names = "abcdefg" + ("hijklmnop", "qrstuvwxy")[year]
        path = owner.file(np.concatenate([people, measured], 1), name=f"y{year}.csv", names=names)
        if not year:
            assert owner.charge(path, ONE) == "y0"
            continue
        with pytest.raises(StoreError, match=r"cannot tell .* those of y0"):
            owner.charge(path, later(year))
    assert owner.spent == {"y0": 1}


@pytest.mark.parametrize("by", ["label", "path"])
def test_a_label_or_a_path_does_not_decide_whose_people_they_are(owner: Owner, by: str) -> None:
    """February's visits paid from `cars`, although they may be of January's people, and no word was kept."""
    owner.charge(owner.file(patients(RNG, 600), name="january.csv"), ONE)
    cars = owner.file(patients(RNG, 600), name="cars.csv", names="opqrstuvwx")
    assert owner.charge(cars, later(2, ONE)) == "cars"
    OwnerBudget(owner.budget).set_limit("cars", 100.0, 1e-5)
    february = owner.file(patients(RNG, 600))
    label = "cars" if by == "label" else None
    if by == "path":
        cars.write_text(february.read_text())
        february = cars
    with pytest.raises(
        StoreError,
        match=r"those of january: .*--population january, if some may be.*--population cars, if they are of cars alone",
    ):
        owner.charge(february, later(3), dataset=label)
    assert owner.spent == {"cars": 1, "january": 1}
    assert owner.charge(february, later(3), word=owners_word("cars", None)) == "cars"
    (word,) = OwnerBudget(owner.budget).dataset("cars").words
    assert word.resembled == "perhaps january"
    # The control: rows that may be of the named population alone pay from it.
    more = owner.file(patients(RNG, 600), names="opqrstuvwx")
    if by == "path":
        cars = owner.file(patients(RNG, 600), name="carts.csv", names="0123456")
        assert owner.charge(cars, later(4)) == "carts"
        cars.write_text(owner.file(patients(RNG, 600), names="0123456").read_text())
        with pytest.raises(BudgetExceeded, match="population carts"):
            owner.charge(cars, later(5))
    else:
        assert owner.charge(more, later(4), dataset="cars") == "cars"


def test_a_table_of_people_of_two_populations_is_charged_to_both(owner: Owner) -> None:
    one, other = patients(RNG, 800), patients(RNG, 800)
    owner.charge(owner.file(one, name="north.csv"), ONE)
    owner.charge(owner.file(other, name="south.csv", names="opqrstuvwx"), later(2, ONE))
    both = np.concatenate([one[:400], other[:400]])
    OwnerBudget(owner.budget).set_limit("north", 3.0, 1e-5)
    with pytest.raises(BudgetExceeded, match="population south"):
        owner.charge(both, later(3))
    assert owner.spent == {"north": 1, "south": 1}
    OwnerBudget(owner.budget).set_limit("south", 3.0, 1e-5)
    assert owner.charge(both, later(3)) == "north and south"
    assert owner.spent == {"north": 2, "south": 2}
    # A submission that is given back comes back to both.
    assert OwnerBudget(owner.budget).give_back(later(3).config, ["s"], "signed") == [
        "north",
        "south",
    ]


def test_persons_are_known_by_the_key_that_a_study_names(owner: Owner) -> None:
    owner.config = keyed()
    ids = RNG.integers(10**8, 10**9, 500).astype(str).tolist()
    static = patients(RNG, 500)[:, :2]
    first = owner.charge(visits(ids[:400], static[:400], RNG), ONE)
    with pytest.raises(BudgetExceeded):
        owner.charge(visits(ids[100:], static[100:], RNG), later(2))
    assert owner.spent == {first: 1}


def test_a_table_that_cannot_be_told_has_to_be_assigned(owner: Owner) -> None:
    """Its rows are too few, or too common; or the population has no sketch, or one of a key that is lost."""
    owner.charge(owner.file(patients(RNG, 600), name="stays.csv"), ONE)
    common = patients(RNG, 600)[:, :2]
    for rows in (patients(RNG, 12), common):
        with pytest.raises(
            StoreError,
            match=r"cannot tell .* those of stays: .*--population stays, .*--new-population",
        ):
            owner.charge(rows, later(2))
    assert owner.spent == {"stays": 1}
    OwnerBudget(owner.budget).set_limit("stays", 2.0, 1e-5)
    path = owner.file(common)
    assert owner.charge(path, later(2), word=owners_word("stays", None)) == "stays"
    assert owner.charge(path, later(3)) == "stays"
    owner.budget.with_name("budget.sqlite.key").unlink()
    with pytest.raises(StoreError, match="no table of stays is there to compare with"):
        owner.charge(patients(RNG, 600), later(4))
    assert owner.spent == {"stays": 3}


def test_a_population_of_an_older_file_opens_and_is_known_by_path_and_content(owner: Owner) -> None:
    budget = OwnerBudget(owner.budget)
    path = owner.file(patients(RNG, 600), name="stays.csv")
    budget.charge(TableIdentity.of_file(path), ONE, "s")
    with contextlib.closing(sqlite3.connect(owner.budget)) as db:
        for table in ("sketch", "word", "limit_change"):
            db.execute(f"DROP TABLE {table}")
        db.commit()
    with pytest.raises(BudgetExceeded):
        owner.charge(path, later(2))
    with pytest.raises(StoreError, match="no table of stays is there to compare with"):
        owner.charge(patients(RNG, 600), later(2))
    OwnerBudget(owner.budget).set_limit("stays", 2.0, 1e-5)
    # The next charge of the same file leaves its sketch, by which the next export is known.
    rows = patients(RNG, 600)
    path.write_text(owner.file(rows).read_text())
    assert owner.charge(path, later(2)) == "stays"
    assert owner.charge(rows[:200], later(3)) == "stays"


# What the owner says


def test_an_owners_word_stands_and_is_recorded(owner: Owner) -> None:
    people = patients(RNG, 600)
    owner.charge(owner.file(people, name="stays.csv"), ONE)
    with pytest.raises(
        StoreError, match=r"as population stays; expected that name.*--new-population"
    ):
        owner.charge(people[:300], later(2), dataset="other")
    part = owner.file(people[:300])
    said = owners_word(None, "other", "Dr. Weiss")
    for _ in range(2):
        assert owner.charge(part, later(2), word=said) == "other"
    with pytest.raises(StoreError, match="has a population 'other' already; expected another name"):
        owner.charge(patients(RNG, 600), later(3), word=said)
    with pytest.raises(StoreError, match="has no population 'none'; expected one of: other, stays"):
        owner.charge(people, later(3), word=owners_word("none", None))
    other, stays = OwnerBudget(owner.budget).datasets()
    (word,) = other.words
    assert (word.word, word.run, word.resembled) == (said, "study-2", "stays")
    assert stays.words == ()
    # An export of both pays for both: a word is for one table.
    with pytest.raises(BudgetExceeded):
        owner.charge(people[100:400], later(4))
    with pytest.raises(ConfigError, match="--new-population"):
        owners_word(None, "no name, is it")
    assert owners_word(None, None) is None
    assert owners_word("stays", None) == OwnersWord("stays", False, this_user())


def test_a_refused_charge_records_nothing(owner: Owner) -> None:
    people = patients(RNG, 600)
    owner.charge(owner.file(people, name="stays.csv"), ONE)
    with pytest.raises(BudgetExceeded):
        owner.charge(patients(RNG, 600), later(2), word=owners_word("stays", None))
    (stays,) = OwnerBudget(owner.budget).datasets()
    assert stays.words == ()
    assert owner.charge(owner.file(patients(RNG, 600), names="opqrstuvwx"), later(3)) != "stays"


def test_the_file_without_its_key_tells_nothing_of_rows(owner: Owner) -> None:
    """Two budgets with the same table have nothing of a sketch in common; the key is in another file."""
    rows = patients(RNG, 600)
    path = owner.file(rows, name="stays.csv")
    found = []
    for place in ("one", "other"):
        owner.budget = owner.folder / place / "budget.sqlite"
        owner.charge(path, ONE)
        with contextlib.closing(sqlite3.connect(owner.budget)) as db:
            ((sealed,),) = db.execute("SELECT sealed FROM sketch").fetchall()
        found.append(sealed)
        key = owner.budget.with_name("budget.sqlite.key")
        assert bytes.fromhex(key.read_text()) not in owner.budget.read_bytes()
    assert len(found[0]) == len(found[1])
    one, other = (np.frombuffer(sealed[: len(sealed) // 8 * 8], np.uint64) for sealed in found)
    assert np.intersect1d(one, other).size == 0
    # Encrypted: bytes are even, where tokens in order would begin with zeros.
    counts = np.bincount(np.frombuffer(found[0], np.uint8), minlength=256)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 400


# Releases of every kind


def test_a_release_without_a_guarantee_makes_the_total_infinite(owner: Owner) -> None:
    budget, people = OwnerBudget(owner.budget), patients(RNG, 600)
    path = owner.file(people, name="stays.csv")
    owner.charge(path, ONE)
    owner.charge(path, later(2, replace(ONE, rho=math.inf, epsilon=math.inf)))
    (stays,) = budget.datasets()
    assert (stays.epsilon_with(), stays.left, stays.spent) == (math.inf, 0.0, ONE.rho)
    with pytest.raises(BudgetExceeded, match=r"run study-2 .* was not private.*--unlimited --why"):
        owner.charge(path, later(3))
    budget.set_limit("stays", 100.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        owner.charge(path, later(3))
    shown = budget.datasets()[0].to_dict()
    assert json.loads(json.dumps(shown, allow_nan=False))["epsilon_spent"] is None
    assert forecast_refreshes(budget.datasets()[0]) is None
    budget.set_limit("stays", math.inf, 1e-5)
    owner.charge(path, later(3))
    assert owner.spent == {"stays": 3}


def test_a_release_with_epsilon_and_delta_alone_is_added(owner: Owner) -> None:
    """Alone it is what it says; two add up, in epsilon and delta; beside zCDP the rest of delta is for that."""
    budget, path = OwnerBudget(owner.budget), owner.file(patients(RNG, 600), name="stays.csv")
    one = replace(ONE, rho=0.5, accountant=APPROXIMATE)
    owner.charge(path, one)
    (stays,) = budget.datasets()
    assert (stays.epsilon_with(), stays.left) == (1.0, 0.0)
    assert stays.epsilon_with(one) == math.inf
    with pytest.raises(BudgetExceeded, match=r"--epsilon 2\.01 --delta 2e-05 --why"):
        owner.charge(path, later(2, one))
    budget.set_limit("stays", 2.0, 2e-5)
    owner.charge(path, later(2, one))
    assert budget.datasets()[0].epsilon_with() == 2.0
    budget.set_limit("stays", 4.0, 3e-5)
    left = budget.datasets()[0].left
    assert left == pytest.approx(rho_from_epsilon_delta(2.0, 1e-5), rel=1e-6)
    owner.charge(path, later(3, replace(ONE, rho=0.99 * left)))
    assert budget.datasets()[0].epsilon_with() <= 4.0
    assert budget.datasets()[0].epsilon_with() == pytest.approx(
        min(2 + epsilon_from_rho(0.99 * left, 1e-5), epsilon_from_rho(0.99 * left + 1, 1e-5)),
        rel=1e-4,
    )
    with pytest.raises(BudgetExceeded):
        owner.charge(path, later(4, replace(ONE, rho=0.02 * left)))


def test_every_run_between_silos_is_a_release(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Fed-TDA is charged in zCDP, or as infinite without privacy; MR-MTL by epsilon and delta."""
    files = make_certificates(tmp_path_factory.mktemp("tls"), [SERVER], NAMES)
    expected = {
        "private": (silos_config(files, {"tda": {"components": 3}}), False, "zcdp"),
        "exact": (silos_config(files, {"tda": {"components": 3, "privacy": "none"}}), True, "zcdp"),
        "personal": (mtl_config(files), False, APPROXIMATE),
    }
    for config, infinite, accountant in expected.values():
        table = (
            table_of(1)
            if accountant == APPROXIMATE
            else TextTable({"sex": ["m"] * 20, "ward": ["x"] * 20, "age": ["3"] * 20}, range(20))
        )
        part = silo_participation(config, plan_of(config), table)
        release = part.release
        assert (release.not_private, release.accountant) == (infinite, accountant)
        assert (math.isinf(release.epsilon), part.private) == (infinite, not infinite)
        assert (part.rho > 0) == (not infinite and accountant == "zcdp")
        assert release.config == config.digest()
    own = with_epsilon(release, 0.5)
    assert (own.epsilon, own.rho, own.accountant) == (0.5, 0.125, APPROXIMATE)


def test_a_run_without_a_guarantee_is_asked_for_by_name(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without the word nothing is made; with it, and nobody there, nothing is charged."""
    files = make_certificates(tmp_path_factory.mktemp("tls"), [SERVER], NAMES)
    exact = {"tda": {"components": 3, "privacy": "none"}, "timeouts.connect_s": 0.5}
    study, table, budget = (tmp_path / name for name in ("study.toml", "t.csv", "budget.sqlite"))
    study.write_text(silos_config(files, exact).resolved_toml())
    table.write_text("sex,ward,age\n" + "m,x,3\n" * 20)
    own = files[NAMES[0]]
    options = [f"--{name}={getattr(own, name)}" for name in ("ca", "cert", "key")]
    given = ("join", str(study), "--data", str(table), "--budget", str(budget), *options)
    assert "Say --not-private to take part all the same" in run(*given, status=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.toml", "t.csv"]
    CliRunner().invoke(cli, [*given, "--not-private"])
    assert OwnerBudget(budget).datasets() == []
    assert OwnerBudget(budget).intended() == []


# Limits and forecasts


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.output


def test_a_raised_limit_needs_a_reason_and_its_history_stays(owner: Owner) -> None:
    owner.charge(owner.file(patients(RNG, 600), name="stays.csv"), ONE)
    where = ("--budget", str(owner.budget))
    higher = ("budget", "set", "stays", "--epsilon", "2", "--delta", "1e-5", *where)
    assert "raises the limit of stays" in run(*higher, status=2)
    assert "--why is empty" in run(*higher, "--why", " ", status=2)
    assert OwnerBudget(owner.budget).datasets()[0].epsilon == 1.0
    run(*higher, "--why", "the ethics board agreed", "--by", "Dr. Weiss")
    run("budget", "set", "stays", "--epsilon", "1.5", "--delta", "1e-5", *where)
    assert "give --epsilon and --delta, or --unlimited" in run(
        "budget", "set", "stays", *where, status=2
    )
    text = run("budget", *where)
    assert (
        "limit epsilon 1, delta 1e-05 became epsilon 2, delta 1e-05 by Dr. Weiss: the ethics board"
        in text
    )
    assert f"became epsilon 1.5, delta 1e-05 by {this_user()}" in text
    run("budget", "set", "stays", "--unlimited", "--why", "for a test", *where)
    (shown,) = json.loads(run("budget", "--json", *where))["datasets"]
    assert [change["epsilon"] for change in shown["limits"]] == [2.0, 1.5, None]
    assert shown["limits"][0]["why"] == "the ethics board agreed"
    assert shown["epsilon_limit"] is None


def test_budget_shows_what_a_refresh_each_quarter_costs_until_when(owner: Owner) -> None:
    path = owner.file(patients(RNG, 600), name="stays.csv")
    owner.charge(path, ONE)
    budget = OwnerBudget(owner.budget)
    refreshes = forecast_refreshes(budget.datasets()[0])
    assert refreshes is not None
    assert (refreshes.number, refreshes.last) == (0, None)
    assert refreshes.in_a_year == pytest.approx(epsilon_from_rho(5 * RHO, 1e-5), rel=1e-6)
    assert refreshes.in_five_years == pytest.approx(epsilon_from_rho(21 * RHO, 1e-5), rel=1e-6)
    budget.set_limit("stays", epsilon_from_rho(8 * RHO, 1e-5) + 1e-6, 1e-5)
    with contextlib.closing(sqlite3.connect(owner.budget)) as db:
        db.execute("UPDATE release SET charged_at = 1794787200")  # 2026-11-16
        db.commit()
    refreshes = forecast_refreshes(budget.datasets()[0])
    assert refreshes is not None
    assert (refreshes.number, refreshes.last) == (7, "2028-08")
    for number in range(7):
        owner.charge(path, later(number + 2, ONE))
    with pytest.raises(BudgetExceeded):
        owner.charge(path, later(20, ONE))
    text = run("budget", "--budget", str(owner.budget))
    assert (
        "a refresh each quarter like run study-8 costs rho 0.03056: in a year epsilon would be"
        in text
    )
    assert "the limit covers none" in text
