"""Releases of an owner's key that servers know are charged, though its budget was put back or begun anew."""

import asyncio
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import parties.mpc.server
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles, Config
from parties.config.diff import agreed_bytes
from parties.foundation.errors import SubmitError
from parties.foundation.exit_codes import Status
from parties.mpc.planning.budget import distaim_release
from parties.mpc.submission.earlier_releases import ask_earlier_releases, release_of_agreed
from parties.mpc.submission.http_api import releases_path
from parties.mpc.submission.sealed_upload import SignedUpload, signer_key
from parties.mpc.submission.status import ask_server
from parties.service.closed_returns import ClosedReturns
from parties.service.closed_studies import ClosedStudyResponder
from parties.service.studies import utc_now
from parties.service.study_record import StudyRecord, StudyState
from parties.session.study import Study
from parties.storage.owner_budget import OwnerBudget
from parties.storage.population_budget import APPROXIMATE
from parties.storage.populations import OwnersWord, TableIdentity
from parties.storage.release_registry import RegisteredFolder, ReleaseRegistry, SignedInputs
from tests.parties.mesh import Cluster, make_uniform
from tests.parties.support import PARTIES, make_config, running_servers, sealed_upload
from tests.parties.test_preview import Place

Certificates = dict[str, CertificateFiles]
OWNER, OTHER = "clinic-a", "clinic-b"
EVERY = (0, 1, 2)


class Registries:
    """The release registries of three servers, and what is released in them."""

    def __init__(self, folder: Path) -> None:
        self.by_pid = {pid: ReleaseRegistry(folder / f"registry-{pid}.sqlite") for pid in EVERY}

    def release(
        self,
        config: Config,
        *pids: int,
        client: str = OWNER,
        upload: str | None = None,
        agreed: str | None = None,
    ) -> str:
        """Server `pids` release an upload of `client`; returns its submission's digest."""
        signed = sealed_upload(config, client).signed
        text = upload or signed.to_json()
        inputs = SignedInputs(
            agreed or agreed_bytes(config).decode(), [(signer_key(signed.to_json()), text)]
        )
        for pid in pids:
            folder = RegisteredFolder.of_server(config, pid, f"{pid}" * 32, Path("/earlier"))
            self.by_pid[pid].begin(folder)
            self.by_pid[pid].release(folder, [client], 1, inputs=inputs)
        return signed.submission.digest()


class Running:
    """The ingest APIs of a study with these registries, in a thread of their own."""

    def __init__(
        self, config: Config, folder: Path, certificates: Certificates, registries: Registries
    ) -> None:
        self._all = (config, folder / "stores", certificates)
        self._registries = registries.by_pid
        self._up, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        async with running_servers(*self._all, registries=self._registries):
            self._up.set()
            await asyncio.to_thread(self._stop.wait)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._up.wait(10)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def registries(tmp_path: Path) -> Registries:
    return Registries(tmp_path)


@pytest.fixture
def earlier() -> Config:
    return make_config({"run.id": "earlier", "run.epsilon": 0.5})


@pytest.fixture
def place(tmp_path: Path, certificates: Certificates) -> Place:
    return Place(tmp_path / "owner", make_config(), certificates[OWNER])


@pytest.fixture
def running(
    tmp_path: Path, place: Place, certificates: Certificates, registries: Registries
) -> Iterator[None]:
    with Running(place.config, tmp_path, certificates, registries):
        yield


def charged(place: Place) -> dict[str, list[str]]:
    """Runs that each population has paid for."""
    found = OwnerBudget(place.budget).datasets() if place.budget.exists() else []
    return {item.name: [run.release.run for run in item.spending] for item in found}


def reconcile(place: Place, *options: str) -> int:
    arguments = ["budget", "reconcile", str(place.toml), "--budget", str(place.budget)]
    return run_command_line(cli, [*arguments, *options])


# An owner's program before it decides


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("pids", [(0,), EVERY])
def test_join_charges_first_what_servers_have_released(
    pids: Sequence[int],
    place: Place,
    registries: Registries,
    earlier: Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One server that tells is enough: two may withhold it, and the owner's own signature is the evidence."""
    submission = registries.release(earlier, *pids)
    assert place.submit("--check") == Status.DONE
    assert "has no charge for run earlier" in capsys.readouterr().err
    assert charged(place) == {}
    assert place.submit("--yes") == Status.BUDGET
    assert charged(place) == {"table": ["earlier"]}
    said = capsys.readouterr().err
    assert "had no charge for run earlier" in said
    assert all(PARTIES[pid] in said for pid in pids)
    ((item,),) = (dataset.spending for dataset in OwnerBudget(place.budget).datasets())
    assert (item.release, item.submission) == (distaim_release(Study.of(earlier)), submission)
    OwnerBudget(place.budget).set_limit("table", 3.0, 1e-5, why="agreed")
    for _ in range(2):
        assert place.submit("--yes") == Status.DONE
        assert charged(place) == {"table": ["earlier", "trial"]}


@pytest.mark.usefixtures("running")
def test_a_budget_that_was_put_back_is_brought_up_to_date(
    place: Place, registries: Registries, earlier: Config
) -> None:
    """The limit covers the first study and the new one, and not the one between, which the copy does not have."""
    budget, first = OwnerBudget(place.budget), make_config({"run.id": "first"})
    table = TableIdentity.of_file(place.table)
    budget.charge(table, distaim_release(Study.of(first)), "1" * 64)
    budget.set_limit("table", 1.47, 1e-5)
    shutil.copy(place.budget, place.folder / "copy")
    submission = registries.release(earlier, *EVERY)
    budget.adopt(table, distaim_release(Study.of(earlier)), submission, sure=True)
    assert place.submit("--yes") == Status.BUDGET
    before = charged(place)
    shutil.copy(place.folder / "copy", place.budget)
    assert charged(place) == {"table": ["first"]}
    assert place.submit("--yes") == Status.BUDGET
    assert charged(place) == before == {"table": ["first", "earlier"]}


@pytest.mark.usefixtures("running")
def test_nobody_guesses_which_of_several_populations_had_the_earlier_table(
    place: Place, registries: Registries, earlier: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    registries.release(earlier, *EVERY)
    budget, study = OwnerBudget(place.budget), make_config({"run.id": "donated"})
    donors = TableIdentity(None, word=OwnersWord("donors", True, "ann"))
    budget.charge(donors, distaim_release(Study.of(study)), "1" * 64)
    word = ("--new-population", "stays", "--by", "ann")
    assert place.submit("--yes", *word) == Status.STORAGE
    said = capsys.readouterr().err
    assert "syncret budget reconcile CONFIG --run earlier with --population" in said
    assert charged(place) == {"donors": ["donated"]}
    capsys.readouterr()
    assert reconcile(place, "--run", "another", *word) == Status.DONE
    told = capsys.readouterr().out
    assert "run earlier" in told
    assert "is not entered" in told
    assert "nothing that this budget" not in told
    assert charged(place) == {"donors": ["donated"]}
    assert reconcile(place, "--run", "earlier", *word) == Status.DONE
    assert charged(place) == {"donors": ["donated"], "stays": ["earlier"]}
    (recorded,) = budget.dataset("stays").words
    assert (recorded.run, recorded.word) == ("earlier", OwnersWord("stays", True, "ann"))
    # Known by now: nothing is asked or charged any more.
    assert reconcile(place) == Status.DONE
    assert "nothing that this budget does not have" in capsys.readouterr().out


@pytest.mark.usefixtures("running")
def test_studies_of_one_name_are_charged_one_by_one(
    place: Place, registries: Registries, earlier: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the people of one table would pay for those of the other, who would then spend again."""
    again = earlier.override({"run.epsilon": 2.0})
    for config in (earlier, again):
        registries.release(config, 1, 2)
    first, second = ("--new-population", "stays"), ("--new-population", "donors")
    assert reconcile(place, "--run", "earlier", *first) == Status.USAGE
    said = capsys.readouterr().err
    assert earlier.digest()[:12] in said
    assert again.digest()[:12] in said
    assert not charged(place)
    assert reconcile(place, "--run", again.digest()[:12], *first) == Status.DONE
    assert charged(place) == {"stays": ["earlier"]}
    # One is left by this name.
    assert reconcile(place, "--run", "earlier", *second) == Status.DONE
    assert charged(place) == {"stays": ["earlier"], "donors": ["earlier"]}
    ((item,),) = (OwnerBudget(place.budget).dataset(name).spending for name in ("stays",))
    assert item.release.epsilon == 2.0


@pytest.mark.usefixtures("running")
def test_reconcile_enters_all_runs_of_a_lost_budget(
    place: Place, registries: Registries, earlier: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    for config in (earlier, make_config({"run.id": "later"})):
        registries.release(config, 1, 2)
    assert reconcile(place) == Status.USAGE
    assert "has no population yet; expected --population or --new-pop" in capsys.readouterr().err
    assert not charged(place)
    assert reconcile(place, "--new-population", "stays", "--json") == Status.DONE
    shown = json.loads(capsys.readouterr().out)
    assert [item["release"]["run"] for item in shown["entered"]] == ["earlier", "later"]
    assert shown["entered"][0]["servers"] == [PARTIES[1], PARTIES[2]]
    assert shown["answered"] == list(PARTIES)
    assert charged(place) == {"stays": ["earlier", "later"]}


def test_reconcile_without_an_answer_does_not_say_that_all_is_well(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reconcile(place) != Status.DONE
    assert "no server answers" in capsys.readouterr().err


@pytest.mark.usefixtures("running")
def test_a_charge_that_two_have_returned_comes_back_on_the_word_of_two(
    place: Place, registries: Registries, earlier: Config
) -> None:
    submission = registries.release(earlier, 0)
    budget = OwnerBudget(place.budget)
    budget.charge(
        TableIdentity.of_file(place.table), distaim_release(Study.of(earlier)), submission
    )
    budget.give_back(earlier.digest(), [submission], "signed by two")
    assert reconcile(place) == Status.DONE
    assert charged(place) == {"table": []}
    registries.release(earlier, 1)
    assert reconcile(place) == Status.DONE
    assert charged(place) == {"table": ["earlier"]}


# Lying servers


def altered(value: object) -> Iterator[object]:
    """The same document with each of its texts and numbers changed, one at a time."""
    if isinstance(value, dict):
        for key, item in value.items():
            for other in altered(item):
                yield {**value, key: other}
    elif isinstance(value, list):
        for number, item in enumerate(value):
            for other in altered(item):
                yield [*value[:number], other, *value[number + 1 :]]
    elif isinstance(value, str):
        yield ("0" if value[:1] != "0" else "1") + value[1:]
    elif isinstance(value, int | float):
        yield value + 1


@pytest.mark.usefixtures("running")
async def test_no_server_can_invent_a_release(
    place: Place, registries: Registries, earlier: Config, certificates: Certificates
) -> None:
    """Any change of what the owner has signed, or what others have signed, is no release of this owner."""
    signed = sealed_upload(earlier, OWNER).signed
    document = json.loads(signed.to_json())
    submission = json.loads(document["submission"])
    told = [json.dumps(item) for item in altered({**document, "certificate": "AA"})]
    told += [
        json.dumps({**document, "submission": json.dumps(item)}) for item in altered(submission)
    ]
    told += [sealed_upload(earlier, OTHER).signed.to_json(), "7", "[]", '"x"', "null"]
    # The certificate is not what the owner knows its key by.
    wrong = [t for t in told if json.loads(t) != {**document, "certificate": "AA"}]
    wrong = [t for t in wrong if not _only_the_certificate(t, document)]
    assert len(wrong) > 15
    for text in wrong:
        registries.release(earlier, 0, upload=text)
    found = await ask_earlier_releases(
        place.config, certificates[OWNER], place.folder / "no budget"
    )
    assert found.missing == ()
    assert found.answered == PARTIES


def _only_the_certificate(text: str, document: Mapping[str, Any]) -> bool:
    said = json.loads(text)
    return isinstance(said, dict) and {**said, "certificate": ""} == {**document, "certificate": ""}


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("honest", [(), (2,)])
async def test_no_server_can_invent_a_cost(
    honest: Sequence[int],
    place: Place,
    registries: Registries,
    earlier: Config,
    certificates: Certificates,
) -> None:
    """Another configuration is not what the owner has signed; an honest server's stands."""
    dearer = agreed_bytes(earlier.override({"run.epsilon": 8.0})).decode()
    submission = registries.release(earlier, 0, 1, agreed=dearer)
    registries.release(earlier, *honest)
    question = ask_earlier_releases(place.config, certificates[OWNER], place.folder / "none")
    if not honest:
        with pytest.raises(SubmitError, match="do not show that configuration"):
            await question
        return
    (item,) = (await question).missing
    assert (item.release, item.submission) == (distaim_release(Study.of(earlier)), submission)


@pytest.mark.usefixtures("running")
async def test_nobody_learns_of_another_owner(
    place: Place, registries: Registries, earlier: Config, certificates: Certificates
) -> None:
    registries.release(earlier, *EVERY)
    path, party = releases_path(place.config.run.id), place.config.require_parties()[0]

    async def ask(name: str, more: str = "") -> tuple[int, Mapping[str, Any] | None]:
        heard = await ask_server(place.config, party, certificates[name], path=path + more)
        return heard.status, heard.says

    query = f"?config={earlier.digest()}"
    status, says = await ask(OWNER)
    assert (status, says and len(says["releases"])) == (200, 1)
    assert (await ask(OWNER, query))[0] == 200
    assert await ask(OTHER) == (200, {"party": PARTIES[0], "releases": []})
    assert await ask(OTHER, query) == (404, None)
    assert (await ask(PARTIES[1]))[0] == 403


def test_a_configuration_of_another_version_costs_its_epsilon_and_delta(earlier: Config) -> None:
    agreed = json.loads(agreed_bytes(earlier))
    assert release_of_agreed(agreed) == distaim_release(Study.of(earlier))
    agreed["of_a_later_version"] = {"x": 1}
    found = release_of_agreed(agreed)
    assert (found.epsilon, found.delta, found.accountant) == (0.5, 1e-5, APPROXIMATE)
    assert found.run == "earlier"
    with pytest.raises(SubmitError, match="no epsilon and delta"):
        release_of_agreed({"run": {"id": "earlier"}})


# What servers know


async def test_a_run_registers_what_its_counted_owners_have_signed(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    cluster = Cluster(make_config({"run.rounds": 2}), tmp_path / "run", certificates)
    owners = sorted(cluster.config.owners) or [OWNER, OTHER, "clinic-c"]
    assert await cluster.run(owners=owners) == [None] * 3
    told: list[list[str]] = []
    for pid in EVERY:
        registry = ReleaseRegistry(cluster.register(pid))
        for name in owners:
            key = signer_key(sealed_upload(cluster.config, name).signed.to_json())
            ((config, text),) = registry.released_to(key)
            assert config == cluster.config.digest()
            assert SignedUpload.from_json(text).submission.client == name
            assert registry.agreed_with(key, config) == agreed_bytes(cluster.config).decode()
            told.append([name, SignedUpload.from_json(text).submission.digest()])
    assert len({tuple(item) for item in told}) == len(owners)


async def test_a_study_that_is_over_still_tells(
    place: Place, registries: Registries, earlier: Config, certificates: Certificates
) -> None:
    """The service answers with the study's certificate, where the study has no process any more."""
    registries.release(earlier, *EVERY)
    at = utc_now()
    record = StudyRecord(
        place.config.digest(), "distaim", place.config.run.id, "a", at, StudyState.FINISHED, at
    )

    identity: Any = SimpleNamespace(own=SimpleNamespace(name=PARTIES[0]))
    known: Any = None
    returns = ClosedReturns(identity, known, registries.by_pid[0].path)
    responder = ClosedStudyResponder(
        lambda digest: record, lambda study: certificates[PARTIES[0]], releases_of=returns.releases
    )
    address = place.config.require_parties()[0].ingest
    take = await listening(address.host, address.port, lambda c: responder.take("", c))
    try:
        found = await ask_earlier_releases(place.config, certificates[OWNER], place.folder / "none")
    finally:
        take.close()
        await responder.close()
    assert [item.servers for item in found.missing] == [(PARTIES[0],)]


async def listening(host: str, port: int, take: Callable[[socket.socket], bool]) -> socket.socket:
    """Passes each connection to a port on."""
    listener = socket.create_server((host, port))
    listener.setblocking(False)
    loop = asyncio.get_running_loop()

    def accept() -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        assert take(connection)

    loop.add_reader(listener.fileno(), accept)
    return listener
