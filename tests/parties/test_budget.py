"""An owner's budget: it belongs to the data, whatever the file is called, the run, the method or the folder."""

import contextlib
import gzip
import json
import math
import multiprocessing
import os
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.accounting import epsilon_from_rho, rho_from_epsilon_delta
from mechanisms.errors import BudgetExceeded
from mechanisms.gaussian_privacy import gaussian_budget
from parties.cli.main import cli
from parties.config import load_config
from parties.federation.client import with_epsilon
from parties.foundation.errors import ConfigError, StoreError
from parties.foundation.exit_codes import Status
from parties.identity.tls import make_certificates, pinned_key_in, public_keys
from parties.local.children import free_ports
from parties.methods.flaim.settings import flaim_release
from parties.storage import owner_budget
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import BudgetAccount, OwnerBudget
from parties.storage.population_budget import ROW_OF_KNOWN, UNOPENED, Release
from parties.storage.populations import TableIdentity
from parties.storage.user_paths import budget_path, registry_path
from tests.parties.commands import Run
from tests.parties.small import write_small
from tests.parties.support import PARTIES, file_size_limit

RHO = rho_from_epsilon_delta(1.0, 1e-5)
ONE = Release("c1" * 32, "study-1", "distaim", RHO, 1.0, 1e-5, distance=1e-9)
TWO = replace(ONE, config="c2" * 32, run="study-2", method="flaim")
ROWS = b"sex,ward\nf,x\nm,y\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "stays.csv"
    path.write_bytes(ROWS)
    return path


@pytest.fixture
def budget(tmp_path: Path) -> OwnerBudget:
    return OwnerBudget(tmp_path / "places" / "budget.sqlite")


def spend(budget: OwnerBudget, table: Path, release: Release, submission: str = "s") -> str:
    return budget.charge(TableIdentity.of_file(table), release, submission)


def spent(budget: OwnerBudget) -> dict[str, int]:
    """Releases by dataset."""
    return {dataset.name: len(dataset.runs) for dataset in budget.datasets()}


# What is charged


def test_charge_lets_a_table_be_released_once_by_default(budget: OwnerBudget, table: Path) -> None:
    assert spend(budget, table, ONE) == "stays"
    for other in (TWO, replace(TWO, rho=1e-12)):
        with pytest.raises(BudgetExceeded) as refused:
            spend(budget, table, other)
    message = str(refused.value)
    assert "population stays" in message
    assert str(budget.path) in message
    assert "last by run study-1" in message
    assert "nothing was sent" in message
    assert "syncret budget set stays --epsilon 1.01 --delta 1e-05" in message
    assert spent(budget) == {"stays": 1}


def test_charge_takes_the_same_submission_once(budget: OwnerBudget, table: Path) -> None:
    for _ in range(3):
        spend(budget, table, ONE, "first")
    with pytest.raises(BudgetExceeded, match=r"took a submission of it already .* state file"):
        spend(budget, table, ONE, "second")
    # The same submission's name in another configuration is another release.
    with pytest.raises(BudgetExceeded):
        spend(budget, table, TWO, "first")
    assert spent(budget) == {"stays": 1}


def test_a_clock_that_is_set_back_lowers_nothing(
    budget: OwnerBudget, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Years back, to the epoch, before it, and forward: releases stay in their order, and a limit what it is."""
    now = iter([2e9, 1e9, 0.0, -1e6, 4e9, 1.0, 2.0, 3.0, 4.0, 5.0])
    monkeypatch.setattr(owner_budget, "time", SimpleNamespace(time=lambda: next(now)))
    spend(budget, table, ONE)
    budget.set_limit("stays", 1.5, 1e-5, why="more")
    spend(budget, table, TWO)
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            spend(budget, table, replace(ONE, config="c3" * 32))
    assert [run.release.run for run in budget.dataset("stays").spending] == ["study-1", "study-2"]
    spend(budget, table, ONE)
    assert spent(budget) == {"stays": 2}
    assert budget.dataset("stays").epsilon == 1.5


def test_set_limit_allows_more_and_what_it_says_is_enough(budget: OwnerBudget, table: Path) -> None:
    spend(budget, table, ONE)
    with pytest.raises(BudgetExceeded) as refused:
        spend(budget, table, TWO)
    told = str(refused.value).split("--epsilon ")[1].split()
    before, after = budget.set_limit("stays", float(told[0]), float(told[2]))
    assert (before.rho_limit, before.epsilon) == (RHO, 1.0)
    assert after.rho_limit == rho_from_epsilon_delta(float(told[0]), 1e-5)
    spend(budget, table, TWO)
    (dataset,) = budget.datasets()
    assert dataset == replace(after, runs=dataset.runs)
    assert float(dataset.spent) == 2 * RHO
    # Composed in zCDP: less than the sum of the epsilons.
    assert dataset.epsilon_with() == pytest.approx(1.46, abs=0.01)
    # Lowered, nothing comes back.
    budget.set_limit("stays", 0.5, 1e-5)
    assert budget.datasets()[0].left == 0
    with pytest.raises(BudgetExceeded):
        spend(budget, table, replace(TWO, rho=1e-9), "more")


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (1, 0), (1, 1), (math.nan, 1e-5)]
)
def test_set_limit_refuses_what_is_no_limit(
    budget: OwnerBudget, table: Path, epsilon: float, delta: float
) -> None:
    spend(budget, table, ONE)
    with pytest.raises(ValueError, match=r"epsilon|delta"):
        budget.set_limit("stays", epsilon, delta)
    assert budget.datasets()[0].rho_limit == RHO


def test_set_limit_knows_its_datasets(budget: OwnerBudget, table: Path) -> None:
    with pytest.raises(StoreError, match="has no population 'stays'; expected one of: none yet"):
        budget.set_limit("stays", 2, 1e-5)
    spend(budget, table, ONE)
    with pytest.raises(StoreError, match="has no population 'stay'; expected one of: stays"):
        budget.set_limit("stay", 2, 1e-5)


@settings(max_examples=20)
@given(costs=st.lists(st.floats(1e-6, 0.02), min_size=1, max_size=8))
def test_charge_never_passes_the_limit(
    tmp_path_factory: pytest.TempPathFactory, costs: list[float]
) -> None:
    budget = OwnerBudget(tmp_path_factory.mktemp("budget") / "b.sqlite")
    account = BudgetAccount(budget, TableIdentity("stays"), ONE)
    account.spend("first")
    budget.set_limit("stays", 1.2, 1e-5)
    for number, cost in enumerate(costs):
        try:
            replace(account, release=replace(TWO, rho=cost)).spend(str(number))
        except BudgetExceeded:
            assert cost > budget.datasets()[0].left
    assert budget.datasets()[0].spent <= budget.datasets()[0].rho_limit


# Which dataset it is


def test_a_copy_and_an_edited_file_are_the_same_dataset(budget: OwnerBudget, table: Path) -> None:
    spend(budget, table, ONE)
    elsewhere = table.parent / "deep" / "other-name.csv"
    elsewhere.parent.mkdir()
    shutil.copyfile(table, elsewhere)
    packed = table.parent / "packed.csv.gz"
    packed.write_bytes(gzip.compress(ROWS))
    link = table.parent / "link.csv"
    link.symlink_to(table)
    for copy in (elsewhere, packed, link):
        with pytest.raises(BudgetExceeded, match="population stays"):
            spend(budget, copy, TWO)
    table.write_bytes(ROWS + b"f,z\n")
    with pytest.raises(BudgetExceeded, match="population stays"):
        spend(budget, table, TWO)
    # The same submission from the copy is no second one.
    assert spend(budget, elsewhere, ONE) == "stays"


def test_another_table_of_the_same_name_is_another_dataset(
    budget: OwnerBudget, table: Path
) -> None:
    spend(budget, table, ONE)
    other = table.parent / "deep" / "stays.csv"
    other.parent.mkdir()
    other.write_bytes(b"other rows")
    assert spend(budget, other, ONE) == "stays-2"
    assert spent(budget) == {"stays": 1, "stays-2": 1}


@pytest.mark.parametrize(
    ("file", "name"),
    [("my stays, 2026.csv", "my-stays--2026"), ("...", "table"), ("\u00e4.csv", "table")],
)
def test_names_are_made_of_files_names(
    budget: OwnerBudget, table: Path, file: str, name: str
) -> None:
    assert spend(budget, table.rename(table.with_name(file)), ONE) == name


def test_a_name_stands_but_for_rows_that_are_known_under_another(
    budget: OwnerBudget, table: Path
) -> None:
    spend(budget, table, ONE)
    with pytest.raises(StoreError, match="as population stays; expected that name"):
        budget.charge(TableIdentity.of_file(table, "fresh"), TWO, "s")
    # Next quarter's rows, in the file of the same name, as their owner says.
    table.write_bytes(b"other rows")
    assert budget.charge(TableIdentity.of_file(table, "next"), TWO, "s") == "next"
    assert spend(budget, table, TWO) == "next"
    # Rows of neither, at a place that was both's.
    table.write_bytes(b"again other rows")
    with pytest.raises(
        StoreError, match=r"as a table of next and stays.*--called with one of these"
    ):
        spend(budget, table, TWO)
    with pytest.raises(ConfigError, match="--called"):
        TableIdentity("no name, is it", "x")
    with pytest.raises(ValueError, match="a name, a path or a sketch"):
        TableIdentity(None)


# The file


def charge_one(path: Path, number: int) -> bool:
    try:
        BudgetAccount(OwnerBudget(path), TableIdentity("stays"), replace(TWO, rho=RHO / 8)).spend(
            str(number)
        )
    except BudgetExceeded:
        return False
    return True


def test_charge_never_passes_the_limit_from_many_processes(tmp_path: Path) -> None:
    """The file is not there yet when they begin, and the first of them sets the limit."""
    path = tmp_path / "deep" / "budget.sqlite"
    with multiprocessing.get_context("forkserver").Pool(4) as pool:
        first = pool.starmap(charge_one, [(path, number) for number in range(4)])
        assert first.count(True) == 1
        OwnerBudget(path).set_limit("stays", 1.0, 1e-5)
        more = pool.starmap(charge_one, [(path, number) for number in range(10, 30)])
    assert more.count(True) == 7
    (dataset,) = OwnerBudget(path).datasets()
    assert dataset.spent <= dataset.rho_limit
    assert len(dataset.runs) == 8
    assert [item.name for item in path.parent.iterdir()] == ["budget.sqlite"]


def test_budget_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        budget = OwnerBudget(tmp_path / "syncret" / "budget.sqlite")
        budget.charge(TableIdentity("stays"), ONE, "s")
    finally:
        os.umask(before)
    assert budget.path.parent.stat().st_mode & 0o777 == 0o700
    assert budget.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"x" + data[1:],
        lambda data: data[: len(data) // 2],
        lambda data: data[:4096] + bytes(4096) + data[8192:],
    ],
    ids=["empty", "first byte", "cut off", "a page"],
)
def test_a_damaged_file_is_refused_and_never_begun_anew(
    budget: OwnerBudget, table: Path, damage: object
) -> None:
    spend(budget, table, ONE)
    data = budget.path.read_bytes()
    broken = damage(data)  # type: ignore[operator]
    budget.path.write_bytes(broken)
    with pytest.raises(StoreError, match=r"budget\.sqlite: is damaged: .*copy"):
        OwnerBudget(budget.path)
    assert budget.path.read_bytes() == broken
    budget.path.write_bytes(data)
    with pytest.raises(BudgetExceeded):
        spend(OwnerBudget(budget.path), table, TWO)


def test_a_database_of_another_program_or_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE dataset (name TEXT)")
    other.close()
    with pytest.raises(StoreError, match="none of this program's"):
        OwnerBudget(path)
    path.unlink()
    OwnerBudget(path)
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version=2")
    newer.close()
    with pytest.raises(StoreError, match="newer syncret: its version is 2; expected at most 1"):
        OwnerBudget(path)


def test_charge_enters_nothing_when_the_disk_is_full_or_the_file_has_gone(
    budget: OwnerBudget, table: Path
) -> None:
    source = TableIdentity.of_file(table)
    with file_size_limit(budget.path.stat().st_size), pytest.raises(StoreError, match="budget"):
        budget.charge(source, replace(ONE, run="x" * 100_000), "s")
    assert budget.datasets() == []
    budget.path.unlink()
    with pytest.raises(StoreError, match="budget"):
        budget.charge(source, ONE, "s")
    assert not budget.path.exists()


def test_places_are_named_by_option_environment_or_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name in ("SYNCRET_BUDGET", "SYNCRET_REGISTER", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert budget_path() == home / ".local/share/syncret/budget.sqlite"
    assert registry_path() == home / ".local/state/syncret/register.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert budget_path() == tmp_path / "data/syncret/budget.sqlite"
    assert registry_path() == home / ".local/state/syncret/register.sqlite"
    monkeypatch.setenv("SYNCRET_BUDGET", "here.sqlite")
    assert budget_path() == Path("here.sqlite").absolute()
    assert budget_path(Path("/there")) == Path("/there")
    monkeypatch.delenv("XDG_STATE_HOME")
    # Another file in every folder that a command is called in would be no budget.
    monkeypatch.setenv("HOME", "relative")
    with pytest.raises(ConfigError, match="SYNCRET_REGISTER"):
        registry_path()
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    with pytest.raises(ConfigError, match="SYNCRET_REGISTER"):
        registry_path()


# The command


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_budget_shows_and_sets(budget: OwnerBudget, table: Path) -> None:
    where = ("--budget", str(budget.path))
    assert run("budget", *where) == f"{budget.path}: nothing was released yet\n"
    spend(budget, table, replace(ONE, unit=ROW_OF_KNOWN))
    text = run("budget", *where)
    assert (
        "stays: rho 0.03056 of 0.03056 is spent, epsilon 1 of 1 at delta 1e-05; nothing is left"
        in text
    )
    assert (
        f"run study-1 (distaim)  rho 0.03056  epsilon 1, delta 1e-05, protecting a {ROW_OF_KNOWN}"
        in text
    )
    text = run(
        "budget", "set", "stays", "--epsilon", "2", "--delta", "1e-5", "--why", "more", *where
    )
    assert "all releases together, past and to come" in text
    assert "before, that was epsilon = 1, delta = 1e-05" in text
    (shown,) = json.loads(run("budget", "--json", *where))["datasets"]
    assert (shown["name"], shown["rho_spent"]) == ("stays", RHO)
    assert shown["rho_limit"] == rho_from_epsilon_delta(2, 1e-5)
    (entry,) = shown["runs"]
    assert (entry["config"], entry["run"], entry["method"]) == (ONE.config, "study-1", "distaim")
    assert (entry["rho"], entry["epsilon"]) == (RHO, 1.0)
    assert entry["when"].endswith("Z")
    # Digests of the owner's rows are nobody's business.
    assert TableIdentity.of_file(table).content not in json.dumps(shown)


def test_budget_shows_one_limit_and_what_is_left_of_it(budget: OwnerBudget, table: Path) -> None:
    rho = gaussian_budget(1.0, 1e-5)
    assert rho > RHO
    release = replace(ONE, rho=rho, accountant="gaussian", distance=0.0)
    spend(budget, table, release)
    text = run("budget", "--budget", str(budget.path))
    assert f"rho {rho:.4g} of {rho:.4g} is spent, epsilon 1 of 1" in text


def test_budget_shows_nothing_and_makes_nothing_where_there_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "none.sqlite"
    assert json.loads(run("budget", "--json", "--budget", str(path))) == {
        "datasets": [],
        "intended": [],
        "declined": [],
    }
    assert not path.exists()


# What sends


def test_methods_and_runs_charge_one_budget_before_anything_is_sent(tmp_path: Path) -> None:
    """No server is there: what is refused for that costs nothing; what is refused for the budget asked nobody."""
    made = make_certificates(tmp_path / "tls", ["flaim-server", *PARTIES], ["north"])
    table = tmp_path / "stays.csv"
    config, data = write_small(tmp_path)
    table.write_text("\n".join(data.read_text().splitlines()[:90]) + "\n")
    own = ["--ca", str(made["north"].ca), "--cert", str(made["north"].cert)]
    own += ["--key", str(made["north"].key), "--data", str(table)]
    text = config.read_text().replace("20.0", "0.5")
    ports = free_ports(7)
    flaim, distaim = tmp_path / "flaim.toml", tmp_path / "distaim.toml"
    flaim.write_text(
        text + f'[flaim]\naddress = "127.0.0.1:{ports[6]}"\nclients = ["north", "south", "west"]\n'
        f'key = "{pinned_key_in(made["flaim-server"].cert).key}"\n'
    )
    document = load_config(config).override(
        {
            "timeouts.connect_s": 0.5,
            "timeouts.submit_s": 0.5,
            "party": [
                {
                    "name": name,
                    "mesh": f"127.0.0.1:{ports[2 * pid]}",
                    "ingest": f"127.0.0.1:{ports[2 * pid + 1]}",
                    **public_keys(made[name].cert, made[name].seal),
                }
                for pid, name in enumerate(PARTIES)
            ],
        }
    )
    distaim.write_text(document.resolved_toml())

    def status(*arguments: object) -> int:
        return Run(*map(str, arguments)).end()[0]

    for _ in range(2):
        assert status("join", flaim, *own) == Status.NETWORK
    assert OwnerBudget(budget_path()).datasets() == []
    assert OwnerBudget(budget_path()).intended() == []
    # As if a masked vector had left.
    account = BudgetAccount(
        OwnerBudget(budget_path()), TableIdentity.of_file(table), flaim_release(load_config(flaim))
    )
    account.spend("a ledger")
    assert spent(OwnerBudget(budget_path())) == {"stays": 1}
    # Another folder is another ledger, and would be another release.
    assert status("join", flaim, *own, "--dir", tmp_path / "other") == Status.BUDGET
    assert status("join", distaim, *own) == Status.BUDGET
    named = ("--dataset", "fresh")
    assert status("join", distaim, *own, *named) == Status.STORAGE
    assert (
        status("budget", "set", "stays", "--epsilon", "3.5", "--delta", "1e-5", "--why", "more")
        == Status.DONE
    )
    for _ in range(2):
        assert status("join", distaim, *own) == Status.NETWORK
    # No server has said that it takes the submission: nothing is charged, and nothing was prepared.
    (dataset,) = OwnerBudget(budget_path()).datasets()
    assert [run.release.method for run in dataset.runs] == ["flaim"]
    assert not list(tmp_path.glob(".stays.csv.*.submission"))


@pytest.mark.parametrize("rho", [1e-6, 0.03, 1.2, 50.0])
@pytest.mark.parametrize("distance", [0.0, 1e-9])
def test_epsilon_from_rho_is_the_inverse_and_never_too_small(rho: float, distance: float) -> None:
    epsilon = epsilon_from_rho(rho, 1e-5, distance=distance)
    if math.isinf(epsilon):
        assert (rho, distance) == (50.0, 1e-9)
        return
    assert rho_from_epsilon_delta(epsilon, 1e-5, distance=distance) >= rho
    assert rho_from_epsilon_delta(epsilon * (1 - 1e-6), 1e-5, distance=distance) < rho


def test_epsilon_from_rho_of_nothing_is_nothing() -> None:
    assert epsilon_from_rho(0.0, 1e-5) == 0.0


def test_give_back_returns_what_three_have_signed_and_nothing_twice(tmp_path: Path) -> None:
    budget, source, release = OwnerBudget(tmp_path / "b"), TableIdentity("stays"), ONE
    budget.charge(source, release, "11" * 32)
    with pytest.raises(BudgetExceeded):
        budget.charge(source, release, "22" * 32)
    assert budget.give_back("another configuration", ["11" * 32], "signed") == []
    for _ in range(2):
        assert budget.give_back(release.config, ["11" * 32, "33" * 32], "signed") == ["stays"]
    (dataset,) = OwnerBudget(tmp_path / "b").datasets()
    assert (dataset.spent, [run.returned for run in dataset.runs]) == (0, ["withdrawn"])
    assert dataset.to_dict()["runs"][0]["returned"] == "withdrawn"  # type: ignore[index]
    budget.charge(source, release, "22" * 32)
    # What was given back and is sent again all the same is spent again, and does not fit any more.
    with pytest.raises(BudgetExceeded):
        budget.charge(source, release, "11" * 32)


def test_charge_moves_to_a_replacement_within_a_dataset_alone(tmp_path: Path) -> None:
    """Of all that a submission replaces the servers count one; another dataset's table may be the one."""
    budget, release = OwnerBudget(tmp_path / "b"), ONE
    budget.charge(TableIdentity("stays"), release, "11" * 32)
    budget.charge(TableIdentity("stays"), release, "22" * 32, replaces=["11" * 32])
    budget.charge(TableIdentity("other"), release, "33" * 32, replaces=["22" * 32])
    other, stays = budget.datasets()
    assert [run.returned for run in stays.runs] == ["replaced", None]
    assert [run.returned for run in other.runs] == [None]
    assert (len(stays.spending), len(other.spending)) == (1, 1)
    assert budget.give_back(release.config, ["11" * 32, "22" * 32], "signed") == ["stays"]
    _, stays = budget.datasets()
    assert [run.returned for run in stays.runs] == ["replaced", "withdrawn"]


def test_a_budget_of_before_gives_back_as_well(tmp_path: Path) -> None:
    budget, release = OwnerBudget(tmp_path / "b"), ONE
    budget.charge(TableIdentity("stays"), release, "11" * 32)
    with contextlib.closing(sqlite3.connect(tmp_path / "b")) as db:
        db.execute("DROP TABLE returned")
        db.commit()
    again = OwnerBudget(tmp_path / "b")
    assert again.datasets()[0].spent > 0
    assert again.give_back(release.config, ["11" * 32], "signed") == ["stays"]


# States


def test_states_of_charges_are_kept_and_shown(tmp_path: Path) -> None:
    """Intended costs nothing; what is released is never returned; what is returned can be charged again."""
    path = tmp_path / "budget.sqlite"
    budget, source = OwnerBudget(path), TableIdentity("stays")
    account = BudgetAccount(budget, source, ONE)
    assert account.intend("first") == "stays"
    assert (budget.datasets(), budget.state(ONE.config, "first")) == ([], None)
    assert "run study-1 (distaim) is intended since" in run("budget", "--budget", str(path))
    account.spend("first")
    assert budget.intended() == []
    assert account.intend("first") == "stays"
    assert budget.intended() == []
    assert budget.state(ONE.config, "first") is ChargeState.CHARGED
    assert budget.give_back(ONE.config, ["first"], "signed", how=UNOPENED) == ["stays"]
    assert budget.state(ONE.config, "first") is ChargeState.RETURNED
    # A release that is not charged is not released either.
    budget.release(ONE.config, "first")
    assert budget.state(ONE.config, "first") is ChargeState.RETURNED
    assert "its server has signed that nothing was opened: not spent" in run(
        "budget", "--budget", str(path)
    )
    account.spend("first")
    assert budget.state(ONE.config, "first") is ChargeState.CHARGED
    budget.release(ONE.config, "first")
    assert budget.give_back(ONE.config, ["first"], "signed", how=UNOPENED) == []
    assert budget.state(ONE.config, "first") is ChargeState.RELEASED
    assert float(budget.datasets()[0].spent) == RHO
    (shown,) = json.loads(run("budget", "--json", "--budget", str(path)))["datasets"]
    assert [entry["state"] for entry in shown["runs"]] == ["released"]
    with pytest.raises(BudgetExceeded):
        BudgetAccount(budget, source, replace(ONE, config="ff" * 32)).intend()
    assert budget.intended() == []


def test_file_from_before_there_were_states_opens(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    BudgetAccount(OwnerBudget(path), TableIdentity("stays"), ONE).spend("first")
    with contextlib.closing(sqlite3.connect(path)) as db:
        for table in ("intended", "released", "answered"):
            db.execute(f"DROP TABLE {table}")
        db.commit()
    budget = OwnerBudget(path)
    assert budget.state(ONE.config, "first") is ChargeState.CHARGED
    budget.release(ONE.config, "first")
    assert budget.state(ONE.config, "first") is ChargeState.RELEASED


def test_submission_is_not_charged_as_one_of_another_epsilon(tmp_path: Path) -> None:
    """A silo's own epsilon, which it chose once: a larger one is another release."""
    account = BudgetAccount(
        OwnerBudget(tmp_path / "budget.sqlite"), TableIdentity("stays"), with_epsilon(ONE, 0.5)
    )
    account.spend("folder")
    for epsilon in (50.0, 0.25):
        other = replace(account, release=with_epsilon(ONE, epsilon))
        for act in (other.spend, other.intend):
            with pytest.raises(StoreError, match=r"has this participation .* with epsilon 0\.5, "):
                act("folder")
    account.spend("folder")
    assert len(account.budget.datasets()[0].runs) == 1


def test_charges_that_have_paid_for_answers_never_fall(tmp_path: Path) -> None:
    budget = OwnerBudget(tmp_path / "budget.sqlite")
    assert budget.note_answered(ONE.config, "first", 2, since=0) == 0
    assert budget.answered(ONE.config, "first") == 0
    BudgetAccount(budget, TableIdentity("stays"), ONE).spend("first")
    for charges, before in ((2, 0), (5, 2), (3, 5)):
        assert budget.note_answered(ONE.config, "first", charges, since=5) == before
    assert budget.answered(ONE.config, "first") == 5
    # Another copy has answered since: nothing is recorded.
    assert budget.note_answered(ONE.config, "first", 6, since=4) == 5
    assert budget.answered(ONE.config, "first") == 5
    assert (budget.answered(ONE.config, "second"), budget.answered("ff" * 32, "first")) == (0, 0)
