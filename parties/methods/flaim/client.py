"""A client of FLAIM: its state machine, without I/O and without a clock, and its process.

``run_client`` runs one client, or one of several in a process, with its own connection
(`parties.federation.channel.ClientConnection`), certificate, ledger and rows. A lost connection is a dropout of the
round; the client comes back for the next round while the server is reachable. The folder holds the client's ledger of
this run: every release it was asked for, charged before the answer is sent. Another folder has another ledger, which is
charged to the table's budget again.

``FlaimClientSession`` drives a `mechanisms.flaim_client.FlaimClient`, which charges the client's own ledger before it
reads a row, and one `secagg.SecAggClient` for each sum, with a policy from the client's own config. A request beyond
that config, the session's minima or the budget is refused, and nothing is sent.

    BRIEF    -> CHOICES                 this client's choice, private by the exponential mechanism
    ROSTER   -> nothing                 in malicious mode: cards of other clients, verified
    MEMBERS  -> nothing                 in malicious mode: members of the next sum
    LAYOUT   -> nothing, or PLAIN       its vector is counted; PLAIN if grouping = "query" and too few clients chose it;
                                        OUT if the layout has no choice of this client
    secagg   -> secagg                  the session that takes the sum
    SKIPPED  -> nothing                 the round was given up

Secret: rows, vectors and keys. Public: answers are private, masked or about nobody's rows. Known limits: with noise =
"server" the server adds the noise, and clients cannot verify that it did. With run.security = "malicious" all sums are
of signed sessions, and the clients add the noise.
"""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger
from mechanisms.flaim_client import FlaimClient
from mechanisms.flaim_messages import Brief, Layout, encode_choices
from mechanisms.flaim_settings import SumNoise
from mechanisms.workload import Workload
from parties.config import CertificateFiles, Config
from parties.federation.channel import ClientConnection, until_goodbye
from parties.federation.client_session import ClientTally, SumSession
from parties.federation.flaim_parameters import (
    flaim_client_policy,
    flaim_section,
    is_malicious,
    smallest_sum,
)
from parties.federation.key_directory import OwnClientKey, session_id
from parties.federation.messages import (
    FederationMessage,
    MessageKind,
    pack_plain,
    pack_reason,
    seal_answer,
    unpack_sealed_request,
    unpack_task,
)
from parties.foundation.errors import ConfigError, FederationProtocolError
from parties.identity import tls
from parties.methods.flaim.settings import ReplacementCost, check_flaim
from parties.observability.events import Progress
from parties.session.enrollment import check_enrolled
from parties.session.study import Study
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from protocols.sealing import PUBLIC_BYTES
from secagg import ClientPolicy
from secagg.client import SecAggClient
from secagg.errors import ParameterError

_CLIQUE_BYTES = 64
"""Upper bound of a clique's bytes in a brief's model, besides its cells and its columns."""


class BriefCache:
    """Cache of a round's decoded brief for all clients of a process; they receive the same bytes."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._lock = threading.Lock()
        self._body = b""
        self._brief: Brief | None = None

    def __call__(self, body: bytes) -> Brief:
        """Returns the brief as `Brief.decode`. Raises FlaimError."""
        with self._lock:
            if self._brief is None or body != self._body:
                brief = Brief.decode(body, self._workload)
                if brief.model is not None:
                    _ = brief.totals  # Computed once, then cached for scoring.
                self._body, self._brief = body, brief
            return self._brief


class FlaimClientSession(SumSession):
    """One client's side of a run; ``over`` is true once the server has said goodbye."""

    def __init__(
        self,
        config: Config,
        workload: Workload,
        client: FlaimClient,
        ledger: Ledger,
        *,
        server: str,
        random_bytes: Callable[[int], bytes],
        decode: Callable[[bytes], Brief] | None = None,
        own: OwnClientKey | None = None,
    ) -> None:
        """Opens a session. ``ledger`` becomes the client's own; ``server`` is the server's name, for error texts.

        ``decode`` replaces `Brief.decode` if several clients share a process (``BriefCache``). ``own`` is the signed
        key, required in malicious mode and only there. Raises ValueError.
        """
        super().__init__(
            config,
            server=server,
            random_bytes=random_bytes,
            largest=_largest_brief(Study(config, workload)),
            own=own,
        )
        client.ledger = ledger
        self._workload = workload
        self._client = client
        self._ledger = ledger
        self._decode = decode or (lambda body: Brief.decode(body, workload))
        # Layout and roster of the sum in progress.
        self._current_request: tuple[Layout, list[bytes] | None] | None = None
        self._counted = 0

    def lost(self) -> None:
        """See ``SumSession.lost``."""
        super().lost()
        self._client.rejoin()

    def _answer_request(self, message: FederationMessage) -> bytes | None:
        match message.kind:
            case MessageKind.BRIEF:
                return self._choose(message)
            case MessageKind.LAYOUT:
                return self._count(message)
            case _:
                return super()._answer_request(message)

    def _choose(self, message: FederationMessage) -> bytes:
        """Scores the workload against the server's model and answers with the sealed choice."""
        self._require_idle("BRIEF")
        key, body = unpack_sealed_request(message.body, self._server)
        brief = self._decode(body)
        if brief.round != message.round:
            raise FederationProtocolError(self._server, f"sent a brief of round {brief.round}")
        chosen = self._client.choose(brief)
        answer = encode_choices(message.round, chosen)
        return seal_answer(key, MessageKind.CHOICES, message.round, answer)

    def _count(self, message: FederationMessage) -> bytes | None:
        """Counts the cells of a sum if the client's own config allows the sum's session."""
        self._require_idle("LAYOUT")
        position, asked = unpack_task(message.body, self._server)
        body = asked if position is not None else unpack_sealed_request(asked, self._server)[1]
        layout = Layout.decode(body, self._workload)
        if layout.round != message.round:
            raise FederationProtocolError(self._server, f"sent a layout of round {layout.round}")
        self._check_size(layout, plain=position is None)
        if layout.chosen and not self._client.chose_of(layout):
            # An earlier process of this client made the choice: zeros would count as this client's rows.
            self._give_up()
            return FederationMessage(MessageKind.OUT, 0, pack_reason("chose none of this")).pack()
        # Before any charge or count: the keys of this sum's members, verified by their certificates.
        own, named = self._own, None
        roster = None if own is None else own.keys(layout.clients, position or 0, self._server)
        if own is not None and roster is not None:
            named = session_id(self._config, layout.encode(), roster)
            own.once(named, self._server)
        noise = self._client.noise_of(layout)
        counts = self._client.count(layout)
        self.tally.sums += 1
        if layout.round != self._counted or not self.tally.rounds:
            self._counted, self.tally.rounds = layout.round, self.tally.rounds + 1
        if position is None:
            key, _ = unpack_sealed_request(asked, self._server)
            return seal_answer(key, MessageKind.PLAIN, message.round, pack_plain(counts))
        demanded = self._policy(layout, noise, named)
        self._current_request = layout, roster
        self._sum = SecAggClient(
            position,
            counts,
            demanded,
            identity=None if own is None else own.identity,
            roster=roster,
            random_bytes=self._random_bytes,
        )
        return None

    def freeze(self) -> dict[str, object]:
        """Returns the client's state between two messages as JSON, without its card, for ``thaw`` in another process.

        Secret: the state holds the vector and the keys of a sum in progress.
        """
        layout, roster = self._current_request or (None, None)
        return {
            "over": self.over,
            "tally": [self.tally.rounds, self.tally.sums, self.tally.given_up],
            "counted": self._counted,
            "gave_up": self._gave_up,
            "place": list(self._client.place),
            "sum": None if self._sum is None else self._sum.freeze().decode(),
            "layout": None if layout is None else layout.encode().hex(),
            "roster": None if roster is None else [key.hex() for key in roster],
        }

    def thaw(self, document: Mapping[str, Any]) -> None:
        """Restores the state of ``freeze``."""
        self.over = document["over"]
        self.tally = ClientTally(*document["tally"])
        self._counted, self._gave_up = document["counted"], document["gave_up"]
        latest, round, chosen = document["place"]
        self._client.resume((latest, round, tuple(chosen)))
        if document["sum"] is None:
            return
        layout = Layout.decode(bytes.fromhex(document["layout"]), self._workload)
        keys = document["roster"]
        roster = None if keys is None else [bytes.fromhex(key) for key in keys]
        named = None if roster is None else session_id(self._config, layout.encode(), roster)
        self._current_request = layout, roster
        self._sum = SecAggClient.thaw(
            document["sum"].encode(),
            self._policy(layout, self._client.noise_of(layout), named),
            identity=None if self._own is None else self._own.identity,
            roster=roster,
            random_bytes=self._random_bytes,
        )

    def _policy(self, layout: Layout, noise: SumNoise, named: bytes | None) -> ClientPolicy:
        try:
            return flaim_client_policy(
                Study(self._config, self._workload), layout, noise, session_id=named
            )
        except ParameterError as error:
            raise FederationProtocolError(
                self._server, f"asks for a sum that no session can take: {error}"
            ) from error

    def _check_size(self, layout: Layout, *, plain: bool) -> None:
        section = flaim_section(self._config)
        least = smallest_sum(section, one_way=layout.one_way)
        if layout.clients > self._clients:
            raise FederationProtocolError(
                self._server,
                f"asks for a sum over {layout.clients} clients; expected at most {self._clients}",
            )
        alone = section.grouping == "query" and not layout.one_way
        if plain and not (alone and layout.clients < least):
            raise FederationProtocolError(
                self._server, "asks for counts without SecAgg; this run's config does not allow it"
            )
        if not plain and layout.clients < least:
            raise FederationProtocolError(
                self._server,
                f"asks for a sum over {layout.clients} clients; expected at least {least}",
            )


def _largest_brief(study: Study) -> int:
    """Maximum size of a BRIEF in bytes: a model within the size limit, and a mask of the candidates.

    ``run.max_model_mb`` counts 8-byte cells; a brief's cells have 4 bytes. The initial model is of one-way marginals.
    """
    columns = len(study.workload.domain.columns)
    cells = int(study.config.run.max_model_mb * 1e6 / 8) + 2 * sum(study.workload.domain.shape)
    return (
        1024
        + PUBLIC_BYTES
        + 4 * cells
        + columns * (_CLIQUE_BYTES + 2 * columns)
        + len(study.workload.candidates)
    )


@dataclass(slots=True)
class ClientReport:
    """A client's record of one run. Bytes are those of frames; ``rho_spent`` is the ledger's total over all processes.

    ``replaced`` is the cost of one row replaced by another, if sizes are public.
    """

    client: str
    rounds: int = 0
    sums: int = 0
    given_up: int = 0
    rho_spent: float = 0.0
    rho_total: float = 0.0
    replaced: str | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    connections: int = 0
    seconds: float = 0.0
    finished: bool = False

    def to_dict(self) -> dict[str, object]:
        """Returns the report as a JSON object."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


async def run_client(
    config: Config,
    codes: NDArray[np.int32],
    files: CertificateFiles,
    directory: Path,
    *,
    progress: Progress,
    spend: Callable[[str], object] | None = None,
    workload: Workload | None = None,
    briefs: BriefCache | None = None,
    joining: asyncio.Semaphore | None = None,
) -> ClientReport:
    """Takes part in the run of ``config`` with ``codes`` (rows, columns) until the server's goodbye.

    Args:
        directory: Folder of the ledger.
        spend: Charges the ledger's whole budget, under the ledger's name, to the table's budget before anything is sent
            (`parties.storage.owner_budget`); without it the caller charges.
        workload, briefs: Shared by the clients of one process, to save work.
        joining: Limit of clients that open their ledgers and connect at once.

    Raises the errors of ``spend``; NotEnrolled, ConfigError, CertificateError, DataError (rows), StoreError;
    FrameTransportError if the server is unreachable or lost for good; FederationRefused, FederationProtocolError,
    SecAggError, BudgetExceeded.
    """
    section = config.require_flaim()
    name = tls.load_identity(files).name
    if name not in section.clients:
        raise ConfigError(
            config.source, "flaim.clients", f"does not have {name!r}, the name in {files.cert}"
        )
    config.check_rows(len(codes))
    workload = workload or config.build_workload()
    settings = check_flaim(Study(config, workload))
    inner = FlaimClient(codes, workload, settings, random_bytes=secrets.token_bytes)
    joining = joining or asyncio.Semaphore()
    async with joining:
        # The ledger's creation waits for the disk.
        database = await asyncio.to_thread(Database, directory, config.digest(), LEDGER)
    with database:
        ledger = DurableLedger(database, settings.rho)
        if not ledger.entries:
            # A client that has taken part before may come back at any time.
            check_enrolled(config, name)
        if spend is not None:
            await asyncio.to_thread(spend, database.identity)
        own = OwnClientKey.make(config, files) if is_malicious(config) else None
        session = FlaimClientSession(
            config,
            workload,
            inner,
            ledger,
            server=section.server,
            random_bytes=secrets.token_bytes,
            decode=briefs,
            own=own,
        )
        report = ClientReport(name, rho_total=settings.rho)
        connection = ClientConnection(
            config,
            workload.digest(),
            files,
            section.server,
            inner.declared_rows,
            b"" if own is None else own.card.pack(),
            session,
            report,
            progress,
            joining,
        )
        started = time.monotonic()
        try:
            await until_goodbye(connection)
        finally:
            report.rounds, report.sums = session.tally.rounds, session.tally.sums
            report.given_up, report.rho_spent = session.tally.given_up, ledger.spent
            report.seconds = time.monotonic() - started
            charged = [entry.event for entry in ledger.entries]
            replaced = ReplacementCost.of(section, charged, delta=config.run.delta)
            report.replaced = None if replaced is None else str(replaced)
    report.finished = True
    return report
