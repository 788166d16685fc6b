"""Errors of the mechanisms.

One tree, so that a caller can catch the errors that it can handle:

    MechanismError
    |-- DomainError       the public description of the columns is wrong
    |-- DataError         a table does not fit its domain, or cannot be read
    |-- WorkloadError     the queries do not fit the domain
    |-- BudgetExceeded    a release would cost more privacy than is left
    |-- FinishedEarly     the operators end the run before a further round
    |-- EstimationError   no model can be fitted to the measurements
    |-- FlaimError        a message of FLAIM, or a client's table, does not fit the run
    |-- RequestRefused    a silo refuses a request of the server
    `-- RoundLost         a round has too few participants left; nothing of its sums was opened

Every message says what is wrong, where, and what would be right. Only ``DataError`` may hold a value of the table (one,
truncated): it is raised only on the machine of the table's owner. Misuse by the caller is ``ValueError``.
"""

from __future__ import annotations


class MechanismError(Exception):
    """Base class of all errors of the mechanisms."""


class DomainError(MechanismError):
    """The public description of the columns is wrong."""


class DataError(MechanismError):
    """A table cannot be read, or does not fit its domain."""


class WorkloadError(MechanismError):
    """The queries do not fit the domain."""


class BudgetExceeded(MechanismError):
    """A release would cost more privacy than is left; nothing was released."""


class FinishedEarly(MechanismError):
    """The operators have asked to end the run with the rounds done; nothing of a further round has begun."""


class ConditionError(MechanismError):
    """A condition or a question cannot be read, does not fit the columns, or is satisfied by no row of the model."""


class EstimationError(MechanismError):
    """No model can be fitted to the measurements."""


class FlaimError(MechanismError):
    """A message of FLAIM is malformed, or a client's table does not fit the run."""


class RequestRefused(MechanismError):
    """A request or statement of the server contradicts the silo's own settings."""


class RoundLost(MechanismError):
    """Too few participants of a round are left: nothing of its sums was opened."""
