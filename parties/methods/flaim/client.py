"""A client of FLAIM: its state machine, without I/O and without a clock; ``flaim_participation`` is its part in a run.

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

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger
from mechanisms.flaim_client import FlaimClient
from mechanisms.flaim_messages import Brief, Layout, encode_choices
from mechanisms.flaim_settings import SumNoise
from mechanisms.workload import Workload
from parties.config import Config
from parties.federation.algorithm import SiloContext
from parties.federation.client import Participation
from parties.federation.client_session import ClientTally, SumSession
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
from parties.foundation.errors import FederationProtocolError
from parties.methods.flaim.settings import (
    ORACLE,
    ReplacementCost,
    check_flaim,
    flaim_release,
    flaim_section,
    flaim_sum,
    neighbours_text,
    smallest_sum,
)
from parties.report.privacy_text import NOT_PRIVATE_TEXT
from parties.session.study import Study
from protocols.sealing import PUBLIC_BYTES
from secagg import ClientPolicy
from secagg.client import SecAggClient

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
        roster, named = self._next_sum(layout.clients, position or 0, layout.encode())
        noise = self._client.noise_of(layout)
        policy = None if position is None else self._layout_policy(layout, noise, named)
        counts = self._client.count(layout)
        if layout.round != self._counted or not self.tally.rounds:
            self._counted, self.tally.rounds = layout.round, self.tally.rounds + 1
        if position is None or policy is None:
            self.tally.sums += 1
            key, _ = unpack_sealed_request(asked, self._server)
            return seal_answer(key, MessageKind.PLAIN, message.round, pack_plain(counts))
        self._current_request = layout, roster
        self._start_sum(position, counts, policy, roster=roster)
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
            self._layout_policy(layout, self._client.noise_of(layout), named),
            identity=None if self._own is None else self._own.identity,
            roster=roster,
            random_bytes=self._random_bytes,
        )

    def _layout_policy(self, layout: Layout, noise: SumNoise, named: bytes | None) -> ClientPolicy:
        study = Study(self._config, self._workload)
        return self._policy(lambda: flaim_sum(study, layout, noise), named)

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


def flaim_participation(
    config: Config,
    codes: NDArray[np.int32],
    workload: Workload | None = None,
    briefs: BriefCache | None = None,
) -> Participation[FlaimClientSession]:
    """Returns the participation of a client with ``codes`` (rows, columns). Raises ConfigError, DataError.

    ``workload`` and ``briefs`` are shared by the clients of one process, to save work.
    """
    section = config.require_flaim()
    config.check_rows(len(codes))
    workload = workload or config.build_workload()
    settings = check_flaim(Study(config, workload))
    client = FlaimClient(codes, workload, settings, random_bytes=secrets.token_bytes)

    def session(
        context: SiloContext, ledger: Ledger, own: OwnClientKey | None
    ) -> FlaimClientSession:
        return FlaimClientSession(
            config,
            workload,
            client,
            ledger,
            server=section.server,
            random_bytes=secrets.token_bytes,
            decode=briefs,
            own=own,
        )

    def replaced_by(ledger: Ledger) -> ReplacementCost | None:
        charged = [entry.event for entry in ledger.entries]
        return ReplacementCost.of(section, charged, delta=config.run.delta)

    def facts(tally: ClientTally, ledger: Ledger) -> Mapping[str, object]:
        replaced = replaced_by(ledger)
        return {"rounds": tally.rounds, "replaced": None if replaced is None else str(replaced)}

    def guarantee(ledger: Ledger) -> Sequence[str]:
        run, replaced = config.run, replaced_by(ledger)
        sentence = f"epsilon = {run.epsilon:g}, delta = {run.delta:g} in all, for {neighbours_text(config)}"
        if section.variant == ORACLE:
            sentence = NOT_PRIVATE_TEXT
        return [sentence, *([] if replaced is None else [str(replaced)])]

    return Participation(
        digest=workload.digest(),
        release=flaim_release(config),
        rho=settings.rho,
        session=session,
        facts=facts,
        guarantee=guarantee,
        declared_rows=client.declared_rows,
    )
