"""Work that is done once for a key: the key, the work and its result are one transaction."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ParamSpec

from asgiref.sync import iscoroutinefunction
from django.core.serializers.json import DjangoJSONEncoder
from django.db import IntegrityError, connections, models, router, transaction
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from django_lockstep.errors import LockNotAvailable, translated_errors
from django_lockstep.idempotency.errors import KeyInUse, KeyReused
from django_lockstep.idempotency.models import IdempotencyKey
from django_lockstep.locking.decorating import refuse_generator
from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.locking.fields import is_storable
from django_lockstep.locking.rows import lock_timeout

P = ParamSpec("P")


@dataclass
class Once:
    """One use of a key."""

    replayed: bool = False
    """Whether the work was done before, and ``result`` is what it returned then."""
    result: Any = None
    """What the work returns, to be set by the block: JSON, as a repetition gets it (a ``Decimal`` becomes a string)."""


class idempotent(AbstractContextManager[Once]):  # noqa: N801 - used as a function is
    """Do the work of a block, or of the function that this decorates, once for a key.

    ::

        with idempotent(key, scope="orders", content=data) as once:
            if not once.replayed:
                once.result = place_order(data)

    Opens a transaction, or joins the caller's. Key, work and result are committed together: after a crash at any moment
    all of them are there, or none. A second call gets the first one's result; one that comes while the first is at work
    raises `KeyInUse`, or waits for it up to ``wait`` (timedelta or seconds; PostgreSQL only). An error undoes the work
    and leaves the key unused. Calls with the same key and other ``content`` (JSON, model instances) raise `KeyReused`.

    ``scope`` keeps apart the keys of different users and of different work. The result is kept ``within`` this time (by
    the database's clock) and then the key is new; ``manage.py purge_idempotency_keys`` deletes old rows. ``using`` is
    the database, which must be that of the work. As a decorator, ``key``, ``scope`` and ``content`` may be functions of
    the arguments, and the content is the arguments unless it is given.

    Raises ``ValueError`` for a key or scope that is empty or longer than 200 characters, ``TypeError`` for a result or
    content that is not JSON: the work is then undone. Any isolation level; above READ COMMITTED a call that began
    before the first one's end raises `KeyInUse` or `SerializationFailure`. On other databases than PostgreSQL two calls
    at the same moment both do the work, and the later one is rolled back and raises `KeyInUse`.
    """

    def __init__(
        self,
        key: str | Callable[..., str],
        *,
        scope: str | Callable[..., str],
        within: Duration = timedelta(days=1),
        content: Any = None,
        wait: Duration | None = None,
        using: str | None = None,
    ) -> None:
        self._key, self._scope, self._content = key, scope, content
        self._options: Any = {
            "within": timedelta(seconds=seconds(within, name="within")),
            "wait": None if wait is None else seconds(wait, name="wait"),
            "using": using,
        }

    def __enter__(self) -> Once:
        self._entered = _use(self._key, self._scope, content=self._content, **self._options)
        return self._entered.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._entered.__exit__(*error)

    def __call__(self, function: Callable[P, Any]) -> Callable[P, Any]:
        """Return a function that does its work once for a key. Raises ``TypeError`` for coroutines and generators."""
        refuse_generator(function, decorator="idempotent")
        if iscoroutinefunction(function):
            raise TypeError(
                f"@idempotent cannot decorate the coroutine function {function.__qualname__}(): transactions are "
                "synchronous; decorate a function that is called by sync_to_async()"
            )
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            key, scope, content = (
                value(*args, **kwargs) if callable(value) else value
                for value in (self._key, self._scope, self._content)
            )
            if self._content is None:
                content = signature.bind(*args, **kwargs).arguments
            with _use(key, scope, content=content, **self._options) as once:
                if not once.replayed:
                    once.result = function(*args, **kwargs)
            return once.result

        return call


@contextmanager
def _use(
    key: Any, scope: Any, *, content: Any, within: timedelta, wait: float | None, using: str | None
) -> Iterator[Once]:
    using = using or router.db_for_write(IdempotencyKey)
    names = {"scope": scope, "key": key}
    for name, value in names.items():
        if not is_name(value):
            raise ValueError(f"{name} must be a text of 1 to {_LONGEST} characters, not {value!r}")
    fingerprint = "" if content is None else hashlib.sha256(_json(content).encode()).hexdigest()
    rows = IdempotencyKey._base_manager.using(using)
    with translated_errors(), transaction.atomic(using=using):
        _lock(names, wait=wait, using=using)
        expired = Case(When(Q(expires_at__lte=Now()), then=Value(True)), default=Value(False))
        row = rows.filter(**names).annotate(is_expired=expired).first()
        if row is not None and row.is_expired:
            row.delete()
        elif row is not None:
            if fingerprint and row.fingerprint and row.fingerprint != fingerprint:
                raise KeyReused(_("The key %(key)r of %(scope)r was used with other content") % names)
            yield Once(replayed=True, result=json.loads(row.result))
            return
        once = Once()
        yield once
        # As text: jsonb would sort what a client has seen in another order.
        result = json.dumps(once.result, cls=DjangoJSONEncoder)
        once.result = json.loads(result)
        try:
            rows.create(**names, fingerprint=fingerprint, result=result, expires_at=Now() + within)
        except IntegrityError as error:
            # Without the lock, or in an older snapshot, another one was not seen.
            raise _in_use(names) from error


def _lock(names: dict[str, str], *, wait: float | None, using: str) -> None:
    """Keep others from the key until the transaction ends. Raises `KeyInUse` if one has it."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        return
    # A statement of its own, before the row is looked for: the next one's snapshot has what the holder committed.
    digest = hashlib.sha256(_json(["lockstep.idempotency", *names.values()]).encode()).digest()
    function = "pg_try_advisory_xact_lock" if wait is None else "pg_advisory_xact_lock"
    try:
        with translated_errors(), lock_timeout(wait, using=using), connection.cursor() as cursor:
            cursor.execute(f"SELECT {function}(%s)", [int.from_bytes(digest[:8], signed=True)])
            is_refused = cursor.fetchone()[0] is False
    except LockNotAvailable as error:
        raise _in_use(names) from error
    if is_refused:
        raise _in_use(names)


def _in_use(names: dict[str, str]) -> KeyInUse:
    return KeyInUse(_("The work for this key is being done."), **names)


def is_name(value: object) -> bool:
    """Whether it can be a key or a scope."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and is_storable(value)


_LONGEST = 200


class _Encoder(DjangoJSONEncoder):
    def default(self, value: Any) -> Any:
        return [value._meta.label, value.pk] if isinstance(value, models.Model) else super().default(value)


def _json(value: Any) -> str:
    return json.dumps(value, cls=_Encoder, sort_keys=True)
