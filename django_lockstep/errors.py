"""The errors of all rooms in one tree, and the one place where driver errors become these.

::

    LockstepError
    ├── ConcurrencyError               a conflict with another transaction or user
    │   ├── StaleVersionError          (also concurrency.exceptions.RecordModifiedError, where it is installed)
    │   ├── LockNotAvailable           55P03   (also django.db.OperationalError)
    │   ├── DeadlockDetected           40P01   (also django.db.OperationalError)
    │   ├── SerializationFailure       40001   (also django.db.OperationalError)
    │   ├── RetriesExhausted
    │   ├── LeaseError                 django_lockstep.leases.errors
    │   │   ├── LeaseNotAcquired       (also django.core.management.CommandError)
    │   │   ├── LeaseLost
    │   │   ├── StaleToken
    │   │   └── LeaseTimedOut          57014, 55P03   (also django.db.OperationalError)
    │   ├── EditLocked                 django_lockstep.editing.errors
    │   ├── EditLockLost
    │   ├── ReferencesChanged
    │   └── KeyInUse                   django_lockstep.idempotency.errors
    ├── RuntimeCheckFailed             raised by django_lockstep.runtime_checks
    ├── CommittedThenFailed            raised by a callback of on_commit: the transaction is committed
    ├── EditingError                   django_lockstep.editing.errors: misuse; nothing was changed
    │   ├── UnknownTable               (also LookupError)
    │   ├── UnknownRecord              (also LookupError)
    │   ├── NotTheEditor               (also django.core.exceptions.PermissionDenied)
    │   ├── WrongToken                 (also PermissionDenied)
    │   ├── TakeOverNotAllowed         (also PermissionDenied)
    │   ├── UnrelatedTarget            (also ValueError)
    │   ├── InvalidTransition          (also ValueError)
    │   └── LimitExceeded              (also ValueError)
    ├── KeyReused                      django_lockstep.idempotency.errors (also ValueError)
    ├── StoreError                     django_lockstep.stores.errors
    │   ├── StoreUnavailable           (also django.db.OperationalError)
    │   ├── StoreRefused
    │   └── TokenReused                (also ValueError)
    ├── PreconditionError              django_lockstep.http.preconditions
    │   ├── PreconditionRequired       428
    │   ├── PreconditionFailed         412
    │   └── MalformedPrecondition      400
    ├── ClusterUnavailable             django_lockstep.lab.workers.errors
    ├── ExplorerError                  django_lockstep.lab.explorer.errors
    │   ├── NotExplorable
    │   ├── NotWritable
    │   ├── ScheduleError              (also ValueError)
    │   ├── Nondeterminism
    │   │   └── Overtaken
    │   ├── Stuck
    │   │   └── TooManySteps
    │   └── WorkerDied
    ├── FinderError                    django_lockstep.lab.finder.errors
    │   └── CannotClone
    └── SimulationError                django_lockstep.lab.simulator.errors

Django raises the three lock errors as one ``OperationalError`` and leaves the difference in ``__cause__.sqlstate``
(PostgreSQL documentation, appendix A). The classes above keep the old bases, so that handlers written for Django or
for django-concurrency go on working.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from traceback import walk_tb
from typing import Any, ClassVar

from django.apps import apps
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

try:
    from concurrency.exceptions import RecordModifiedError
except ImportError:  # django-concurrency is optional
    RecordModifiedError = Exception

__all__ = [
    "STALE_ERRORS",
    "CommittedThenFailed",
    "ConcurrencyError",
    "DeadlockDetected",
    "LockNotAvailable",
    "LockstepError",
    "RetriesExhausted",
    "RuntimeCheckFailed",
    "SerializationFailure",
    "StaleVersionError",
    "is_after_commit",
    "raise_if_committed",
    "sqlstate_of",
    "translated",
    "translated_errors",
]


class LockstepError(Exception):
    """The base class of the library's errors; invalid arguments raise ``ValueError`` or ``TypeError``."""


class CommittedThenFailed(LockstepError):
    """The transaction was committed, and then a callback of ``on_commit`` failed; its error is the cause.

    Not a conflict, whatever the callback raised: running the transaction again would do its work twice.
    """


class RuntimeCheckFailed(LockstepError):
    """Code does what a runtime check reports; ``args`` are the check's name, the line of the code, and a text."""

    def __str__(self) -> str:
        return "{1}: {2} ({0})".format(*self.args)


class ConcurrencyError(LockstepError):
    """A conflict with concurrent work.

    Carries, each None where unknown: ``model`` (the class), ``pk`` (one primary key, or a list of them), ``expected``
    and ``actual`` (versions), ``sqlstate``. Without a message the first line of the class's docstring is the message.
    Survives pickling, as worker processes need.
    """

    _shown: ClassVar[tuple[str, ...]] = ("pk", "expected", "actual", "sqlstate")
    """Attributes appended to the message."""
    _carried: ClassVar[tuple[str, ...]] = ()
    """Further attributes that are pickled."""
    model: type[Model] | None = None
    pk: object = None
    expected: int | None = None
    actual: int | None = None
    sqlstate: str | None = None

    def __init__(self, message: str = "", **details: Any) -> None:
        # Not super(): the leaves' other bases have constructors with other arguments.
        Exception.__init__(self, message or (type(self).__doc__ or "").partition("\n")[0])
        if unknown := details.keys() - {"model", "target", *self._shown, *self._carried}:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        vars(self).update(details)

    def __str__(self) -> str:
        values = {"model": self.model._meta.label if self.model else None}
        values |= {name: getattr(self, name) for name in self._shown}
        details = ", ".join(f"{name}={value!r}" for name, value in values.items() if value is not None)
        return f"{self.args[0]} ({details})" if details else str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        state = {key: value for key, value in vars(self).items() if key in (*self._shown, *self._carried)}
        return _rebuild, (type(self), self.args[0], self.model._meta.label if self.model else None, state)


def _rebuild(cls: type[ConcurrencyError], message: str, label: str | None, state: dict[str, Any]) -> ConcurrencyError:
    """Rebuild an unpickled error; its model is pickled by label, because not every model class can be pickled."""
    error = cls(message)
    with suppress(LookupError):
        state |= {"model": apps.get_model(label)} if label else {}
    vars(error).update(state)
    return error


class StaleVersionError(ConcurrencyError, RecordModifiedError):  # type: ignore[misc]
    """The row was changed since it was read.

    Also a ``RecordModifiedError`` where django-concurrency is installed, for handlers of that error. ``expected`` is
    the version the writer had seen, ``actual`` the one in the database, ``action`` the attempted operation: ``"save"``,
    ``"delete"``, ``"verify"``, or None. ``target`` is the instance that could not be written, as django-concurrency's
    handlers expect; it is not pickled.
    """

    _shown = (*ConcurrencyError._shown, "action")
    action: str | None = None
    target: Model | None = None

    def __str__(self) -> str:
        if self.model is None or self.pk is None or isinstance(self.pk, list) or self.args[0] != _STALE:
            return super().__str__()
        versions = "" if None in (self.actual, self.expected) else f" (version {self.actual}, you have {self.expected})"
        refused = {"save": ": not saved", "delete": ": not deleted"}.get(self.action or "", "")
        return f"{self.model._meta.label} {self.pk} was changed since it was read{versions}{refused}."


_STALE = (StaleVersionError.__doc__ or "").partition("\n")[0]
"""The message of an error without one."""


STALE_ERRORS: tuple[type[Exception], ...] = (
    (StaleVersionError,) if RecordModifiedError is Exception else (StaleVersionError, RecordModifiedError)
)
"""Errors for a row with another version: ours, and django-concurrency's where that package is installed."""


class LockNotAvailable(ConcurrencyError, OperationalError):
    """Another transaction holds the lock: it could not be acquired at once, or within the timeout."""


class DeadlockDetected(ConcurrencyError, OperationalError):
    """The server ended this transaction to break a deadlock."""


class SerializationFailure(ConcurrencyError, OperationalError):
    """The transaction's snapshot conflicts with a concurrent commit."""


class RetriesExhausted(ConcurrencyError):
    """Every attempt met a conflict.

    ``attempts`` is their number, ``elapsed`` their duration in seconds; the last error is ``__cause__``.
    """

    _carried = ("attempts", "elapsed")
    attempts: int = 0
    elapsed: float = 0.0


_BY_CODE: dict[str, type[ConcurrencyError]] = {
    "55P03": LockNotAvailable,
    "40P01": DeadlockDetected,
    "40001": SerializationFailure,
    # MySQL's and SQLite's drivers have no SQLSTATE.
    "MySQL 1205": LockNotAvailable,  # lock wait timeout exceeded
    "MySQL 3572": LockNotAvailable,  # NOWAIT is set
    "MySQL 1213": DeadlockDetected,
    "MySQL 1020": SerializationFailure,  # record has changed since last read
    "SQLITE_BUSY": LockNotAvailable,
    "SQLITE_BUSY_SNAPSHOT": SerializationFailure,
}


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of a driver's error, or of the driver's error behind Django's; None if there is none."""
    for candidate in (error, error.__cause__):
        sqlstate = getattr(candidate, "sqlstate", None)
        if isinstance(sqlstate, str):
            return sqlstate
    return None


# Where Django calls the callbacks: after COMMIT, or at once where every statement commits by itself.
_AFTER_COMMIT = (BaseDatabaseWrapper.run_and_clear_commit_hooks.__code__, BaseDatabaseWrapper.on_commit.__code__)


def is_after_commit(error: BaseException) -> bool:
    """Whether a callback of ``on_commit`` raised the error, so that the transaction before it is committed."""
    cause: BaseException | None = error
    while cause is not None:
        if any(frame.f_code in _AFTER_COMMIT for frame, _ in walk_tb(cause.__traceback__)):
            return True
        cause = cause.__cause__
    return False


def raise_if_committed(error: Exception) -> None:
    """Raise `CommittedThenFailed` from an error that a callback of ``on_commit`` raised.

    For every handler that would run the work again, or say that nothing was saved.
    """
    if isinstance(error, CommittedThenFailed):
        raise error
    if is_after_commit(error):
        name = type(error).__name__
        raise CommittedThenFailed(f"The transaction was committed, and then {name} in on_commit(): {error}") from error


class translated_errors(AbstractContextManager[None]):  # noqa: N801 - used as a function is
    """Raise the driver's lock errors as the classes of this module; let every other error pass.

    Wrap it around ``atomic()`` to catch what COMMIT raises too. The original error is ``__cause__``.
    """

    # No generator: every lock and every save goes through this.
    def __init__(self, *, model: type[Model] | None = None, pk: object = None) -> None:
        self._model, self._pk = model, pk

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            translation = translated(error, model=self._model, pk=self._pk)
            if translation is not error:
                raise translation from error


def translated(error: Exception, *, model: type[Model] | None = None, pk: object = None) -> Exception:
    """Return the error as a class of this module where it is a lock error of the driver, otherwise as it is."""
    if isinstance(error, ConcurrencyError):
        return error
    sqlstate = sqlstate_of(error)
    code = sqlstate or str(getattr(error.__cause__, "sqlite_errorname", ""))
    if sqlstate is None and isinstance(error, OperationalError) and error.args and isinstance(error.args[0], int):
        code = f"MySQL {error.args[0]}"  # or MariaDB
    translation = _BY_CODE.get(code)
    return error if translation is None else translation(model=model, pk=pk, sqlstate=sqlstate)
