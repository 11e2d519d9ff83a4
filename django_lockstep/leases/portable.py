"""Leases by conditional UPDATEs of Django's ORM, for databases other than PostgreSQL.

Acquire, refresh and release are as safe there: each write names the token that it replaces or belongs to. A lease guard
is not possible: these databases have no lock that stops a takeover and lets a heartbeat pass.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, NotSupportedError, models
from django.db.models import Case, F, Max, Value, When
from django.db.models.functions import Coalesce, Now

from django_lockstep.leases.database import DatabaseLeases, holder_of, on_own_connection, own_grant
from django_lockstep.locking.durations import Duration
from django_lockstep.stores.protocol import CALL_TIMEOUT
from django_lockstep.stores.terms import Claim, Grant, Holder, valid_token


class PortableLeases(DatabaseLeases):
    """The store on one database; each operation raises Django's database errors. Statements have no time limit here."""

    def take_here(self, claim: Claim, *, yields_to_queue: bool = False) -> Grant | Holder | None:
        requested_at = time.monotonic()
        row = self._leases().filter(key=claim.key).with_times().first()
        if row is not None and row.remaining > timedelta():
            return own_grant(claim, holder_of(row), requested_at=requested_at)
        token = self._insert(claim) if row is None else self._replace(claim, before=row.token)
        if token is None:
            return None
        # Read back, because the database's clock has set the time.
        since, data = self._rows(claim.key).values_list("acquired_at", "data").get()
        return Grant(token=token, since=since, requested_at=requested_at, data=json.dumps(data))

    @on_own_connection
    def renew(self, key: str, token: int, *, ttl: float, timeout: float = CALL_TIMEOUT) -> bool:
        later = _in(ttl)
        longer = Case(When(expires_at__lt=later, then=later), default=F("expires_at"))
        return bool(self._rows(key, valid_token(token)).update(expires_at=longer))

    @on_own_connection
    def note(self, key: str, token: int, *, data: str, timeout: float = CALL_TIMEOUT) -> bool:
        return bool(self._rows(key, token).update(data=Value(json.loads(data), models.JSONField())))

    @on_own_connection
    def release(
        self, key: str, token: int, *, at_least: float = 0.0, held: float = 0.0, timeout: float = CALL_TIMEOUT
    ) -> bool:
        kept = models.ExpressionWrapper(F("acquired_at") + timedelta(seconds=at_least), models.DateTimeField())
        until = Case(When(acquired_at__gt=_in(-at_least), then=kept), default=Now())
        return bool(self._rows(key, token).update(released_at=Now(), expires_at=until))

    def guard(self, key: str, token: int, *, within: Duration | None = None) -> None:
        raise NotSupportedError(
            f"A guard needs PostgreSQL: {self.connection.vendor} cannot keep lease {key!r} from being taken "
            "over until a transaction ends. Write with update_if_token() instead, which refuses lower tokens."
        )

    def _rows(self, key: str, token: int | None = None) -> models.QuerySet[Any]:
        rows: models.QuerySet[Any] = self._leases().filter(key=key)
        return rows if token is None else rows.filter(token=token, released_at=None)

    def _next_token(self) -> int:
        # Purging keeps the row with the highest token, so that no token is used twice.
        highest: int = self._leases().aggregate(highest=Coalesce(Max("token"), 0))["highest"]
        return highest + 1

    def _insert(self, claim: Claim) -> int | None:
        """Return the token of a lease whose key has no row; None where another process was faster."""
        token = self._next_token()
        try:
            # The unique constraint on the key decides between two first claims.
            self._leases().create(key=claim.key, **_values(claim, token))
        except IntegrityError:
            return None
        # If this process stood still before the INSERT, the key may have been held with this very token, and purged.
        later = self._next_token()
        if later == token + 1:
            return token
        return later if self._rows(claim.key, token).update(token=later) else None

    def _replace(self, claim: Claim, *, before: int) -> int | None:
        """Return the token of a lease that takes the place of one that is over; None where another was faster."""
        token = self._next_token()
        # The token of the expired lease is in the WHERE: of two claims that read the same row only one matches.
        free = self._rows(claim.key).filter(token=before, expires_at__lte=Now())
        return token if free.update(released_at=None, **_values(claim, token)) else None


def _values(claim: Claim, token: int) -> dict[str, Any]:
    data = {} if claim.data is None else {"data": Value(json.loads(claim.data), models.JSONField())}
    return {
        **data,
        "token": token,
        "owner": claim.owner,
        "ttl": claim.ttl,
        "acquired_at": Now(),
        "expires_at": _in(claim.ttl),
    }


def _in(seconds: float) -> models.ExpressionWrapper[Any]:
    return models.ExpressionWrapper(Now() + timedelta(seconds=seconds), models.DateTimeField())
