"""The client's traffic by the FLAIM paper's formula, and the expected size of Syncret's own messages.

The module has the paper's counts (``distaim_formula``, ``flaim_formula``), our own payloads as functions of sizes
(``upload_payload``, ``round_payload``), the overhead of frames and TLS records (``upload_wire``), and the servers' cost
of counting rows (``Counting``). All values here are public.

The paper's formula counts ring elements of 8 bytes and nothing else. DistAIM: two components to each of three servers
for every cell of the workload's closure, once, for any number of rounds. FLAIM: every cell of the marginals that a
client answers, those of its choices and in the private variant all single columns, in every round that it takes part
in, and every cell of the models that it receives for choosing. Source: FLAIM paper, Tables 3 and 7, and its authors'
public code for the received part. Tests hold our own formulas against counted bytes.
"""

from dataclasses import dataclass
from typing import Self

from mechanisms.workload import Workload
from parties.mpc.inputs import input_form
from parties.mpc.inputs.rows import Rows, counting_plan
from parties.mpc.submission.sealed_upload import UploadSizes
from protocols.costs import count_rows
from protocols.row_plan import SEGMENT_ROWS
from secagg import wire
from secagg.boxes import REVEALED_OVERHEAD_BYTES
from secagg.keys import PUBLIC_BYTES
from secagg.masks import packed_bytes
from secagg.parameters import Parameters

ELEMENT_BYTES = 8
COPIES = 6
"""Two components at each of three servers."""
RECORD_BYTES = 1 << 14
"""Largest plaintext of a TLS record."""
RECORD_OVERHEAD_BYTES = 22
"""TLS 1.3: header 5, content type 1, tag 16."""
FRAME_BYTES = 4
"""Size of the length before each message of a SecAgg session (`parties.network.frames`)."""
UPLOAD_RECEIVED_BYTES = 866
"""Bytes of the answer to an upload: a receipt signed by three servers; digits of a round's number vary."""
UPLOAD_CONNECTION_BYTES = 3_810
"""TLS handshake with the study's name and both certificates, HTTP heads, records but a long body's; a few vary."""
MB = 1e6


def distaim_formula(workload: Workload) -> int:
    """Returns the bytes of a DistAIM client by the paper: 48 for each cell of the closure."""
    return ELEMENT_BYTES * COPIES * workload.cells


def flaim_formula(answered_cells: float, model_cells: float) -> float:
    """Returns the bytes of a FLAIM client by the paper: 8 for each cell of answered marginals and received models."""
    return ELEMENT_BYTES * (answered_cells + model_cells)


def owner_rows(rows: int, clients: int) -> int:
    """Returns the capacity of an owner when a table of ``rows`` is split evenly: the size of the largest part."""
    return max(1, -(-rows // clients))


def packed_rows(workload: Workload, capacity: int) -> int:
    """Returns the bytes of ``capacity`` bit-packed rows."""
    return Rows(workload).layout.body_size(capacity)


def upload_payload(workload: Workload, form: str, capacity: int = 1) -> int:
    """Returns the bytes of our sealed upload; the size of counts does not depend on the owner's capacity.

    48 a cell of the maximal queries (plain), 4 a cell and 144 (seeded), or the packed rows and 144 (rows), and for all
    the overhead of sealing: 1,136 to each of three boxes.
    """
    return _sizes(workload, form, capacity).whole


def upload_wire(payload: int) -> int:
    """Returns the bytes of one connection with an upload of ``payload`` bytes, both directions, HTTP and TLS included.

    Exact to some 100 bytes; a body of megabytes that is cut into more records than it needs has some more.
    """
    records = RECORD_OVERHEAD_BYTES * -(-payload // RECORD_BYTES)
    return payload + records + UPLOAD_RECEIVED_BYTES + UPLOAD_CONNECTION_BYTES


def passed_on_payload(workload: Workload, form: str, capacity: int = 1) -> float:
    """Returns the bytes that servers forward of one client's upload, on average over the server that took it."""
    sizes = _sizes(workload, form, capacity)
    return 2 * sum(sizes.passed_on(pid) for pid in range(3)) / 3


def _sizes(workload: Workload, form: str, capacity: int) -> UploadSizes:
    return UploadSizes.of(input_form(form, workload), capacity)


@dataclass(frozen=True, slots=True)
class Counting:
    """Servers' cost of counting ``rows``: bytes that the mean server sends, seconds of one core of each server."""

    rows: int
    server_bytes: float
    core_seconds: float

    @classmethod
    def of(cls, workload: Workload, capacity: int, owners: int) -> Self:
        """Computes the cost for ``owners`` owners of the same capacity who come together, counted in batches."""
        plan = counting_plan(workload)
        together = min(owners, max(1, SEGMENT_ROWS // capacity))
        batches = [together * capacity] * (owners // together)
        batches += [owners % together * capacity] * (owners % together > 0)
        each = {rows: sum(count_rows(plan, rows).sent) / 3 for rows in set(batches)}
        seconds = {rows: plan.seconds(rows, 1) for rows in set(batches)}
        return cls(
            owners * capacity,
            sum(each[rows] for rows in batches),
            sum(seconds[rows] for rows in batches),
        )


@dataclass(frozen=True, slots=True)
class Payload:
    """Message bytes and number of messages of one client, by direction."""

    sent: int
    received: int
    sent_messages: int
    received_messages: int

    def __add__(self, other: "Payload") -> "Payload":
        return Payload(
            self.sent + other.sent,
            self.received + other.received,
            self.sent_messages + other.sent_messages,
            self.received_messages + other.received_messages,
        )


def round_payload(parameters: Parameters) -> Payload:
    """Returns one client's messages in a SecAgg round without dropouts (`secagg` README, wire format).

    The mean client's: for an odd number of neighbours half of them send a pair secret more, and receive one less.
    """
    k, signed = parameters.neighbours, parameters.signed
    signature = 64 if signed else 0
    keys = 2 * PUBLIC_BYTES + signature
    boxes = 8 + k * (4 + wire.CIPHERTEXT_BYTES) + k * (4 + wire.PAIR_BYTES) // 2
    sent = [
        keys,
        wire.COMMITMENT_BYTES + boxes,
        packed_bytes(parameters.length, parameters.bits),
        REVEALED_OVERHEAD_BYTES + 4 + k * (4 + 33),
    ]
    received = [
        wire.ANNOUNCE_BYTES,
        4 + k * (4 + keys),
        boxes,
        (parameters.clients + 7) // 8,
        0,
    ]
    if signed:
        sent.append(64)
        received.append(4 + k * (4 + 64))
    return Payload(
        sum(sent) + len(sent) * wire.OVERHEAD_BYTES,
        sum(received) + len(received) * wire.OVERHEAD_BYTES,
        len(sent),
        len(received),
    )
