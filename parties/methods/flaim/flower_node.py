"""A client of FLAIM on Flower, for one message: loads its state, answers, and saves its state.

A SuperNode starts a process of its ClientApp for each message. The state of `parties.methods.flaim.client` is therefore
in a file of mode 0600 in the client's own folder, beside its ledger: the client's position in the run, and within a sum
its counts and keys. ``FlowerNode`` writes the file atomically before the answer leaves, and removes it after the run.
A node that charges a budget asks the server for earlier releases of its key before it greets, as every participant does
(`parties.federation.release_statements`), and enters what its budget lacks.
Secret: that file, the table. Known limits: a copy of the file reveals the client's counts during a sum; the client
trusts the server of the SuperNode's --root-certificates, and `flaim.key` is not verified.
"""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.workload import Workload
from parties.config import CertificateFiles, Config
from parties.federation.algorithm import SiloContext
from parties.federation.client import Participation, returnable_charge
from parties.federation.flower_envelope import Envelope, proof_text
from parties.federation.key_directory import OwnClientKey
from parties.federation.messages import (
    HEADER_BYTES,
    ClientGreeting,
    FederationMessage,
    MessageKind,
)
from parties.federation.participant_charge import ParticipantCharge
from parties.federation.release_question import TOLD_FILE, releases_question, told_in
from parties.federation.release_statements import MAX_TOLD_BYTES
from parties.federation.sum_parameters import is_malicious
from parties.foundation.errors import ConfigError, FederationProtocolError, StoreError
from parties.foundation.version import version
from parties.identity import tls
from parties.methods.flaim.client import BriefCache, FlaimClientSession, flaim_participation
from parties.session.enrollment import check_enrolled
from parties.storage.database import Database
from parties.storage.files import disk_errors, write_atomic
from parties.storage.owner_budget import BudgetAccount
from parties.storage.privacy_ledger import LEDGER, DurableLedger

STATE_FILE = "flower.json"


@dataclass(slots=True)
class FlowerNode:
    """The client with the table ``codes`` (rows, columns) and the certificate ``files``; ``folder`` is its own.

    ``account`` pays for the ledger's whole budget, under the ledger's name, before anything of the table is sent.
    """

    config: Config
    workload: Workload
    codes: NDArray[np.int32] = field(repr=False)
    files: CertificateFiles
    folder: Path
    account: BudgetAccount | None
    briefs: BriefCache | None = None

    def answer(self, envelope: Envelope) -> Envelope:
        """Returns this client's answer. Any error ends its part in the run.

        Raises as `parties.federation.client.run_participant`.
        """
        try:
            return self._answer(envelope)
        except BaseException:
            # The state goes, so that the sender of a bad message gets no second try with the same keys.
            with disk_errors(self.folder):
                (self.folder / STATE_FILE).unlink(missing_ok=True)
            raise

    def _answer(self, envelope: Envelope) -> Envelope:
        server, name = self.config.require_flaim().server, tls.load_identity(self.files).name
        part = flaim_participation(self.config, self.codes, self.workload, self.briefs)
        with Database(self.folder, self.config.digest(), LEDGER) as database:
            ledger = DurableLedger(database, part.rho)
            own, kept, greeted = self._load_state(fresh=bool(envelope.challenge))
            context = SiloContext(name, own.number, self.folder)
            signing = own if is_malicious(self.config) else None
            session = part.session(context, ledger, signing)
            charge = ParticipantCharge(
                self.account,
                database.identity,
                lambda: len(ledger.entries),
                returnable_charge(self.config, part),
            )
            charge.check_ledger()
            if envelope.challenge:
                if not ledger.entries:
                    # A client that has taken part before may come back at any time.
                    check_enrolled(self.config, name)
                charge.intend()
                asks = self.account is not None
                self._save_state(own, session, greeted=not asks)
                proof = own.identity.sign(proof_text(self.config.digest(), envelope.challenge))
                frame = self._greeting(own, part)
                if asks:
                    said = charge.statement(self.files)
                    frame = releases_question(said)
                return Envelope((frame,), card=own.card.pack(), proof=proof)
            if kept is None:
                raise FederationProtocolError(server, "goes on with a client that is not in a run")
            session.thaw(kept)
            if not greeted:
                try:
                    self._enter_earlier(charge, envelope, server)
                except BaseException:
                    charge.end(self.config, name, None)
                    raise
                self._save_state(own, session, greeted=True)
                return Envelope((self._greeting(own, part),))
            try:
                answers = self._answers(session, envelope, server)
            except BaseException:
                charge.end(self.config, name, session.unopened)
                raise
            for answer in answers:
                charge.before(answer)
            self._save_state(own, session, greeted=True)
            if session.over:
                charge.end(self.config, name, None)
        return Envelope(tuple(answers))

    @staticmethod
    def _answers(session: FlaimClientSession, envelope: Envelope, server: str) -> list[bytes]:
        answers = []
        for frame in envelope.frames:
            if len(frame) > session.limit:
                raise FederationProtocolError(server, f"sent a message of {len(frame)} bytes")
            if not _is_welcome(frame, server):
                answer = session.receive(frame)
                answers += [] if answer is None else [answer]
        return answers

    def _enter_earlier(self, charge: ParticipantCharge, envelope: Envelope, server: str) -> None:
        """Charges what the server tells of earlier releases and the budget lacks; a file keeps it if nobody can tell.

        Raises FederationProtocolError, FederationRefused, BudgetExceeded, StoreError.
        """
        if len(envelope.frames) != 1:
            raise FederationProtocolError(server, "answered a question with other than its answer")
        (frame,) = envelope.frames
        if len(frame) > HEADER_BYTES + MAX_TOLD_BYTES:
            raise FederationProtocolError(server, f"sent a message of {len(frame)} bytes")
        known, path = told_in(frame, self.files, server), self.folder / TOLD_FILE
        try:
            lines = charge.enter_earlier(known, server)
        except StoreError as error:
            write_atomic(path, frame[HEADER_BYTES:], secret=True)
            raise StoreError(
                error.path, f"{error.message}. Over Flower that command needs --told {path}"
            ) from error
        with disk_errors(path):
            path.unlink(missing_ok=True)
        for line in lines:
            logging.getLogger("syncret").warning("%s", line)

    def _greeting(self, own: OwnClientKey, part: Participation[FlaimClientSession]) -> bytes:
        hello = ClientGreeting(
            bytes.fromhex(self.config.digest()),
            bytes.fromhex(part.digest),
            part.declared_rows,
            version(),
            own.card.pack() if is_malicious(self.config) else b"",
        )
        return FederationMessage(MessageKind.HELLO, 0, hello.pack()).pack()

    def _load_state(self, *, fresh: bool) -> tuple[OwnClientKey, dict[str, object] | None, bool]:
        """Returns this client's card, the state of its session, and true if it has greeted.

        If ``fresh``, a new card and no state.
        """
        names = self.config.require_flaim().clients
        name = tls.load_identity(self.files).name
        if name not in names:
            what = f"does not have {name!r}, the name in {self.files.cert}"
            raise ConfigError(self.config.source, "flaim.clients", what)
        path = self.folder / STATE_FILE
        if fresh or not path.exists():
            return OwnClientKey.make(self.config, self.files), None, False
        with disk_errors(path, "read"):
            document = json.loads(path.read_bytes())
        own = OwnClientKey.thaw(self.config, self.files, document["own"])
        return own, document["session"], document["greeted"]

    def _save_state(self, own: OwnClientKey, session: FlaimClientSession, *, greeted: bool) -> None:
        path = self.folder / STATE_FILE
        if session.over:
            with disk_errors(path):
                path.unlink(missing_ok=True)
            return
        document = {"own": own.freeze(), "session": session.freeze(), "greeted": greeted}
        write_atomic(path, json.dumps(document).encode(), durable=True, secret=True)


def _is_welcome(frame: bytes, server: str) -> bool:
    """True for WELCOME, whose link key only the server needs."""
    return (
        frame[:4] != b"SAGG" and FederationMessage.unpack(frame, server).kind is MessageKind.WELCOME
    )
