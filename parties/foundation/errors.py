"""Errors of the processes. Each message says what is wrong, where, and what would be right.

Messages may name files, keys, clients, parties and sizes; they never hold a row, a count or a share.

    PartyError
    +-- ConfigError             a config file, or a value in it
    +-- CertificateError        a certificate or key: missing, of the wrong authority or the wrong name
    |   +-- CertificateTooEarly not valid yet, by this host's clock
    |   +-- CertificateExpired  not valid any more, by this host's clock
    +-- SealError               a sealed part of a submission that does not open
    +-- StoreError              a party's folder: full, unwritable, in use, of another run, damaged
    |   +-- SubmissionConflict  the client is stored already, with another submission
    |   +-- SubmissionCounted   the client is counted: nothing of it can be replaced or withdrawn any more
    |   +-- SubmissionSettled   this version was withdrawn, or another one has taken its place
    |   +-- RunFull             as many clients as the run expects are stored already
    |   +-- RunClosed           the run takes no submissions any more
    |   +-- StudyReleased       this configuration was released already, from another folder
    |   +-- StoreUnfit          what is there is damaged, of another run, or of another version
    +-- ComputeError            the cluster or GPU that a server counts on
    +-- IngestError             a request to the ingest API that is refused; carries the HTTP status
    +-- SubmitError             a data owner's submission did not get through
    |   +-- SubmissionRefused   a server answered that it does not take this submission
    |   |   +-- NotEnrolled     the owner is not on the list, or not now
    |   +-- TooLate             the rows are counted: they cannot be withdrawn or replaced
    |   +-- PartialSubmission   some servers have the submission and some do not
    +-- RoundTransportError     FLAIM's or SecAgg's connection is of no use any more
    |   +-- RoundConnectError   the other end cannot be reached, or did not prove who it is
    |   +-- RoundTimeout        the other end was silent beyond the deadline
    |   +-- RoundPeerClosed     the other end closed or broke the connection
    |   +-- FrameTooLarge       the other end announced a message larger than any that is due
    +-- FlaimProtocolError      FLAIM's server or one of its clients sent what it may not
    +-- ExtraMissing            a package that a data owner's installation leaves out
    +-- TooFewClients, Stopped, AuditFailed, ChildFailed, FlaimRefused: see `parties.foundation.exit_codes`
"""

from collections.abc import Mapping
from pathlib import Path


class PartyError(Exception):
    """Base of the errors of `parties`."""


class ConfigError(PartyError):
    """A config that cannot be used; ``source`` is the file, ``key`` the dotted key ("" for the whole file)."""

    def __init__(self, source: str, key: str, message: str) -> None:
        where = f"{source}: {key}" if key else source
        super().__init__(f"{where}: {message}")
        self.source = source
        self.key = key


class CertificateError(PartyError):
    """A certificate, key or authority that cannot be used, of this side or of the peer."""


class CertificateNotYetValid(CertificateError):
    """A certificate is valid only from a later moment than this host's clock shows."""


class CertificateExpired(CertificateError):
    """A certificate was valid until an earlier moment than this host's clock shows."""


class ComputeError(PartyError):
    """What [compute] names cannot be used, or failed."""


class SealError(PartyError):
    """A sealed box does not open with this server's key."""


class StoreError(PartyError):
    """A party's folder cannot be used; ``path`` is the file or folder."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class SubmissionConflict(StoreError):
    """The same client is stored with a different submission; the first one stands."""


class SubmissionCounted(StoreError):
    """The client's rows are in what a round uses: what is released depends on them."""


class SubmissionTombstoned(StoreError):
    """The client has withdrawn this version of its submission, or replaced it: it does not come back."""


class RunFull(StoreError):
    """The run has as many clients as its public bound on the rows allows."""


class RunClosed(StoreError):
    """The run has ended; submissions would never be counted."""


class StudyReleased(StoreError):
    """This configuration was released already, from another folder; from this one it would be released again."""


class StoreIncompatible(StoreError):
    """What a folder holds is damaged, of another run, or of another version: a copy or another program cures it."""


class IngestError(PartyError):
    """A request is refused with HTTP ``status``: ``what`` is wrong, ``where``, what is ``expected``."""

    def __init__(
        self, status: int, what: str, *, where: str, expected: str, reason: str = ""
    ) -> None:
        """``reason`` is for programs, of a refusal that they act on."""
        super().__init__(f"{where}: {what}; expected {expected}")
        self.status = status
        self.reason = reason
        self.what = what
        self.where = where
        self.expected = expected


class SubmitError(PartyError):
    """A data owner's submission failed before or at the servers."""


class SubmissionRefused(SubmitError):
    """``party`` refused the submission with HTTP ``status``; sending it again would not help."""

    def __init__(self, party: str, status: int, message: str) -> None:
        super().__init__(message)
        self.party = party
        self.status = status


class NotEnrolled(SubmissionRefused):
    """This owner may not take part, or not at this time: ``parties.session.enrollment`` has the reasons."""


class WithdrawalTooLate(SubmitError):
    """The rows are counted, and what is released depends on them: nothing can be taken back."""


class PartialSubmission(SubmitError):
    """Not all three servers have the submission: ``reached`` have it, ``failures`` says why by party."""

    def __init__(
        self, message: str, reached: tuple[str, ...], failures: Mapping[str, Exception]
    ) -> None:
        super().__init__(message)
        self.reached = reached
        self.failures = dict(failures)


class FrameTransportError(PartyError):
    """A SecAgg round's connection cannot be used any more; ``peer`` is who was at the other end."""

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(f"{peer}: {message}")
        self.peer = peer


class FrameConnectError(FrameTransportError):
    """The other end cannot be reached, or did not prove who it is."""


class FrameTimeout(FrameTransportError):
    """The other end was silent beyond the deadline."""


class FramePeerClosed(FrameTransportError):
    """The other end closed or broke the connection."""


class FrameTooLarge(FrameTransportError):
    """The other end announced a message larger than any of this round."""


class FederationProtocolError(PartyError):
    """``peer`` sent something that FLAIM's protocol does not allow; it is not dealt with any further."""

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(f"{peer}: {message}")
        self.peer = peer


class ExtraMissing(PartyError):
    """``what`` needs the package ``module``, which is in an ``extra`` and not installed."""

    def __init__(self, what: str, module: str, extra: str = "server") -> None:
        without = "a data owner's installation leaves out" if extra == "server" else "is an extra"
        super().__init__(f"{what} needs {module}, which {without}: pip install 'syncret[{extra}]'")
