"""Rows left behind by simulations that were killed, or run with ``--keep``, and how to know that the run is over.

A run holds an advisory lock, derived from its user's name, on its own connection, from before the user exists until all
rows are removed; its workers' sessions have the same name. A process that gets the lock and finds no such session may
remove the rows. If a pooler keeps the lock's session open, the run seems to be running, and its rows stay; if it drops
the lock, the workers' sessions still show that the run is alive.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.db import DatabaseError, connections

from accounts.models import AbstractAccount
from accounts.races.fixture import Fixture
from django_lockstep.lab.simulator.database import require_row_locks, require_tables

__all__ = ["Leftovers", "mark_running", "new_name"]

_NAME = "simulate-{}"
_PATTERN = "^" + _NAME.format("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}") + "$"
_KEY = "hashtextextended('accounts.races:' || %s, 0)"


def new_name() -> str:
    """Return a name for a run, its user and its sessions."""
    return _NAME.format(uuid.uuid4())


@contextlib.contextmanager
def mark_running(name: str, *, using: str) -> Iterator[None]:
    """Mark the run of this name as alive, for the length of a block."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_lock({_KEY})", [name])
    try:
        yield
    finally:
        _release(name, using=using)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The rows of a run that may be over."""

    fixture: Fixture
    """Its user, with the accounts."""

    @classmethod
    def found(cls, model: type[AbstractAccount], *, using: str) -> Iterator[Leftovers]:
        """Yield those of all runs in this database. Raises `SimulationError` where it is none for simulations."""
        require_row_locks(using)
        users = get_user_model()
        require_tables(using, [each._meta.app_label for each in (model, model.entry_model(), users)])
        named = users._base_manager.using(using).filter(**{f"{users.USERNAME_FIELD}__regex": _PATTERN})
        for user in named.order_by("pk"):
            if not user.has_usable_password():
                yield cls(fixture=Fixture(model=model, using=using, user=user))

    @property
    def name(self) -> str:
        return str(self.fixture.user.get_username())

    def remove(self) -> bool:
        """Remove them, unless the run is alive; return whether. Raises `PurgeError` as `Fixture.purge` does."""
        using = self.fixture.using
        with connections[using].cursor() as cursor:
            cursor.execute(f"SELECT pg_try_advisory_lock({_KEY})", [self.name])
            if not cursor.fetchone()[0]:
                return False
            try:
                # Only now: a run begins with the lock, and its workers may outlive it for a moment.
                cursor.execute(
                    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE starts_with(application_name, %s))", [self.name]
                )
                over = not cursor.fetchone()[0]
                if over:
                    self.fixture.purge()
            finally:
                _release(self.name, using=using)
        return over


def _release(name: str, *, using: str) -> None:
    # With a connection that was lost the lock is gone already.
    with contextlib.suppress(DatabaseError), connections[using].cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_unlock({_KEY})", [name])
