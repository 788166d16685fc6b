"""Errors of secure aggregation. Messages name clients, stages and sizes, never keys, shares or values.

SecAggError
+-- ParameterError            no such graph, ring or session is possible, or it is below the required strength
+-- ValueOutOfRange           a client's own vector does not fit its declaration (also a ValueError)
+-- ProtocolViolation         a peer sent an illegal message; ``peer`` and ``stage`` name the sender and the stage
|   +-- MalformedMessage      truncated, damaged, too long, leftovers, not canonical
|   +-- ForeignMessage        of another session, or with another sender or recipient
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
    +-- TooFewShares          a client's secret cannot be recovered
    +-- ReconstructionFailed  shares that do not fit their owner's commitment
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
    """A message that is not of this version, not complete, or longer than one message."""


class ForeignMessage(ProtocolViolation):
    """A message of another session, or whose sender is not the channel's client."""


class UnexpectedMessage(ProtocolViolation):
    """A message that has no place in the present stage."""


class DuplicateMessage(UnexpectedMessage):
    """The peer's message of this stage is there already; the first one stands."""


class LateMessage(UnexpectedMessage):
    """The stage is over, and the client counts as dropped out."""


class ParametersRefused(ProtocolViolation):
    """The server asks for a round that the client's own policy does not allow."""


class BadSignature(ProtocolViolation):
    """A signature by another identity, for another session, or no signature."""


class DecryptionFailed(ProtocolViolation):
    """Shares encrypted under another key, or damaged on the way."""


class InconsistentSurvivors(ProtocolViolation):
    """The survivor list contradicts what this client or its neighbours saw."""


class SecondRequest(ProtocolViolation):
    """A second request for shares, which are revealed once."""


class BothSecretsRequest(SecondRequest):
    """A second request for a neighbour's other secret; seed and key together would unmask its vector."""


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
