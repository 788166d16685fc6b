"""Errors of secure aggregation. Messages name clients, stages and sizes, never keys, shares or values.

SecAggError
+-- ParameterError            no such graph, ring or session is possible, or it is below what is asked for
+-- ValueOutOfRange           a client's own vector does not fit what it declared (also a ValueError)
+-- ProtocolViolation         a peer sent what the protocol does not allow; ``peer`` and ``stage`` say who and when
|   +-- MalformedMessage      truncated, damaged, too long, leftovers, not canonical
|   +-- ForeignMessage        of another session, from or for someone else
|   +-- UnexpectedMessage     a message of another stage
|   |   +-- DuplicateMessage  the stage has this peer's message already; the first one stands
|   |   +-- LateMessage       the stage is over
|   +-- ParametersRefused     parameters below the client's own minima
|   +-- BadSignature          a key or a survivor list is not signed by the identity it names
|   +-- DecryptionFailed      a neighbour's encrypted shares do not open
|   +-- InconsistentSurvivors survivors that never took part, or not the list the neighbours signed
|   +-- SecondRequest         a second survivor list after the first one was answered
|       +-- BothSecretsRequest  ... which asks for the other secret of some neighbour
+-- RoundAborted              the round ends for this side without a sum
    +-- TooFewNeighbours      fewer neighbours than the threshold: the own secrets could not be recovered
    +-- TooFewSurvivors       fewer than the agreed minimum
    +-- TooFewShares          somebody's secret cannot be recovered
    +-- ReconstructionFailed  shares that do not fit what their owner committed to
    +-- SumOutOfRange         a sum no honest vectors can have
    +-- PeerAborted           the other side gave up
"""


class SecAggError(Exception):
    """Base class of the errors of `secagg`."""


class ParameterError(SecAggError):
    """Parameters that no round can have; the message names them and the expected ones."""


class ValueOutOfRange(SecAggError, ValueError):
    """The client's own vector is of another length or type, or leaves its declared range."""


class ProtocolViolation(SecAggError):
    """``peer`` (None for the server) sent something illegal at ``stage``."""

    def __init__(self, message: str, peer: int | None = None, stage: str = "") -> None:
        super().__init__(message)
        self.peer = peer
        self.stage = stage


class MalformedMessage(ProtocolViolation):
    """Not a message of this version, or not all of one, or more than one."""


class ForeignMessage(ProtocolViolation):
    """A message of another session, or whose sender is not the one it came from."""


class UnexpectedMessage(ProtocolViolation):
    """A message that has no place in the present stage."""


class DuplicateMessage(UnexpectedMessage):
    """The peer's message of this stage is there already; it stands."""


class LateMessage(UnexpectedMessage):
    """The stage is over, and the client counts as dropped out."""


class ParametersRefused(ProtocolViolation):
    """The server asks for a round that the client's own policy does not allow."""


class BadSignature(ProtocolViolation):
    """Signed by somebody else, for another session, or not at all."""


class DecryptionFailed(ProtocolViolation):
    """Shares encrypted under another key, or damaged on the way."""


class InconsistentSurvivors(ProtocolViolation):
    """The survivor list contradicts what this client or its neighbours saw."""


class SecondRequest(ProtocolViolation):
    """Shares are revealed once."""


class BothSecretsRequest(SecondRequest):
    """Seed and key of one neighbour together would unmask its vector."""


class RoundAborted(SecAggError):
    """There is no sum; nothing was revealed beyond what the stages before had shown."""


class TooFewNeighbours(RoundAborted):
    """Not enough neighbours are left to recover this client's secrets."""


class TooFewSurvivors(RoundAborted):
    """Fewer clients than the session's minimum."""


class TooFewShares(RoundAborted):
    """A secret has fewer shares than the threshold."""


class ReconstructionFailed(RoundAborted):
    """No set of the shares at hand gives the secret its owner committed to."""


class SumOutOfRange(RoundAborted):
    """The sum is outside the range of the survivors' declared ranges: some client did not follow the protocol."""


class PeerAborted(RoundAborted):
    """The other side ended the round and gave a reason."""
