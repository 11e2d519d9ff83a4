"""Pessimistic locking: rows of any model, locked in primary-key order inside a transaction.

Every lock here is ``FOR NO KEY UPDATE`` unless ``no_key=False`` asks for ``FOR UPDATE``: it excludes other writers and
lockers of the row, but not inserts of rows that refer to it (PostgreSQL documentation, section 13.3.2).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypedDict, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async
from django.core.exceptions import ObjectDoesNotExist
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Manager, Model, QuerySet
from django.db.transaction import TransactionManagementError

from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.locking.fields import parents_of, primary_key, tables_of
from django_lockstep.locking.memory import dirty_attnames, seen_version
from django_lockstep.locking.shapes import compiled_rows

M = TypeVar("M", bound=Model)

_LONGEST_MS = 2**31 - 1


class LockOptions(TypedDict, total=False):
    """How to lock; see `lock_rows`."""

    no_key: bool
    of: Sequence[str] | None
    nowait: bool
    timeout: Duration | None
    using: str | None


_NO_KEY = object()


@overload
def lock_row(target: M, /, **options: Unpack[LockOptions]) -> M: ...


@overload
def lock_row(target: type[M] | QuerySet[M] | Manager[M], pk: object, **options: Unpack[LockOptions]) -> M: ...


def lock_row(target: Any, pk: object = _NO_KEY, **options: Unpack[LockOptions]) -> Any:
    """Lock one row and return its current state; options and errors are those of `lock_rows`.

    Given an instance of a versioned model instead of a model and a key, locks its row, reads it into the instance, and
    returns the instance. Raises ``ValueError`` before any SQL for an instance with unsaved changes, which reading would
    discard; ``TypeError`` for an instance of another model, which does not remember the values it was read with (use
    Django's ``refresh_from_db(from_queryset=...select_for_update())`` there).

    Does not take ``skip_locked``: ``lock_rows(..., [pk], skip_locked=True)`` returns a list that may be empty.
    """
    if not isinstance(target, Model):
        if pk is _NO_KEY:
            raise TypeError(f"lock_row() needs the primary key of a row of {target!r}")
        return lock_rows(target, [pk], **options)[0]
    if pk is not _NO_KEY:
        raise TypeError("lock_row() takes an instance, or a model and a primary key, not both")
    label = target._meta.label
    if not getattr(target, "_guards_version", False):
        raise TypeError(f"{label} is not a VersionedModel, so that unsaved changes of the instance cannot be seen")
    seen_version(target)
    if dirty := dirty_attnames(target):
        raise ValueError(f"{label} {target.pk!r} has unsaved changes of {', '.join(dirty)}: save or reload it first")
    rest: Any = options
    using = rest.pop("using", None) or router.db_for_write(type(target), instance=target)
    with locking(compiled_rows(type(target)._base_manager, using), target.pk, **rest) as rows:
        try:
            # Read by the locking query: a read before the lock could be stale, one after it would cost a round trip.
            target.refresh_from_db(using=rows.db, from_queryset=rows)
        except ObjectDoesNotExist:
            _require_all(type(target), {target.pk})
    return target


def lock_rows(
    target: type[M] | QuerySet[M] | Manager[M],
    pks: Iterable[object] | None = None,
    *,
    no_key: bool = True,
    of: Sequence[str] | None = None,
    nowait: bool = False,
    skip_locked: bool = False,
    timeout: Duration | None = None,
    using: str | None = None,
) -> list[M]:
    """Lock the rows with these primary keys, in primary-key order, until the surrounding transaction ends.

    ``target`` is a model, a manager or a query set; without keys a query set, all of whose rows are locked, but for
    those that no longer match when the lock is granted. Two callers that lock any overlapping sets of rows this way
    never deadlock with each other. ``of`` names the relations whose rows are locked as well (Django's meaning); by
    default only the model's own row is, with its parents' rows where it inherits from other tables. ``nowait`` raises
    at once where a row is locked by another transaction, ``skip_locked`` leaves such rows out, ``timeout`` bounds the
    wait for each row (for this call alone; the session and the transaction keep their own ``lock_timeout``; PostgreSQL
    only).

    Returns the instances in primary-key order. Works at every isolation level; above READ COMMITTED a row that was
    changed since the snapshot raises `SerializationFailure`.

    Raises ``TransactionManagementError`` outside a transaction, before any SQL; ``DoesNotExist`` with the keys that
    have no row (not with ``skip_locked``, which cannot tell a locked row from a missing one); ``ValueError`` for what
    cannot be a key; ``TypeError`` for a slice, and for a model without keys; `LockNotAvailable`, `DeadlockDetected`,
    `SerializationFailure`.
    """
    queryset = rows_to_write(target, using)
    if isinstance(pks, str | bytes):
        raise TypeError(f"pks must be a collection of primary keys, not the string {pks!r}")
    # Converted first: "7" and 7 are the same row, and a missing key is reported with its own type.
    keys: list[Any] | None = None if pks is None else sorted({primary_key(queryset.model, pk) for pk in pks})
    if keys is None and (not isinstance(target, QuerySet) or target.query.is_sliced):
        raise TypeError(f"lock_rows() needs the keys of the rows of {target!r}, or a query set that was not sliced")
    with locking(queryset, keys, no_key=no_key, of=of, nowait=nowait, skip_locked=skip_locked, timeout=timeout) as rows:
        if keys is not None and len(keys) == 1:
            locked = list(rows.filter(pk=keys[0]))
        else:
            # ORDER BY makes the server lock in this order; without it, two overlapping calls could deadlock.
            ordered = (rows if keys is None else rows.filter(pk__in=keys)).order_by("pk")
            # Once each: a join can find a row several times, and PostgreSQL locks no DISTINCT rows.
            locked = list({row.pk: row for row in ordered}.values())
    # With skip_locked a missing row may just be locked by another transaction.
    if keys is not None and not skip_locked:
        _require_all(queryset.model, set(keys) - {row.pk for row in locked})
    return locked


@overload
async def alock_row(target: M, /, **options: Unpack[LockOptions]) -> M: ...


@overload
async def alock_row(target: type[M] | QuerySet[M] | Manager[M], pk: object, **options: Unpack[LockOptions]) -> M: ...


async def alock_row(target: Any, pk: object = _NO_KEY, **options: Any) -> Any:
    """Do as `lock_row` does, in a coroutine that sync code awaits inside its transaction, by ``async_to_sync``."""
    lock: Callable[..., Any] = lock_row
    return await sync_to_async(lock)(target, pk, **options)


alock_rows = sync_to_async(lock_rows)
"""The async twin of `lock_rows`; as `alock_row`."""


def rows_to_write(target: type[M] | QuerySet[M] | Manager[M], using: str | None = None) -> QuerySet[M]:
    """Return a copy of the query set, or the model's rows, on the database that they are written to.

    A lock on a replica would protect nothing.
    """
    manager = target if isinstance(target, QuerySet | Manager) else target._default_manager
    rows: Any = manager.all() if isinstance(manager, QuerySet) else compiled_rows(manager)
    rows._for_write = True
    rows._db = using or rows.db
    return rows  # type: ignore[no-any-return]


@contextmanager
def locking(
    queryset: QuerySet[M],
    pk: object,
    *,
    no_key: bool = True,
    of: Sequence[str] | None = None,
    nowait: bool = False,
    skip_locked: bool = False,
    timeout: Duration | None = None,
) -> Iterator[QuerySet[M]]:
    """Yield the query set that locks what is read from it inside the block; arguments are those of `lock_rows`.

    It is one of `rows_to_write`.
    """
    model, using = queryset.model, queryset.db
    # Checked before any SQL: in autocommit the lock would end with its own statement.
    require_transaction(connections[using], model)
    options = row_lock(model, using=using, no_key=no_key, of=of, nowait=nowait)
    never_waits = nowait or skip_locked
    bounded = nullcontext() if timeout is None else lock_timeout(timeout, using=using, never_waits=never_waits)
    with translated_errors(model=model, pk=pk), bounded:
        yield queryset.select_for_update(skip_locked=skip_locked, **options)


def require_transaction(connection: BaseDatabaseWrapper, model: type[Model]) -> None:
    """Raise ``TransactionManagementError`` unless a transaction is open on the database of the lock."""
    if connection.in_atomic_block:
        return
    # The common mistake with several databases is atomic() on the default one, so the error names it.
    elsewhere = [database.alias for database in connections.all(initialized_only=True) if database.in_atomic_block]
    hint = f" atomic() is open on {', '.join(map(repr, elsewhere))} only." if elsewhere else ""
    raise TransactionManagementError(
        f"Locking rows of {model._meta.label} needs a transaction on database {connection.alias!r}: "
        f"call it inside transaction.atomic(using={connection.alias!r}).{hint}"
    )


def row_lock(
    model: type[Model], *, using: str, no_key: bool = True, of: Sequence[str] | None = None, nowait: bool = False
) -> dict[str, Any]:
    """Return the options of ``select_for_update`` that lock the model's own rows and no joined rows.

    ``FOR NO KEY UPDATE``, or ``FOR UPDATE`` with ``no_key=False``, ``OF`` the tables that a row is in. Where the
    database lacks an option, the lock is the stronger one without it.
    """
    features, own = connections[using].features, _own_tables(model)
    return {
        "no_key": no_key and features.has_select_for_no_key_update,
        "of": tuple(of or own) if features.has_select_for_update_of and own else (),
        "nowait": nowait,
    }


@functools.cache
def _own_tables(model: type[Model]) -> tuple[str, ...]:
    """Return what OF takes for the tables that an object's rows are in; none if it cannot name them."""
    # OF takes no table with a schema, which a db_table can contain: 'schema"."table'.
    if any('"."' in table._meta.db_table for table in tables_of(model)):
        return ()
    # The server locks them in this order, in which save() also writes them: the other way round the two would deadlock.
    return (*_parent_links(model), "self")


def _parent_links(model: type[Model], *, prefix: str = "") -> Iterator[str]:
    for parent, link in parents_of(model).items():
        if link is not None:
            yield from _parent_links(parent, prefix=f"{prefix}{link.name}__")
            yield prefix + link.name


@contextmanager
def lock_timeout(timeout: Duration | None, *, using: str | None = None, never_waits: bool = False) -> Iterator[None]:
    """Bound every lock wait in the block to ``timeout`` (timedelta or seconds); None leaves the session's own limit.

    For a block inside a transaction; the previous ``lock_timeout`` is restored at its end, or by the rollback of a
    block that fails. Raises ``ValueError`` before any SQL for a timeout of a lock that ``never_waits``,
    ``NotSupportedError`` on other databases than PostgreSQL.
    """
    if timeout is None:
        yield
        return
    connection = connections[using or DEFAULT_DB_ALIAS]
    if never_waits:
        raise ValueError("timeout cannot be combined with nowait or skip_locked, which never wait")
    if connection.vendor != "postgresql":
        raise NotSupportedError(f"timeout needs PostgreSQL's lock_timeout; {connection.vendor} has none")
    # Rounded up, because lock_timeout = 0 means no limit.
    limit = min(math.ceil(seconds(timeout, name="timeout") * 1000), _LONGEST_MS)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)", [f"{limit}ms"])
        # SET LOCAL semantics (the last argument true): a connection pool never sees this value.
        before = cursor.fetchone()[0]
        yield
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])


def _require_all(model: type[Model], missing: set[Any]) -> None:
    if missing:
        keys = ", ".join(map(repr, sorted(missing)))
        raise model.DoesNotExist(f"{model._meta.label} {keys} does not exist")  # type: ignore[attr-defined]
