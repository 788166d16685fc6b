"""A release that servers tell is charged to the population that its owner's own mark names, and to no other one."""

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mechanisms.errors import BudgetExceeded
from mechanisms.text_table import TextTable
from parties.config import CertificateFiles, Config
from parties.federation.release_statements import ReleaseStatement, statements_in
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import Status
from parties.identity.signing import signatory_of
from parties.identity.tls import certificate_bytes
from parties.mpc.planning.budget import distaim_release
from parties.mpc.submission import submit as submit_module
from parties.session.study import Study
from parties.storage.owner_budget import MARKED, BudgetAccount, OwnerBudget
from parties.storage.population_budget import Release
from parties.storage.population_mark import MARK_BYTES, SALT_BYTES, make_mark, read_mark
from parties.storage.population_mark import population_tag as tag_of
from parties.storage.populations import OwnersWord, TableIdentity
from parties.storage.table_sketch import KeyedSketch, SketchKey, make_sketch
from tests.parties.support import make_config, sealed_upload
from tests.parties.test_earlier_releases import OWNER, Registries, Running, charged, reconcile
from tests.parties.test_populations import patients
from tests.parties.test_preview import Place

Certificates = Mapping[str, CertificateFiles]
STUDY, OTHER_STUDY = "c1" * 32, "c2" * 32


def key_at(path: Path) -> SketchKey:
    return SketchKey.beside(path)


def salt() -> bytes:
    return secrets.token_bytes(SALT_BYTES)


# Marks


def test_a_mark_is_read_with_its_key_for_its_study_alone(tmp_path: Path) -> None:
    own, other = key_at(tmp_path / "a"), key_at(tmp_path / "b")
    mark = make_mark(own, STUDY, "stays", salt=salt())
    assert read_mark(own, STUDY, mark) == tag_of(own, "stays") != tag_of(own, "cars")
    assert read_mark(own, OTHER_STUDY, mark) is None
    assert read_mark(other, STUDY, mark) is None
    for wrong in ("", "00", "x" * 32, mark[:-2], mark + "00", secrets.token_hex(MARK_BYTES)):
        assert read_mark(own, STUDY, wrong) is None


def test_marks_of_one_population_have_nothing_in_common(tmp_path: Path) -> None:
    """Each of 1,024 marks differs from the first in about half of its bits: at most 3 in 10^9 have less than 30."""
    own = key_at(tmp_path / "a")
    marks = {
        int(
            make_mark(own, study, "stays", salt=bytes(SALT_BYTES - 2) + bytes([n // 256, n % 256])),
            16,
        )
        for study in (STUDY, OTHER_STUDY)
        for n in range(512)
    }
    assert len(marks) == 1024
    first, *others = marks
    assert all(30 <= (first ^ other).bit_count() <= 98 for other in others)
    with pytest.raises(ValueError, match="a salt of 3 bytes"):
        make_mark(own, STUDY, "stays", salt=b"abc")


# Budgets


class Owner:
    """A budget of two populations, and its copies."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path = folder / "budget.sqlite"
        self.key = SketchKey.beside(self.path)
        for number, name in enumerate(("stays", "cars")):
            self.budget.charge(self.table(name), release(name), f"own {number}")

    @property
    def budget(self) -> OwnerBudget:
        return OwnerBudget(self.path)

    def table(self, name: str, *, called: str | None = None) -> TableIdentity:
        """A table of people of its own, with columns of its own."""
        rows = patients(np.random.default_rng(sum(name.encode())), 600)
        columns = {f"{name} {n}": rows[:, n].tolist() for n in range(rows.shape[1])}
        text = TextTable(columns, range(len(rows)))
        sketch = KeyedSketch(self.key, make_sketch(text, self.key))
        return TableIdentity(None, path=f"/{called or name}.csv", sketch=sketch)

    @property
    def spent(self) -> dict[str, list[str]]:
        return {d.name: [run.release.run for run in d.spending] for d in self.budget.datasets()}

    def told(self, run: str, mark: str, table: TableIdentity) -> str:
        return self.budget.adopt_earlier(
            release(run), run, table, sure=True, of_source=False, mark=mark
        )

    def mark(self, run: str, population: str) -> str:
        return make_mark(self.key, release(run).config, population, salt=salt())


def release(run: str) -> Release:
    return Release(f"{sum(run.encode()):064x}", run, "distaim", 0.1, 1.0, 1e-5)


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path / "owner")


def test_the_marked_population_pays_whichever_table_asks(owner: Owner) -> None:
    assert owner.told("march", owner.mark("march", "cars"), owner.table("stays")) == "cars"
    assert owner.told("april", owner.mark("april", "stays"), owner.table("cars")) == "stays"
    assert owner.spent == {"stays": ["stays", "april"], "cars": ["cars", "march"]}
    # Once.
    assert owner.told("march", owner.mark("march", "stays"), owner.table("stays")) == ""
    assert owner.spent["stays"] == ["stays", "april"]


def test_a_mark_of_another_study_or_key_says_nothing(owner: Owner, tmp_path: Path) -> None:
    other = SketchKey.beside(tmp_path / "other")
    for mark in (
        "",
        secrets.token_hex(MARK_BYTES),
        owner.mark("april", "cars"),
        make_mark(other, release("march").config, "cars", salt=salt()),
    ):
        with pytest.raises(StoreError, match="has several populations"):
            owner.told("march", mark, owner.table("stays"))
    assert owner.spent == {"stays": ["stays"], "cars": ["cars"]}


def test_an_older_copy_charges_a_population_that_it_does_not_have_and_asks_about_new_tables(
    owner: Owner,
) -> None:
    """`cars` pays nothing for `birds`, and a table that may be theirs is not sent before somebody says so."""
    shutil.copy(owner.path, owner.path.with_name("copy"))
    owner.budget.charge(owner.table("birds"), release("march"), "march")
    shutil.copy(owner.path.with_name("copy"), owner.path)
    lost = owner.told("march", owner.mark("march", "birds"), owner.table("cars"))
    assert lost.startswith(MARKED)
    assert owner.told("april", owner.mark("april", "birds"), owner.table("cars")) == lost
    assert owner.spent == {"stays": ["stays"], "cars": ["cars"], lost: ["march", "april"]}
    for name in ("stays", "cars"):
        assert owner.budget.populations(owner.table(name)) == [name]
    with pytest.raises(StoreError, match=f"those of {lost}"):
        owner.budget.charge(owner.table("birds"), release("may"), "may")
    word = replace(owner.table("birds"), word=OwnersWord(lost, False, "ann"))
    with pytest.raises(BudgetExceeded):
        owner.budget.charge(word, release("may"), "may")


def test_a_lost_budget_begins_with_what_is_told_and_asks_about_each_table(owner: Owner) -> None:
    """The key was kept. A file's name says nothing of people: those of two marks may have had the same."""
    owner.path.unlink()
    assert owner.told("march", owner.mark("march", "stays"), owner.table("stays")) == "stays"
    lost = owner.told("may", owner.mark("may", "stays-2"), owner.table("stays"))
    assert owner.spent == {"stays": ["march"], lost: ["may"]}
    with pytest.raises(StoreError, match=f"those of stays and {lost}"):
        owner.budget.charge(owner.table("stays"), release("april"), "april")
    word = replace(owner.table("stays"), word=OwnersWord("stays", False, "ann"))
    with pytest.raises(BudgetExceeded):
        owner.budget.charge(word, release("april"), "april")


def test_the_owners_word_is_above_a_mark(owner: Owner) -> None:
    word = TableIdentity(None, word=OwnersWord("stays", False, "ann"))
    mark = owner.mark("march", "cars")
    name = owner.budget.adopt_earlier(
        release("march"), "march", word, sure=True, of_source=True, mark=mark
    )
    assert name == "stays"
    (said,) = owner.budget.dataset("stays").words
    assert said.run == "march"


def test_an_account_marks_the_one_population_that_pays(owner: Owner) -> None:
    for name in ("stays", "cars", "birds"):
        account = BudgetAccount(owner.budget, owner.table(name), release("march"))
        mark = account.mark()
        assert read_mark(owner.key, release("march").config, mark) == tag_of(owner.key, name)
        assert account.is_marked(mark)
        assert mark != account.mark()
        other = BudgetAccount(owner.budget, owner.table("stays"), release("april"))
        assert not other.is_marked(mark)
    # Without a key a mark says nothing, and looks like any other.
    plain = OwnerBudget(owner.path.with_name("plain"))
    account = BudgetAccount(plain, TableIdentity("stays"), release("march"))
    assert len(account.mark()) == len(mark)
    assert read_mark(owner.key, release("march").config, account.mark()) is None
    assert not account.is_marked(secrets.token_hex(MARK_BYTES))


# Owners of DistAIM


@pytest.fixture
def place(tmp_path: Path, certificates: Certificates) -> Place:
    return Place(tmp_path / "owner", make_config(), certificates[OWNER])


@pytest.fixture
def registries(tmp_path: Path) -> Registries:
    return Registries(tmp_path)


@pytest.fixture
def running(
    tmp_path: Path, place: Place, certificates: dict[str, CertificateFiles], registries: Registries
) -> Iterator[None]:
    with Running(place.config, tmp_path, certificates, registries):
        yield


class Sent(Exception):
    """Raised in place of sending."""


@pytest.mark.usefixtures("running")
def test_what_is_sent_has_the_mark_of_the_population_that_is_charged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an earlier try was prepared for another one, and not charged."""
    nonces: list[str] = []

    async def send(
        config: Config, prepared: submit_module.PreparedSubmission, *_: object, **__: object
    ) -> None:
        nonces.append(prepared.upload.submission.nonce)
        raise StoreError(place.folder, "is not sent")

    monkeypatch.setattr(submit_module, "send_prepared", send)
    charge = OwnerBudget.charge

    def fail(*_: object, **__: object) -> str:
        raise StoreError(place.folder, "is full")

    monkeypatch.setattr(OwnerBudget, "charge", fail)
    assert place.submit("--yes") == Status.STORAGE
    (state,) = place.folder.glob(".*.submission")
    before = json.loads(state.read_text())["nonce"]
    monkeypatch.setattr(OwnerBudget, "charge", charge)
    assert nonces == []
    assert place.submit("--yes", "--new-population", "stays") == Status.STORAGE
    key, config = SketchKey.beside(place.budget), place.config.digest()
    assert read_mark(key, config, before) == tag_of(key, "table")
    assert read_mark(key, config, nonces[0]) == tag_of(key, "stays")
    assert charged(place) == {"stays": ["trial"]}
    # What is charged is sent again as it is, whoever pays as well by now: a share of it may have left.
    assert place.submit("--yes", "--new-population", "more") == Status.STORAGE
    assert nonces == [nonces[0]] * 2
    assert charged(place) == {"stays": ["trial"], "more": ["trial"]}


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("by", ["join", "reconcile"])
def test_releases_of_two_populations_of_one_key_are_charged_apart(
    by: str, place: Place, registries: Registries, capsys: pytest.CaptureFixture[str]
) -> None:
    """A budget that was put back charges each population with its own, and asks nobody."""
    budget, key = OwnerBudget(place.budget), SketchKey.beside(place.budget)
    first = make_config({"run.id": "first"})
    for name in ("table", "donors"):
        word = TableIdentity(None, word=OwnersWord(name, True, "ann"))
        budget.charge(word, distaim_release(Study.of(first)), name)
        # For the first study and the new one.
        budget.set_limit(name, 1.47, 1e-5, why="two")
    for run, name in (("march", "table"), ("april", "donors"), ("may", "birds")):
        study = make_config({"run.id": run, "run.epsilon": 0.5})
        nonce = make_mark(key, study.digest(), name, salt=salt())
        registries.release(
            study, 0, upload=sealed_upload(study, OWNER, nonce=nonce).signed.to_json()
        )
    if by == "join":
        assert place.submit("--yes", "--population", "table") == Status.BUDGET
    else:
        assert reconcile(place) == Status.DONE
    told = capsys.readouterr()
    assert "nothing tells" not in told.err + told.out
    found = charged(place)
    (lost,) = (name for name in found if name.startswith(MARKED))
    assert found == {"table": ["first", "march"], "donors": ["first", "april"], lost: ["may"]}


@pytest.mark.usefixtures("running")
def test_overcharging_for_a_release_without_a_mark_is_said(
    place: Place, registries: Registries, capsys: pytest.CaptureFixture[str]
) -> None:
    registries.release(make_config({"run.id": "earlier"}), 0)
    assert place.submit("--yes") == Status.BUDGET
    assert "nothing tells whether it was of these people" in capsys.readouterr().err
    assert charged(place) == {"table": ["earlier"]}


# Participants of a federation


def test_a_statement_has_its_mark_and_two_marks_are_none(certificates: Certificates) -> None:
    files = certificates[OWNER]
    own = signatory_of(certificate_bytes(files))
    said = [ReleaseStatement(release("march"), "ledger", mark) for mark in ("ab" * 16, "cd" * 16)]
    signed = [json.loads(one.sign(files)) for one in said]
    assert ReleaseStatement.of(signed[0], own) == said[0]
    assert statements_in(json.dumps(signed[:1] * 2).encode(), own, "server") == said[:1]
    (both,) = statements_in(json.dumps(signed).encode(), own, "server")
    assert both == ReleaseStatement(release("march"), "ledger")
