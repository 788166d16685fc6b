"""A service tells participants of a study of one server what it released of their key after the study has ended."""

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parties.config import Config
from parties.federation.release_question import ask_server_releases
from parties.federation.release_statements import ReleaseStatement, signed_statements
from parties.foundation.errors import FrameTransportError
from parties.foundation.exit_codes import FederationRefused, Status
from parties.identity.tls import certificate_bytes, make_certificates
from parties.network.port_sharing import study_sni_name
from parties.service import closed_federations
from parties.service.closed_studies import ClosedStudies
from parties.service.studies import utc_now
from parties.service.study_record import ENDED, NOT_STARTED, StudyRecord, StudyState
from parties.storage.charge_state import ChargeState
from parties.storage.release_registry import RegisteredFolder, ReleaseRegistry
from parties.storage.told_releases import ToldReleases
from tests.parties.silos_support import NAMES, SERVER
from tests.parties.test_charge_endings import Certificates
from tests.parties.test_earlier_releases import listening
from tests.parties.test_participant_releases import Study

OWN, OTHER = NAMES[:2]
EARLIER = 3


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("over"), [SERVER], [*NAMES, "stranger"])


@pytest.fixture
def study(tmp_path: Path, certificates: Certificates) -> Study:
    """A study that is over, and a registry with three others, released with a participant's key."""
    found = Study("flaim", certificates, tmp_path, "over")
    config = found.config.override(
        {"tls": {n: str(getattr(certificates[SERVER], n)) for n in ("ca", "cert", "key")}}
    )
    (found.folder / "study.toml").write_text(config.resolved_toml())
    registry = ReleaseRegistry(found.register)
    for number in range(EARLIER):
        release = dataclasses.replace(
            found.account(OWN).release, config=f"c{number}" * 32, run=f"earlier-{number}"
        )
        place = RegisteredFolder(release.config, SERVER, release.run, "1" * 32, tmp_path)
        registry.begin(place)
        said = ReleaseStatement(release, "ledger").sign(certificates[OWN]).decode()
        own = certificate_bytes(certificates[OWN])
        registry.release(place, [OWN], inputs=signed_statements(found.config, [(own, said)]))
    return found


def closed_studies(study: Study, states: dict[str, StudyState]) -> ClosedStudies:
    at = utc_now()
    records = {
        digest: StudyRecord(digest, "flaim", "over", SERVER, at, state, at)
        for digest, state in states.items()
    }
    folder = SimpleNamespace(config=study.folder / "study.toml")
    known: Any = SimpleNamespace(
        values=records.values, get=records.get, folder=lambda record: folder
    )

    class Known(SimpleNamespace):
        def __getitem__(self, digest: str) -> StudyRecord:
            return records[digest]

    known = Known(**vars(known))
    identity: Any = SimpleNamespace(own=SimpleNamespace(name=SERVER), pid=0)
    return ClosedStudies(identity, known, study.register)


@asynccontextmanager
async def service(study: Study, state: StudyState) -> AsyncIterator[ClosedStudies]:
    """The part of a service that answers, at the study's address."""
    digest = study.config.digest()
    found = closed_studies(study, {digest: state})
    address = study.config.require_federation().address
    assert address is not None

    def take(connection: socket.socket) -> bool:
        if not found.take(study_sni_name(digest), connection):
            connection.close()
        return True

    listener = await listening(address.host, address.port, take)
    try:
        yield found
    finally:
        asyncio.get_running_loop().remove_reader(listener.fileno())
        listener.close()
        await found.close()


async def asked(study: Study, name: str) -> ToldReleases:
    config: Config = study.config.override({"timeouts.connect_s": 2.0, "timeouts.receive_s": 5.0})
    return await ask_server_releases(config, study.certificates[name], study.place / "none.sqlite")


@pytest.mark.parametrize("state", ENDED)
async def test_a_study_that_is_over_still_tells_after_restarts(
    study: Study, state: StudyState
) -> None:
    for _ in range(3):
        async with service(study, state):
            found = await asked(study, OWN)
            assert found.answered == (SERVER,)
            assert {item.release.run for item in found.missing} == {
                f"earlier-{number}" for number in range(EARLIER)
            }
            for other in (OTHER, "stranger"):
                assert await asked(study, other) == ToldReleases((), (SERVER,), {})


@pytest.mark.parametrize("state", NOT_STARTED)
async def test_a_study_that_has_not_begun_does_not_answer(study: Study, state: StudyState) -> None:
    """Its participants wait until it begins."""
    async with service(study, state):
        assert list((await asked(study, OWN)).problems) == [SERVER]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (StudyState.FINISHED, Status.NOT_ENROLLED),
        (StudyState.CANCELLED, Status.NOT_ENROLLED),
        (StudyState.FAILED, Status.NETWORK),
    ],
)
async def test_join_of_a_study_that_is_over_enters_what_is_told_and_ends(
    study: Study, state: StudyState, status: Status
) -> None:
    study.account(OWN).budget.charge(
        study.account(OWN).source,
        dataclasses.replace(study.account(OWN).release, config="aa" * 32, epsilon=20.0, rho=50.0),
        "wide",
    )
    study.budget(OWN).set_limit(OWN, 1000.0, 1e-5, why="wide")
    async with service(study, state):
        with pytest.raises(FederationRefused, match="nobody joins it any more") as refused:
            await study.join(OWN)
        assert refused.value.status is status
    assert {f"earlier-{number}" for number in range(EARLIER)} <= set(study.spent(OWN))
    assert study.state(OWN) is None
    assert study.budget(OWN).intended() == []


async def test_what_was_released_in_the_study_itself_is_told_once_it_is_over(
    tmp_path: Path, certificates: Certificates
) -> None:
    one = Study("flaim", certificates, tmp_path, "one")
    played = await one.play(*NAMES)
    assert played.states == dict.fromkeys(NAMES, ChargeState.RELEASED)
    config = one.config.override(
        {"tls": {n: str(getattr(certificates[SERVER], n)) for n in ("ca", "cert", "key")}}
    )
    (one.folder / "study.toml").write_text(config.resolved_toml())
    for _ in range(2):
        async with service(one, StudyState.FINISHED):
            for name in (OWN, OTHER):
                (missing,) = (await asked(one, name)).missing
                assert missing.release == one.account(name).release


@pytest.mark.parametrize(
    "sent", [b"", b"\0" * 40, b"\0" * 5, b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2hi"]
)
async def test_nonsense_and_silence_end_and_keep_nobody_away(
    study: Study, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parties.identity import tls

    monkeypatch.setattr(closed_federations, "_LIMIT_S", 0.5)
    address = study.config.require_federation().address
    assert address is not None
    context = tls.client_context(
        study.certificates[OTHER], study.config.require_federation().pinned
    )
    name = study_sni_name(study.config.digest())
    async with service(study, StudyState.FINISHED):
        reader, writer = await asyncio.open_connection(
            address.host, address.port, ssl=context, server_hostname=name
        )
        writer.write(sent)
        await writer.drain()
        async with asyncio.timeout(5):
            with suppress(OSError):
                await reader.read()
        writer.transport.abort()
        assert len((await asked(study, OWN)).missing) == EARLIER


async def test_a_registry_that_fails_tells_no_path(study: Study, tmp_path: Path) -> None:
    study.register = tmp_path
    async with service(study, StudyState.FINISHED):
        with pytest.raises((FederationRefused, FrameTransportError)) as refused:
            await asked(study, OWN)
        assert str(tmp_path) not in str(refused.value)
