"""Owners that send rows: counted as if they had counted themselves, whatever they send, and by their capacity alone."""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mechanisms.domain import Categorical, Domain
from mechanisms.errors import DataError
from mechanisms.workload import Workload, count_marginals
from parties.config import (
    MALICIOUS,
    NO_CHECK,
    SEMI_HONEST,
    TOTALS,
    CertificateFiles,
    ComputeSection,
)
from parties.foundation.errors import ConfigError, SubmissionRefused
from parties.mpc.inputs import RowLimit, SubmissionBatch, form_for, input_form, input_forms
from parties.mpc.inputs import rows as inputs_rows
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.inputs.rows import Rows, counting_plan
from parties.mpc.participants.notices import OperatorNotices
from parties.mpc.planning.counting_cost import CountingCost, counting_cost_text
from parties.mpc.planning.draft_sizes import draft_upload_sizes
from parties.mpc.planning.upload_size import UploadSize
from parties.mpc.planning.validation import validate_run
from parties.mpc.records import RunningTotal, StoredSubmission
from parties.mpc.steps import CLIENTS_COUNT, STEPS
from parties.mpc.storage.store import Store
from parties.mpc.submission.sealed_upload import UploadSizes
from parties.mpc.submission.submit import prepare, send_prepared, submit
from parties.session.compute_pool import local_products
from parties.session.study import Study
from protocols.context import Context
from protocols.products import KERNELS, LocalProducts
from protocols.row_plan import SEGMENT_ROWS
from protocols.shares import Share
from protocols.steps import OF_COUNTING, Counting
from protocols.upload import PLAIN, ROWS, SEEDED, UploadSeeds
from tests.parties.mesh import Recording
from tests.parties.support import make_codes, make_config, make_submission, running_servers
from tests.protocols.local import Outcome, reconstruct, run_parties


def domain_of(*sizes: int) -> Domain:
    """Columns c0, c1, ... with so many categories."""
    return Domain(
        tuple(
            Categorical(f"c{i}", tuple(f"v{j}" for j in range(size)))
            for i, size in enumerate(sizes)
        )
    )


CONFIG = make_config({"run.input": "auto"})
WORKLOAD = CONFIG.build_workload()
WIDE = Workload(domain_of(1, 2, 128, 1000), (("c1", "c2"), ("c0", "c3"), ("c1",)))


@dataclass(frozen=True)
class Owner:
    """Input of one owner, and the capacity that its submission declares."""

    capacity: int
    values: NDArray[np.unsignedinteger]


def owner(workload: Workload, rows: int, capacity: int, seed: int = 0) -> Owner:
    codes = codes_of(workload, rows, seed)
    return Owner(capacity, Rows(workload).values(codes, capacity))


def codes_of(workload: Workload, rows: int, seed: int = 0) -> NDArray[np.int32]:
    shape = workload.domain.shape
    return np.random.default_rng(seed).integers(0, shape, (rows, len(shape))).astype(np.int32)


def stored(form: Rows, pid: int, client: str, body: bytes, capacity: int) -> StoredSubmission:
    own, next_ = (digest.hex() for digest in form.component_digests(pid, body, capacity))
    submission = make_submission(client, form=ROWS, capacity=capacity)
    whole = hashlib.sha256(body).hexdigest()
    return StoredSubmission.of(submission, "ab" * 32, whole, own, next_, len(body), 0.0)


def count(
    workload: Workload,
    owners: Mapping[str, Owner],
    check: str = TOTALS,
    compute: Sequence[ComputeSection] = (ComputeSection(),) * 3,
) -> Outcome:
    """The three servers' totals with everybody's rows in them, which begin at a share of 7 in each cell."""
    form = Rows(workload)
    bodies = {
        name: form.share(owner.values, UploadSeeds.draw()).bodies for name, owner in owners.items()
    }

    async def party(ctx: Context) -> Share:
        total = RunningTotal.empty(1, ctx.pid, workload.maximal_cells).share + 7
        mine = tuple(
            stored(form, ctx.pid, name, bodies[name][ctx.pid], owner.capacity)
            for name, owner in owners.items()
        )
        limit, mine_here = RowLimit(check, 100), compute[ctx.pid]
        batch = SubmissionBatch(1, mine, lambda c: bodies[c][ctx.pid], limit, compute=mine_here)
        added = await form.add(ctx, total, batch)
        assert not added.failed
        return added.total

    return run_parties(party)


@pytest.mark.parametrize("workload", [WORKLOAD, WIDE])
def test_add_counts_tables_of_every_size_as_their_owners_would(workload: Workload) -> None:
    tables = {"none": (0, 5), "some": (20, 33), "full": (64, 64), "one": (1, 1)}
    owners = {name: owner(workload, *sizes, seed=3) for name, sizes in tables.items()}
    outcome = count(workload, owners)
    expected = sum(
        count_marginals(codes_of(workload, rows, 3), workload) for rows, _ in tables.values()
    )
    np.testing.assert_array_equal(reconstruct(outcome.results), expected + np.uint32(7))
    assert not any(party.opened_values for party in outcome.parties)


def test_add_computes_where_the_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with as many workers as it wants: nobody has to agree on it."""
    asked = []

    @asynccontextmanager
    async def noted(compute: ComputeSection) -> AsyncIterator[LocalProducts]:
        asked.append(compute)
        async with local_products(compute) as products:
            yield products

    monkeypatch.setattr(inputs_rows, "local_products", noted)
    sections = [ComputeSection(threads=pid + 1, gpu="never") for pid in range(3)]
    outcome = count(WORKLOAD, {"a": owner(WORKLOAD, 9, 40)}, compute=sections)
    assert reconstruct(outcome.results).sum() > 0
    assert sorted(asked, key=lambda section: section.threads) == sections


def test_add_sends_what_the_formulas_of_its_steps_say() -> None:
    owners = {"a": owner(WORKLOAD, 9, 40), "b": owner(WORKLOAD, 90, 90)}
    outcome = count(WORKLOAD, owners)
    facts = Counting(counting_plan(WORKLOAD), 130)
    for party in outcome.parties:
        done = [step for step in party.costs.steps if step.step != CLIENTS_COUNT.name]
        assert [step.step for step in done] == [step.name for step in OF_COUNTING]
        for step, account in zip(OF_COUNTING, done, strict=True):
            assert step.cost is not None
            cost = step.cost(facts)
            assert (account.rounds, account.sent_bytes) == (cost.rounds, cost.sent[party.pid])
            assert account.round == 1
    assert all(STEPS[step.name] is step for step in (CLIENTS_COUNT, *OF_COUNTING))


@given(seed=st.integers(0, 2**32 - 1), capacity=st.integers(1, 70))
def test_add_gives_whatever_bits_an_owner_sends_one_count_a_row_at_most(
    seed: int, capacity: int
) -> None:
    """Random bits in the place of rows: every marginal has the same total, of at most the capacity."""
    size = Rows(WIDE).layout.body_size(capacity)
    bits = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    counts = reconstruct(count(WIDE, {"hostile": Owner(capacity, bits)}).results) - np.uint32(7)
    totals = np.add.reduceat(counts, WIDE.maximal_offsets[:-1])
    assert len(set(totals.tolist())) == 1
    assert totals[0] <= capacity
    assert counts.max() <= capacity


def test_add_asks_nothing_where_nobody_is_left() -> None:
    outcome = count(WORKLOAD, {}, NO_CHECK)
    np.testing.assert_array_equal(reconstruct(outcome.results), np.full(56, 7, np.uint32))
    assert outcome.sent_bytes == [0, 0, 0]


# What an owner sends


@given(rows=st.integers(0, 30), more=st.integers(0, 40))
def test_share_depends_in_size_on_the_capacity_alone(rows: int, more: int) -> None:
    form, capacity = Rows(WORKLOAD), max(1, rows + more)
    parts = form.share(owner(WORKLOAD, rows, capacity).values, UploadSeeds.draw())
    assert [len(part) for part in parts.private] == [32, 16, 16]
    assert [len(part) for part in parts.private] == [
        form.private_size(pid, capacity) for pid in range(3)
    ]
    # Presence, one bit for two categories, two for three and four for ten: a byte a row.
    assert len(parts.common) == form.common_size(capacity) == capacity
    assert parts.holders == form.holders == (1, 2)


def test_share_refuses_counts() -> None:
    with pytest.raises(ValueError, match="rows takes a uint8 vector"):
        Rows(WORKLOAD).share(np.zeros(56, np.uint32), UploadSeeds.draw())


@pytest.mark.parametrize(
    ("capacities", "sizes"),
    [
        ([], []),
        ([1], [1]),
        ([SEGMENT_ROWS, 1], [1, 1]),
        ([SEGMENT_ROWS - 1, 1, 1, 2 * SEGMENT_ROWS, 5, 6], [2, 1, 1, 2]),
    ],
)
def test_batches_have_the_rows_of_a_segment(capacities: Sequence[int], sizes: list[int]) -> None:
    due = [
        StoredSubmission.of(
            make_submission(f"c{i}", form=ROWS, capacity=n), "ab" * 32, "", "", "", 1, 0.0
        )
        for i, n in enumerate(capacities)
    ]
    batches = Rows(WORKLOAD).batches(due)
    assert [len(batch) for batch in batches] == sizes
    assert [item for batch in batches for item in batch] == due


@pytest.mark.parametrize(
    ("given", "forms"),
    [("counts", [SEEDED]), ("rows", [ROWS]), ("auto", [SEEDED, ROWS])],
)
def test_input_forms_are_those_that_the_configuration_takes(given: str, forms: list[str]) -> None:
    assert list(input_forms(Study(make_config({"run.input": given}), WORKLOAD))) == forms
    plain = make_config({"run.input": given, "run.upload": PLAIN})
    assert list(input_forms(Study(plain, WORKLOAD))) == [PLAIN if f == SEEDED else f for f in forms]


def test_form_for_is_what_takes_fewer_bytes() -> None:
    """Counts are 224 bytes, rows one each."""
    config = make_config({"run.input": "auto", "clients.rows_per_client": 1000})
    assert [form_for(Study(config, WORKLOAD), n).name for n in (1, 223, 224, 1000)] == [
        ROWS,
        ROWS,
        SEEDED,
        SEEDED,
    ]
    only = config.override({"run.input": "rows"})
    assert form_for(Study(only, WORKLOAD), 1000).name == ROWS


def test_form_for_spares_the_servers_what_takes_them_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three owners of 100 rows and 56 cells are 16,800 products."""
    monkeypatch.setattr("parties.mpc.inputs.MAX_PRODUCTS", 16_799)
    assert form_for(Study(CONFIG, WORKLOAD), 100).name == SEEDED
    assert form_for(Study(CONFIG, WORKLOAD), 99).name == ROWS
    assert form_for(Study(CONFIG.override({"run.input": "rows"}), WORKLOAD), 100).name == ROWS


def test_own_input_is_of_the_capacity_that_its_owner_declares() -> None:
    own = OwnerInput.of(Study(CONFIG, WORKLOAD), make_codes(20), 40)
    assert (own.form.name, own.capacity, own.rows, own.values.size) == (ROWS, 40, 20, 40)
    assert "values" not in repr(own)
    # Counts bound nothing by themselves: their owner says no more than anybody.
    counts = OwnerInput.of(Study(make_config(), WORKLOAD), make_codes(20), 40)
    assert (counts.form.name, counts.capacity) == (SEEDED, 100)
    with pytest.raises(DataError, match="has 41 rows; expected at most 40"):
        OwnerInput.of(Study(CONFIG, WORKLOAD), make_codes(41), 40)


def test_offer_says_what_each_form_comes_to() -> None:
    offer = UploadSize.of(Study(CONFIG, WORKLOAD), 40)
    rows, counts = (UploadSizes.of(input_form(name, WORKLOAD), 40).whole for name in (ROWS, SEEDED))
    assert (offer.form, offer.capacity) == (ROWS, 40)
    assert offer.sent_bytes == {SEEDED: counts, ROWS: rows}
    # 184 bytes less: 56 counts of four bytes against 40 rows of one.
    assert counts - rows == 184


def test_effort_is_that_of_the_formulas_and_says_where_counts_cost_less() -> None:
    effort = CountingCost.of(WORKLOAD, 300, SEMI_HONEST)
    facts = Counting(counting_plan(WORKLOAD), 300)
    total: Counter[int] = Counter()
    for step in OF_COUNTING:
        assert step.cost is not None
        total.update(dict(enumerate(step.cost(facts).sent)))
    assert effort.sent_bytes == sum(total.values()) // 3
    proved = CountingCost.of(WORKLOAD, 300, MALICIOUS)
    assert proved.sent_bytes > effort.sent_bytes
    assert proved.seconds > effort.seconds
    assert counting_cost_text(Study(make_config(), WORKLOAD)) is None
    text = counting_cost_text(Study(CONFIG, WORKLOAD))
    assert text is not None
    assert text.startswith("at most 300 rows: about 1 s and ")
    assert "If owners sent counts, it would be " in text
    large = make_config({"run.input": "auto", "clients.rows_per_client": 1000})
    assert "join --capacity" in str(counting_cost_text(Study(large, WORKLOAD)))


def test_the_notice_of_counting_says_what_it_takes_and_by_which_kernel() -> None:
    seen: list[tuple[str, object]] = []
    progress = Recording(lambda name, fields: seen.append((name, fields["kernel"])))
    batch = SubmissionBatch(1, (), lambda _: b"", RowLimit(TOTALS, 100))
    study = Study(CONFIG, WORKLOAD)
    OperatorNotices(study, 0, cast(Store, None), progress).counting(batch)
    assert seen == [("counting", KERNELS[0])]
    assert "counting rows of 0 data owners" in progress.texts[0]


def test_drafted_offers_say_what_owners_would_send_by_a_draft() -> None:
    document = make_config().to_dict() | {"clients": {"expected": 9, "rows_per_client": 5000}}
    document = {k: v for k, v in document.items() if k not in ("party", "tls", "timeouts")}
    run = {"epsilon": 1.0, "delta": 1e-5, "rounds": 3}
    many, few = draft_upload_sizes(document | {"run": run})
    assert (many.capacity, many.form, few.capacity, few.form) == (5000, SEEDED, 50, ROWS)
    assert str(few) == (
        "an owner of at most 50 rows sends 3,776 bytes as counts or 3,602 bytes as rows; with this config, rows"
    )
    too_many = {"workload": {"degree": 4, "count": 64}, "run": run}
    assert draft_upload_sizes(document | too_many) == ()


def test_an_owner_sends_little_more_than_its_packed_rows() -> None:
    """Adult's coded domain, 439 rows: what the published figures say of an upload without HTTP and TLS."""
    adult = Workload(domain_of(85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2), (("c0",),))
    packed = -(-439 * adult_bits(adult) // 8)
    assert packed == 3567
    assert UploadSizes.of(Rows(adult), 439).whole == packed + 64 + 64 + 16 + 3 * 1120 + 3 * 16


def adult_bits(workload: Workload) -> int:
    return 1 + sum((size - 1).bit_length() for size in workload.domain.shape)


def test_rows_are_refused_where_servers_cannot_count_so_many_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("parties.mpc.inputs", "parties.mpc.planning.validation"):
        monkeypatch.setattr(f"{module}.MAX_CELLS", 55)
    assert list(input_forms(Study(CONFIG, WORKLOAD))) == [SEEDED]
    validate_run(Study(CONFIG, WORKLOAD))
    with pytest.raises(ConfigError, match=r'run.input: is "rows", .* expected at most 55'):
        validate_run(Study(CONFIG.override({"run.input": "rows"}), WORKLOAD))


# At the door of a server


Certificates = dict[str, CertificateFiles]


async def test_submit_sends_as_many_rows_as_its_capacity_whatever_there_are(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with running_servers(CONFIG, tmp_path, certificates) as stores:
        told = [
            await submit(CONFIG, make_codes(rows), certificates[name], capacity=40, first_round=1)
            for name, rows in (("clinic-a", 0), ("clinic-b", 40))
        ]
        assert [(each.form, each.capacity, each.complete) for each in told] == [
            (ROWS, 40, True)
        ] * 2
        assert len({each.traffic.sent_bytes for each in told}) == 1
        assert not any("rows=" in repr(each) for each in told)
        for store in stores.values():
            kept = store.submissions.all()
            assert [(s.submission.form, s.submission.capacity) for s in kept] == [(ROWS, 40)] * 2
            assert len({s.size for s in kept}) == 1


@pytest.mark.parametrize(
    ("changes", "status", "where"),
    [
        ({"capacity": 101}, 422, "a capacity of 101 rows, sent as rows"),
        ({"capacity": 41}, 400, "Content-Length"),
        ({"capacity": 39}, 413, "Content-Length"),
    ],
)
async def test_servers_refuse_a_capacity_beyond_the_bound_or_another_than_was_sent(
    tmp_path: Path,
    certificates: Certificates,
    changes: dict[str, int],
    status: int,
    where: str,
) -> None:
    own = replace(OwnerInput.of(Study(CONFIG, WORKLOAD), make_codes(20), 40), **changes)  # type: ignore[arg-type]
    files = certificates["clinic-a"]
    made = prepare(CONFIG, own, files, workload=WORKLOAD, first_round=1)
    assert made is not None
    async with running_servers(CONFIG, tmp_path, certificates) as stores:
        with pytest.raises(SubmissionRefused, match=where) as caught:
            await send_prepared(CONFIG, made, files)
        assert caught.value.status == status
        assert [store.submissions.all() for store in stores.values()] == [[], [], []]
