"""Errors of the mechanisms.

One tree, so that a caller can catch what it can act on:

    MechanismError
    |-- DomainError       the public description of the columns is wrong
    |-- DataError         a table does not fit its domain, or cannot be read
    |-- WorkloadError     the queries do not fit the domain
    |-- BudgetExceeded    a release would cost more privacy than is left
    |-- FinishedEarly     those who run it end it before a further round
    |-- EstimationError   no model can be fitted to the measurements
    |-- FlaimError        a message of FLAIM, or what a client holds, does not fit the run
    |-- RequestRefused    a silo does not answer what the server asks
    `-- RoundLost         a round has too few participants left; nothing of its sums was opened

Every message says what is wrong, where, and what would be right. Only ``DataError`` may hold a
value of the table (one, truncated): it is raised where the owner of the table runs and nowhere
else. Misuse by the caller is ``ValueError``.
"""

from __future__ import annotations


class MechanismError(Exception):
    """Anything the mechanisms refuse to do."""


class DomainError(MechanismError):
    """The public description of the columns is wrong."""


class DataError(MechanismError):
    """A table cannot be read, or does not fit its domain."""


class WorkloadError(MechanismError):
    """The queries do not fit the domain."""


class BudgetExceeded(MechanismError):
    """A release would cost more privacy than is left; nothing was released."""


class FinishedEarly(MechanismError):
    """Those who run it have asked to end with the rounds that are done; nothing of a further one has begun."""


class EstimationError(MechanismError):
    """No model can be fitted to the measurements."""


class FlaimError(MechanismError):
    """A message of FLAIM is malformed, or what a client holds does not fit the run."""


class RequestRefused(MechanismError):
    """What the server asks of a silo, or tells it, is not what the silo's own settings say."""


class RoundLost(MechanismError):
    """Too few participants of a round are left: nothing of its sums was opened."""
