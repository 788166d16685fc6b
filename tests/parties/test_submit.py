"""Submitting to real servers over TLS on loopback, and to servers that are missing, silent, wrong or lying."""

import asyncio
import contextlib
import json
import ssl
import stat
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from aiohttp import web
from numpy.typing import NDArray

from mechanisms.errors import BudgetExceeded, DataError
from mechanisms.table import decode
from mechanisms.workload import count_marginals
from parties.config import CertificateFiles, Config
from parties.foundation.errors import (
    CertificateError,
    PartialSubmission,
    StoreError,
    SubmissionRefused,
    SubmitError,
)
from parties.identity.tls import make_certificates
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.intake import forwarder
from parties.mpc.intake.forwarder import Forwarder
from parties.mpc.planning.budget import distaim_release
from parties.mpc.storage.outbox import DeliveryStatus, Outbox
from parties.mpc.submission import submit as submit_module
from parties.mpc.submission.sealed_upload import ReceiptSigner
from parties.mpc.submission.submit import (
    PreparedSubmission,
    draw_first_round,
    prepare,
    refresh_receipts,
    send_prepared,
    submit,
    submit_table,
)
from parties.session.study import Study
from parties.storage.owner_budget import BudgetAccount, OwnerBudget
from parties.storage.populations import TableIdentity
from protocols.upload import upload_components
from tests.parties.support import (
    PARTIES,
    certificates,
    keys_of,
    make_codes,
    make_config,
    running_servers,
    sealed_upload,
)
from tests.until import eventually

Certificates = dict[str, CertificateFiles]
CODES = make_codes(50)


# What is right


@pytest.mark.parametrize("form", ["seeded", "plain"])
async def test_submit_stores_shares_of_the_counts(
    tmp_path: Path, certificates: Certificates, form: str
) -> None:
    config = make_config({"run.upload": form})
    async with running_servers(config, tmp_path, certificates) as stores:
        receipt = await submit(config, CODES, certificates["clinic-a"])
        bodies = [stores[pid].submissions.read("clinic-a") for pid in range(3)]
        digests = {stores[pid].submissions.upload_digest("clinic-a") for pid in range(3)}
        traffic = {PARTIES[pid]: stores[pid].traffic.by_client() for pid in range(3)}
    own = [upload_components(pid, form, bodies[pid], 56)[0] for pid in range(3)]
    total = own[0] + own[1] + own[2]
    np.testing.assert_array_equal(total, count_marginals(CODES, config.build_workload()))
    assert digests == {receipt.upload}
    assert (receipt.run, receipt.client, receipt.first_round) == ("trial", "clinic-a", 1)
    assert (receipt.form, receipt.cells) == (form, 56)
    assert receipt.complete
    assert [item.party for item in receipt.receipts] == list(PARTIES)
    # One request to one server; what it got is what the client sent, and the other way round.
    sent = receipt.traffic
    assert receipt.via is not None
    assert traffic.pop(receipt.via) == {"clinic-a": (1, sent.sent_bytes, sent.received_bytes)}
    assert list(traffic.values()) == [{}, {}]
    content = 48 * 56 if form == "plain" else 64 + 2 * 32 + 4 * 56 + 16
    assert sent.sent_bytes == content + 3 * 1136
    if sys.platform.startswith("linux"):
        assert sent.socket_sent_bytes is not None
        assert sent.socket_received_bytes is not None
        # TLS with both certificates, and HTTP headers.
        assert sent.sent_bytes + 1000 < sent.socket_sent_bytes < sent.sent_bytes + 4000
        assert sent.socket_received_bytes > sent.received_bytes + 1000
    shown = json.loads(json.dumps(receipt.to_dict()))
    assert (shown["participates"], shown["complete"]) == (True, True)
    assert [sorted(item) for item in shown["receipts"]] == [["key", "party", "signature"]] * 3


def test_submit_adds_little_to_small_contents() -> None:
    """At most 4.5 KB beyond the counts' own bytes, headers of HTTP among them."""
    config = make_config()
    ready = sealed_upload(config)
    headers = "".join(f"{name}: {value}\r\n" for name, value in ready.signed.headers().items())
    whole = len(ready.sealed.content) + len(headers)
    assert whole - len(ready.parts.common) <= 4500


async def test_submit_goes_to_servers_at_random(tmp_path: Path, certificates: Certificates) -> None:
    """20 times one upload, sent again and again: all to one server with probability below 10^-8."""
    config, owner = make_config(), certificates["clinic-a"]
    async with running_servers(config, tmp_path, certificates):
        made = ready_for(config, owner)
        first = [(await send_prepared(config, made, owner)).via for _ in range(20)]
    assert len(set(first)) > 1


async def test_submit_table_reads_checks_and_submits(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    table = tmp_path / "table.csv"
    decode(config.domain, CODES, np.random.default_rng(1)).to_csv(table, index=False)
    async with running_servers(config, tmp_path, certificates) as stores:
        receipt = await submit_table(config, table, certificates["clinic-a"], first_round=3)
        assert receipt.complete
        assert [stores[0].submissions.all()[0].submission.first_round] == [3]


async def test_submit_of_many_owners_at_once(tmp_path: Path, certificates: Certificates) -> None:
    config = make_config()
    names = ["clinic-a", "clinic-b", "clinic-c"]
    async with running_servers(config, tmp_path, certificates) as stores:
        receipts = await asyncio.gather(*(submit(config, CODES, certificates[n]) for n in names))
        assert [receipt.client for receipt in receipts] == names
        for store in stores.values():
            assert [item.submission.client for item in store.submissions.all()] == names
        # The run expects three; the fourth is told so by all, and learns what to do about it.
        with pytest.raises(SubmissionRefused, match="3 expected clients") as caught:
            await submit(config, CODES, certificates["clinic-d"])
        assert caught.value.status == 403


# Tables


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.rename(columns={"age": "years"}), "'age'"),
        (lambda frame: frame.assign(sex="?"), "line 2, column 'sex'"),
        (lambda frame: frame.assign(age="10"), "line 2, column 'age'"),
    ],
)
async def test_submit_table_sends_nothing_when_the_table_is_wrong(
    tmp_path: Path,
    certificates: Certificates,
    change: Callable[[pd.DataFrame], pd.DataFrame],
    message: str,
) -> None:
    config = make_config()
    table = tmp_path / "table.csv"
    change(decode(config.domain, CODES, np.random.default_rng(1))).to_csv(table, index=False)
    async with running_servers(config, tmp_path, certificates) as stores:
        with pytest.raises(DataError, match=message):
            await submit_table(config, table, certificates["clinic-a"])
        assert [store.traffic.by_client() for store in stores.values()] == [{}, {}, {}]


async def test_submit_refuses_more_rows_than_the_public_bound(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The precondition of the servers' check: an honest owner's bit would say what it has beyond the bound."""
    config = make_config()
    async with running_servers(config, tmp_path, certificates) as stores:
        with pytest.raises(DataError, match="has 101 rows; expected at most 100"):
            await submit(config, make_codes(101), certificates["clinic-a"])
        with pytest.raises(DataError, match="has 41 rows; expected at most 40"):
            await submit(config, make_codes(41), certificates["clinic-a"], capacity=40)
        with pytest.raises(DataError, match="a capacity of 101 rows; expected 1 to 100"):
            await submit(config, CODES, certificates["clinic-a"], capacity=101)
        assert [store.traffic.by_client() for store in stores.values()] == [{}, {}, {}]


async def test_submit_table_sends_as_much_of_a_table_without_rows_as_of_any_other(
    tmp_path: Path, certificates: Certificates
) -> None:
    config, table = make_config(), tmp_path / "table.csv"
    table.write_text("sex,ward,age\n")
    async with running_servers(config, tmp_path, certificates):
        empty = await submit_table(config, table, certificates["clinic-a"])
        full = await submit(config, make_codes(100), certificates["clinic-b"])
    assert empty.first_round is not None
    assert empty.traffic.sent_bytes == full.traffic.sent_bytes


# Servers that are missing


@pytest.mark.parametrize("away", range(3))
async def test_submit_says_who_has_it_and_who_will_get_it_when_one_server_is_away(
    tmp_path: Path, certificates: Certificates, away: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "LONGEST_PAUSE_S", 0.3)
    config = make_config()
    state, owner = tmp_path / "state.json", certificates["clinic-a"]
    there = tuple(pid for pid in range(3) if pid != away)
    async with running_servers(config, tmp_path, certificates, there) as stores:
        receipt = await submit(config, CODES, owner, state=state)
        assert receipt.kept_for == (PARTIES[away],)
        assert [item.party for item in receipt.receipts] == [PARTIES[pid] for pid in there]
        asked = await refresh_receipts(config, owner, state)
        assert (asked.kept_for, asked.complete) == (receipt.kept_for, False)
        # The owner need not return: the server that took it passes it on.
        async with running_servers(config, tmp_path, certificates, (away,)) as late:
            async with asyncio.timeout(10):
                while late[away].submissions.upload_digest("clinic-a") is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert late[away].submissions.upload_digest("clinic-a") == receipt.upload
            asked = await refresh_receipts(config, owner, state)
            assert (asked.kept_for, asked.complete) == ((), True)
            again = await submit(config, CODES, owner, state=state)
        assert again.earlier
        assert {store.submissions.upload_digest("clinic-a") for store in stores.values()} == {
            receipt.upload
        }


async def test_submit_again_asks_the_server_whose_receipt_is_missing(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The server that took it may have lost or dropped it: the owner finds out, and sends it once more itself."""
    config = make_config()
    state, owner = tmp_path / "state.json", certificates["clinic-a"]
    async with running_servers(config, tmp_path, certificates, (0, 1)):
        receipt = await submit(config, CODES, owner, state=state)
        assert receipt.kept_for == ("party-2",)
    async with running_servers(config, tmp_path, certificates, (2,)) as stores:
        again = await submit(config, CODES, owner, state=state)
        assert (again.complete, again.via) == (True, "party-2")
        assert stores[2].submissions.upload_digest("clinic-a") == receipt.upload


async def test_submit_sends_nothing_to_servers_that_began_anew_once_all_three_had_it(
    tmp_path: Path, certificates: Certificates
) -> None:
    """They would release it once more, with fresh noise."""
    config, state, owner = make_config(), tmp_path / "state.json", certificates["clinic-a"]
    charged: list[str] = []
    async with running_servers(config, tmp_path, certificates):
        receipt = await submit(config, CODES, owner, state=state, spend=charged.append)
    assert charged == [receipt.digest]
    # What would make the shares again is gone.
    assert not {"s0", "s1", "key", "boxes"} & json.loads(state.read_text()).keys()
    async with running_servers(config, tmp_path / "anew", certificates) as stores:
        again = await submit(config, CODES, owner, state=state, spend=charged.append)
        assert again == replace(receipt, earlier=True)
        assert await refresh_receipts(config, owner, state) == again
        assert [store.traffic.by_client() for store in stores.values()] == [{}] * 3
        with pytest.raises(StoreError, match="of another submission, which all three servers have"):
            await submit(config, make_codes(40), owner, state=state, spend=charged.append)
        # Another state file is another submission, and paid for by itself.
        other = await submit(config, CODES, owner, state=tmp_path / "b.json", spend=charged.append)
    assert charged == [receipt.digest, other.digest]


async def test_submit_sends_nothing_that_is_not_paid_for_and_pays_once_for_a_retry(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config({"timeouts.submit_s": 1.0})
    owner, state = certificates["clinic-a"], tmp_path / "state.json"
    account = BudgetAccount(
        OwnerBudget(tmp_path / "budget.sqlite"),
        TableIdentity("stays"),
        distaim_release(Study.of(config)),
    )

    def broke(submission: str) -> None:
        raise BudgetExceeded("nothing is left")

    async with running_servers(config, tmp_path, certificates, (0, 2)) as stores:
        with pytest.raises(BudgetExceeded):
            await submit(config, CODES, owner, state=state, spend=broke)
        assert [store.traffic.by_client() for store in stores.values()] == [{}] * 2
        first = await submit(config, CODES, owner, state=state, spend=account.spend)
        assert first.kept_for == ("party-1",)
    async with running_servers(config, tmp_path, certificates):
        assert (await submit(config, CODES, owner, state=state, spend=account.spend)).complete
    (dataset,) = account.budget.datasets()
    assert [run.release for run in dataset.runs] == [account.release]
    # What the state file knew is lost with it: another submission, and another charge.
    state.unlink()
    with pytest.raises(BudgetExceeded, match="took a submission of it already"):
        await submit(config, CODES, owner, state=state, spend=account.spend)


async def test_submit_does_not_send_again_what_is_known(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    state, owner = tmp_path / "state.json", certificates["clinic-a"]
    async with running_servers(config, tmp_path, certificates, (0,)):
        first = await submit(config, CODES, owner, state=state)
        second = await submit(config, CODES, owner, state=state)
    assert first.traffic.sent_bytes > 3000
    assert second.traffic.sent_bytes == 0
    assert (first.upload, first.kept_for) == (second.upload, second.kept_for)


async def test_status_says_who_has_it_or_that_nobody_answers(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config({"timeouts.submit_s": 1.0})
    state, owner = tmp_path / "state.json", certificates["clinic-a"]
    prepared(config, state)
    with pytest.raises(SubmitError, match="nothing listens there"):
        await refresh_receipts(config, owner, state)
    async with running_servers(config, tmp_path, certificates):
        with pytest.raises(SubmissionRefused, match="no submission of 'clinic-a'"):
            await refresh_receipts(config, owner, state)
        await submit(config, CODES, owner, state=state)
        assert (await refresh_receipts(config, owner, state)).complete
        with pytest.raises(StoreError, match="is of another submission"):
            await refresh_receipts(config, certificates["clinic-b"], state)
    with pytest.raises(StoreError, match="nothing of clinic-a was sent from here"):
        await refresh_receipts(config, owner, tmp_path / "none")


async def test_submit_is_refused_where_the_owner_agreed_to_another_configuration(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    async with running_servers(config, tmp_path, certificates) as stores:
        smaller = config.override({"run.epsilon": 0.1})
        with pytest.raises(SubmissionRefused, match="another configuration") as caught:
            await submit(smaller, CODES, certificates["clinic-a"])
        assert "the same config at the servers and at every data owner" in str(caught.value)
        assert all(store.submissions.all() == [] for store in stores.values())
        # What each host has for itself does not count.
        await submit(config.override({"timeouts.submit_s": 7.0}), CODES, certificates["clinic-a"])


async def test_submit_without_its_state_is_refused_the_second_time(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    async with running_servers(config, tmp_path, certificates) as stores:
        await submit(config, CODES, certificates["clinic-a"])
        before = [store.submissions.read("clinic-a") for store in stores.values()]
        with pytest.raises(SubmissionRefused, match="the first one stands") as caught:
            await submit(config, CODES, certificates["clinic-a"])
        assert str(caught.value).count("client 'clinic-a' is stored with another submission") == 1
        assert caught.value.status == 409
        assert [store.submissions.read("clinic-a") for store in stores.values()] == before


async def test_submit_says_that_a_refusal_stands_when_only_one_server_refuses(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    async with running_servers(config, tmp_path, certificates) as stores:
        stores[1].state.close_to_clients()
        with pytest.raises(PartialSubmission, match="refusal stands") as caught:
            await submit(config, CODES, certificates["clinic-a"])
        assert sorted(caught.value.reached) == ["party-0", "party-2"]
        assert list(caught.value.failures) == ["party-1"]


async def test_submit_ends_within_its_deadline_when_all_servers_are_missing(
    certificates: Certificates,
) -> None:
    config = make_config({"timeouts.submit_s": 0.6})
    started = time.monotonic()
    with pytest.raises(SubmitError, match=r"no server has .*party-0.*party-1.*party-2") as caught:
        await submit(config, CODES, certificates["clinic-a"])
    assert not isinstance(caught.value, PartialSubmission)
    # What is the same at all three is said once.
    assert (
        str(caught.value).count("cannot be reached: nothing listens there (tried for 0.6 s)") == 1
    )
    assert "Run the same command again" in str(caught.value)
    assert time.monotonic() - started < 3


async def test_submit_waits_for_a_server_that_starts_late(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    said: list[str] = []
    task = asyncio.create_task(
        submit(config, CODES, certificates["clinic-a"], on_retry=said.append)
    )
    await eventually(lambda: len(said) > 3)
    await asyncio.sleep(0.2)  # Sleeps: quiet.
    # Each once, however often it was tried.
    (all_three,) = [text for text in said if text.startswith("none of the three servers")]
    said.remove(all_three)
    assert [text.split()[0] for text in sorted(said)] == ["party-0", "party-1", "party-2"]
    assert all("nothing listens there; trying the others, and then again" in t for t in said)
    async with running_servers(config, tmp_path, certificates):
        receipt = await task
        assert receipt.receipts
        assert receipt.traffic.requests > 3


async def test_submit_goes_on_to_another_server_when_one_is_silent(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config({"timeouts.submit_s": 1.5, "timeouts.connect_s": 60})

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        writer.close()

    port = config.parties[1].ingest.port
    async with running_servers(config, tmp_path, certificates, (0, 2)):
        silent = await asyncio.start_server(swallow, "127.0.0.1", port)
        receipt = await submit(config, CODES, certificates["clinic-a"])
        assert receipt.kept_for == ("party-1",)
        silent.close()
        await silent.wait_closed()


# Certificates


async def test_submit_names_its_own_unusable_certificate_before_it_connects(
    tmp_path: Path, certificates: Certificates
) -> None:
    owner = certificates["clinic-a"]
    missing = CertificateFiles(owner.ca, tmp_path / "missing.crt", owner.key)
    expired = make_certificates(tmp_path / "old", [], ["clinic-a"], valid_days=-1)["clinic-a"]
    foreign = make_certificates(tmp_path / "foreign", [], ["clinic-a"])["clinic-a"]
    for files, message in (
        (missing, "missing.crt: certificate cannot be read"),
        (expired, "expired on"),
        (CertificateFiles(owner.ca, foreign.cert, foreign.key), "not issued by"),
    ):
        with pytest.raises(CertificateError, match=message):
            await submit(make_config(), CODES, files)


async def test_submit_learns_that_the_servers_do_not_know_its_authority(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A certificate of an authority that the servers do not know, under a name that they would take."""
    config = make_config()
    foreign = make_certificates(tmp_path / "foreign", [], ["clinic-a"])["clinic-a"]
    joined = tmp_path / "joined.crt"
    joined.write_bytes(foreign.ca.read_bytes() + certificates["clinic-a"].ca.read_bytes())
    files = CertificateFiles(joined, foreign.cert, foreign.key)
    async with running_servers(config, tmp_path, certificates) as stores:
        started = time.monotonic()
        with pytest.raises(SubmitError, match="refused the connection: our certificate is of an"):
            await submit(config, CODES, files)
        # Final, not tried until the deadline.
        assert time.monotonic() - started < 3
        assert [store.traffic.by_client() for store in stores.values()] == [{}, {}, {}]


async def test_submit_sends_nothing_to_a_server_of_another_name(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    mixed = {**certificates, "party-1": certificates["party-2"]}
    tables = config.to_dict()["party"]
    assert isinstance(tables, list)
    tables[1] |= keys_of(certificates["party-2"])
    tables[2] |= keys_of(certificates["party-1"])
    # Nothing keeps it from writing itself a configuration with its own keys.
    its_own = config.override({"party": tables})
    async with (
        running_servers(config, tmp_path, mixed, (0, 2)),
        running_servers(its_own, tmp_path, mixed, (1,)) as stores,
    ):
        receipt = await submit(config, CODES, certificates["clinic-a"])
        assert receipt.kept_for == ("party-1",)
        assert stores[1].traffic.by_client() == {}
        assert stores[1].submissions.all() == []


# Servers that lie or fail


@contextlib.asynccontextmanager
async def answering(
    config: Config, certificates: Certificates, status: int, text: str
) -> AsyncIterator[list[int]]:
    """All three parties as servers that give one answer to everything; yields the sizes of the bodies they got."""
    sizes: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        sizes.append(len(await request.read()))
        return web.Response(status=status, text=text, content_type="application/json")

    async with contextlib.AsyncExitStack() as stack:
        for pid, party in enumerate(config.parties):
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", answer)
            runner = web.AppRunner(app)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            files = certificates[PARTIES[pid]]
            context.load_cert_chain(files.cert, files.key)
            await web.TCPSite(runner, "127.0.0.1", party.ingest.port, ssl_context=context).start()
        yield sizes


@pytest.mark.parametrize(
    ("status", "text", "message", "tries_again"),
    [
        (201, "{}", "its receipt has run 'None'; expected 'trial'", False),
        (200, '{"run": "trial", "client": "clinic-b"}', "receipt has client 'clinic-b'", False),
        (201, "thanks", "answered 201 without JSON", True),
        (201, "[1]", "answered 201 without JSON", True),
        (201, "[" * 60_000, "answered 201 without JSON", True),
        (500, '{"error": {"what": "\\u001b[2K\\rdone"}}', "answered 500: ?[2K?done", True),
        (500, '{"error": {"what": "broken"}}', "answered 500: broken", True),
        (507, '{"error": "full"}', "answered 507", True),
        (
            422,
            '{"error": {"what": "no", "where": "w", "expected": "e"}}',
            "answered 422: no",
            False,
        ),
        (302, "{}", "answered 302", False),
    ],
)
async def test_submit_believes_only_a_receipt_for_its_submission(
    certificates: Certificates, status: int, text: str, message: str, tries_again: bool
) -> None:
    config = make_config({"timeouts.submit_s": 1.0})
    started = time.monotonic()
    async with answering(config, certificates, status, text) as sizes:
        with pytest.raises(SubmitError, match="no server has confirmed the submission") as caught:
            await submit(config, CODES, certificates["clinic-a"])
    assert message in str(caught.value)
    assert (len(sizes) > 3) == tries_again
    # Where it tries again it does so for as long as it may; how long one answer takes is the machine's affair.
    assert not tries_again or time.monotonic() - started > 0.9


def ready_for(config: Config, files: CertificateFiles) -> PreparedSubmission:
    """An upload to try receipts on."""
    workload = config.build_workload()
    own = OwnerInput.of(Study(config, workload), CODES)
    made = prepare(config, own, files, workload=workload, first_round=1)
    assert made is not None
    return made


@pytest.mark.parametrize(
    "wrong", ["another upload's", "another signature", "another key", "its own is missing"]
)
async def test_submit_refuses_receipts_that_do_not_hold(
    certificates: Certificates, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three servers lie: none of what they say is believed."""
    config = make_config()
    made = ready_for(config, certificates["clinic-a"])
    upload = made.upload.upload
    makers = [ReceiptSigner.load(name, certificates[name]) for name in PARTIES]
    other = ready_for(config, certificates["clinic-a"]).upload.upload
    receipts = [maker.make(other if wrong == "another upload's" else upload) for maker in makers]
    if wrong == "another signature":
        receipts = [replace(receipt, signature=bytes(64)) for receipt in receipts]
    if wrong == "another key":
        receipts = [replace(r, key=receipts[(i + 1) % 3].key) for i, r in enumerate(receipts)]
    if wrong == "its own is missing":
        receipts = []
    answer = {
        "run": "trial",
        "client": "clinic-a",
        "upload": upload.digest(),
        "first_round": 1,
        "receipts": [receipt.to_dict() for receipt in receipts],
    }
    async with answering(config, certificates, 201, json.dumps(answer)):
        with pytest.raises(SubmitError, match=r"its receipts do not hold|its receipt has party"):
            await send_prepared(config, made, certificates["clinic-a"])


async def test_submit_finds_out_that_the_server_it_came_to_has_dropped_a_part(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that all is well, without the third receipt: the owner goes to that server itself."""
    config = make_config()
    real = Forwarder.send
    monkeypatch.setattr(Forwarder, "send", lambda self, upload, sealed, pids: None)
    async with running_servers(config, tmp_path, certificates) as stores:

        def nobody_waits(self: Outbox, client: str) -> DeliveryStatus:
            return replace(standing(self, client), kept_for=())

        standing = Outbox.delivery_status
        monkeypatch.setattr(Outbox, "delivery_status", nobody_waits)
        receipt = await submit(config, CODES, certificates["clinic-a"])
        assert receipt.complete
        # Each had to be reached by the owner.
        assert receipt.traffic.requests == 3
        assert {store.submissions.upload_digest("clinic-a") for store in stores.values()} == {
            receipt.upload
        }
    assert real is not Forwarder.send


async def test_status_believes_no_server_that_says_of_others_that_they_are_away(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that took it forwards nothing and says that it waits: the others, asked themselves, have it not."""
    config = make_config()
    state, owner = tmp_path / "state.json", certificates["clinic-a"]
    async with running_servers(config, tmp_path, certificates) as stores:
        with monkeypatch.context() as lying:
            lying.setattr(Forwarder, "send", lambda self, upload, sealed, pids: None)
            told = await submit(config, CODES, owner, state=state)
        assert len(told.kept_for) == 2
        asked = await refresh_receipts(config, owner, state)
        assert (asked.kept_for, len(asked.receipts)) == ((), 1)
        again = await submit(config, CODES, owner, state=state)
        assert again.complete
        assert {store.submissions.upload_digest("clinic-a") for store in stores.values()} == {
            again.upload
        }


# Taking part


def stream(values: list[int]) -> Callable[[int], bytes]:
    rest = iter(values)
    return lambda size: next(rest).to_bytes(size, "little")


def test_draw_first_round_compares_exactly_with_the_probability() -> None:
    quarter = 2**62
    assert draw_first_round(3, 0.25, stream([quarter - 1])) == 1
    assert draw_first_round(3, 0.25, stream([quarter, 2**64 - 1, 0])) == 3
    assert draw_first_round(3, 0.25, stream([quarter, quarter, quarter])) is None
    assert draw_first_round(3, 1.0, stream([2**64 - 1])) == 1


def test_draw_first_round_is_geometric_and_cut_off() -> None:
    """Statistic: largest deviation of 5 frequencies from p(1-p)^(t-1), 20,000 draws, seeded.

    A deviation of 0.015 is more than 4 standard errors; a sampler with p = 0.32 in place of 0.3 is the control.
    """
    generator = np.random.default_rng(11)

    def deviation(p: float) -> float:
        drawn = Counter(draw_first_round(4, p, generator.bytes) for _ in range(20_000))
        right: dict[int | None, float] = {t: 0.3 * 0.7 ** (t - 1) for t in range(1, 5)}
        right[None] = 0.7**4
        return max(abs(drawn[key] / 20_000 - value) for key, value in right.items())

    assert deviation(0.3) < 0.015
    assert deviation(0.32) > 0.015


async def test_submit_sends_nothing_when_no_round_is_drawn_and_stays_out_when_run_again(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config({"clients.participation": 0.5, "clients.minimum": 1})
    state = tmp_path / "state.json"
    monkeypatch.setattr(submit_module, "draw_first_round", lambda rounds, participation: None)
    async with running_servers(config, tmp_path, certificates) as stores:
        first = await submit(config, CODES, certificates["clinic-a"], state=state)
        monkeypatch.undo()
        second = await submit(config, CODES, certificates["clinic-a"], state=state)
        assert [store.traffic.by_client() for store in stores.values()] == [{}, {}, {}]
    for receipt in (first, second):
        assert (receipt.first_round, receipt.upload, receipt.receipts) == (None, None, ())
        assert receipt.to_dict()["participates"] is False


# The state of a submission


def prepared(
    config: Config, state: Path | None, *, counts: NDArray[np.uint32] | None = None, **changes: int
) -> bytes:
    workload = config.build_workload()
    own = OwnerInput.of(Study(config, workload), CODES)
    own = own if counts is None else replace(own, values=counts)
    first_round = changes.get("first_round")
    owner = certificates()["clinic-a"]
    made = prepare(config, own, owner, workload=workload, first_round=first_round, state=state)
    assert made is not None
    return made.sealed.content


def test_prepare_gives_the_same_upload_with_a_state_and_another_without(tmp_path: Path) -> None:
    config = make_config()
    state = tmp_path / "below" / "state.json"
    first = prepared(config, state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert [path.name for path in state.parent.iterdir()] == ["state.json"]
    assert prepared(config, state) == first
    assert prepared(config, state, first_round=1) == first
    other = prepared(config, None)
    assert len(other) == len(first)
    assert all(other[i : i + 32] != first[i : i + 32] for i in range(0, len(first), 32))


def test_prepare_never_uses_the_seeds_for_another_submission(tmp_path: Path) -> None:
    config = make_config()
    state = tmp_path / "state.json"
    prepared(config, state, first_round=2)
    before = state.read_bytes()
    other = count_marginals(make_codes(50, seed=1), config.build_workload())
    for again in (
        lambda: prepared(config, state, counts=other),
        lambda: prepared(config, state, first_round=3),
        lambda: prepared(config.override({"run.id": "next"}), state),
        lambda: prepared(config.override({"run.upload": "plain"}), state),
    ):
        with pytest.raises(StoreError, match="is of another submission"):
            again()
    assert state.read_bytes() == before


def test_prepare_refuses_an_unusable_state_or_round(tmp_path: Path) -> None:
    config = make_config()
    for number, content in enumerate(("", "{}", "[]", '{"s0": 1}')):
        path = tmp_path / f"{number}.json"
        path.write_text(content)
        with pytest.raises(StoreError, match="is not the state of a submission"):
            prepared(config, path)
        assert path.read_text() == content
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be"):
        prepared(config, tmp_path / "file" / "state.json")
    with pytest.raises(StoreError, match="cannot be read"):
        prepared(config, tmp_path)
    for number in (0, 5):
        with pytest.raises(SubmitError, match=f"round {number} does not exist; expected 1 to 4"):
            prepared(config, None, first_round=number)
