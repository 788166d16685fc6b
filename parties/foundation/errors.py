"""Errors of the processes. Each message names the problem, its place, and the expected state.

Messages may name files, keys, clients, parties and sizes; they never hold a row, a count or a share.

    PartyError
    +-- ConfigError             a config file, or a value in it
    +-- CertificateError        a certificate or key: missing, of the wrong authority or the wrong name
    |   +-- OutsideKeyError     a key that another program keeps: missing, half written, another one
    |   +-- CertificateNotYetValid  not valid yet, by this host's clock
    |   +-- CertificateExpired  not valid any more, by this host's clock
    +-- SealError               a sealed part of a submission that does not open
    +-- StoreError              a party's folder: full, unwritable, in use, of another run, damaged
    |   +-- SubmissionConflict  the client is stored already, with another submission
    |   +-- SubmissionCounted   the client is counted: its submission can no longer be replaced or withdrawn
    |   +-- SubmissionTombstoned  this version was withdrawn or replaced
    |   +-- RunFull             the run has as many clients as it expects
    |   +-- RunClosed           the run accepts no more submissions
    |   +-- StudyReleased       this configuration was released already, from another folder
    |   +-- StoreIncompatible   the content is damaged, of another run, or of another version
    +-- ComputeError            the cluster or GPU of a server
    +-- IngestError             a refused request to the ingest API; carries the HTTP status
    +-- SubmitError             a data owner's submission did not get through
    |   +-- SubmissionRefused   a server refused this submission
    |   |   +-- NotEnrolled     the owner is not on the list, or not now
    |   +-- WithdrawalTooLate   the rows are counted: they cannot be withdrawn or replaced
    |   +-- PartialSubmission   some servers have the submission and some do not
    +-- ResultMissing           the study is over, and has no result, or not any more
    +-- ProxyRefused            the proxy on the way to a server opens no tunnel
    +-- FrameTransportError     a connection of a federation or of SecAgg is no longer usable
    |   +-- FrameConnectError   the peer is unreachable, or did not prove its identity
    |   +-- FrameTimeout        the peer was silent beyond the deadline
    |   +-- FramePeerClosed     the peer closed or broke the connection
    |   +-- FrameTooLarge       the peer announced a message above the limit
    +-- FederationProtocolError a federation's server or participant broke the protocol
    +-- ExtraMissing            a package that is not installed
    +-- TooFewClients, Stopped, NotYet, NotAdmitted, AuditFailed, ChildFailed, FederationRefused, ServiceRefused: see
        `parties.foundation.exit_codes`
"""

from collections.abc import Mapping
from pathlib import Path


class PartyError(Exception):
    """Base of the errors of `parties`."""


class ConfigError(PartyError):
    """An unusable config; ``source`` is the file, ``key`` the dotted key ("" for the whole file)."""

    def __init__(self, source: str, key: str, message: str) -> None:
        where = f"{source}: {key}" if key else source
        super().__init__(f"{where}: {message}")
        self.source = source
        self.key = key


class CertificateError(PartyError):
    """An unusable certificate, key or authority, of this side or of the peer."""


class OutsideKeyError(CertificateError):
    """A key that another program or device keeps is not there, or is another one; its operator cures that alone."""


class CertificateNotYetValid(CertificateError):
    """A certificate's validity begins later than this host's time."""


class CertificateExpired(CertificateError):
    """A certificate's validity ended before this host's time."""


class ComputeError(PartyError):
    """A resource of [compute] is unusable, or failed."""


class SealError(PartyError):
    """A sealed box does not open with this server's key."""


class StoreError(PartyError):
    """An unusable folder of a party; ``path`` is the file or folder."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class SubmissionConflict(StoreError):
    """The same client is stored with a different submission; the first one stands."""


class SubmissionCounted(StoreError):
    """A round uses the client's rows: the release depends on them."""


class SubmissionTombstoned(StoreError):
    """The client has withdrawn or replaced this version of its submission, for good."""


class RunFull(StoreError):
    """The run has as many clients as its public bound on the rows allows."""


class RunClosed(StoreError):
    """The run has ended; a submission would never be counted."""


class StudyReleased(StoreError):
    """This configuration was released already from another folder; this folder would release it again."""


class StoreIncompatible(StoreError):
    """A folder's content is damaged, of another run, or of another version: the cure is a copy or another program."""


class IngestError(PartyError):
    """A request is refused with HTTP ``status``; the message has the problem (``what``, ``where``) and ``expected``."""

    def __init__(
        self, status: int, what: str, *, where: str, expected: str, reason: str = ""
    ) -> None:
        """``reason`` is a machine-readable word for refusals that programs handle."""
        super().__init__(f"{where}: {what}; expected {expected}")
        self.status = status
        self.reason = reason
        self.what = what
        self.where = where
        self.expected = expected


class SubmitError(PartyError):
    """A data owner's submission failed before or at the servers."""


class SubmissionRefused(SubmitError):
    """``party`` refused the submission with HTTP ``status``; a retry would not help."""

    def __init__(self, party: str, status: int, message: str) -> None:
        super().__init__(message)
        self.party = party
        self.status = status


class NotEnrolled(SubmissionRefused):
    """This owner may not participate, or not at this time; see ``parties.session.enrollment`` for the reasons."""


class ResultMissing(PartyError):
    """The study is over, as its servers say, and has no result, or not any more; another try would not help."""


class WithdrawalTooLate(SubmitError):
    """The rows are counted and the release depends on them: withdrawal and replacement are impossible."""


class PartialSubmission(SubmitError):
    """Not all three servers have the submission: ``reached`` have it, ``failures`` has the errors by party."""

    def __init__(
        self, message: str, reached: tuple[str, ...], failures: Mapping[str, Exception]
    ) -> None:
        super().__init__(message)
        self.reached = reached
        self.failures = dict(failures)


class FrameTransportError(PartyError):
    """A connection of a federation or a SecAgg round is no longer usable; ``peer`` is the other end's name."""

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(f"{peer}: {message}")
        self.peer = peer


class ProxyRefused(PartyError):
    """The proxy on the way to a server opens no tunnel; another try would not help."""


class FrameConnectError(FrameTransportError):
    """The peer is unreachable, or did not prove its identity."""


class ServerAway(FrameConnectError):
    """Nothing answers at the peer's address, or what answers does not run this study: both may change."""


class FrameTimeout(FrameTransportError):
    """The peer was silent beyond the deadline."""


class FramePeerClosed(FrameTransportError):
    """The peer closed or broke the connection."""


class FrameTooLarge(FrameTransportError):
    """The peer announced a message above the limit of this round."""


class FederationProtocolError(PartyError):
    """``peer`` sent a message that the federation's protocol does not allow; its connection is not continued."""

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(f"{peer}: {message}")
        self.peer = peer


class ExtraMissing(PartyError):
    """The package ``module``, required by ``what`` and part of an ``extra``, is not installed."""

    def __init__(self, what: str, module: str, extra: str = "server") -> None:
        without = "a data owner's installation leaves out" if extra == "server" else "is an extra"
        super().__init__(f"{what} needs {module}, which {without}: pip install 'syncret[{extra}]'")
