"""``manage.py leases``: lists leases, and releases one by force."""

import json
from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS

from django_lockstep.leases.database import DatabaseLeases
from django_lockstep.leases.models import Lease
from django_lockstep.leases.stores import find_store
from django_lockstep.stores.errors import StoreError
from django_lockstep.stores.protocol import LeaseStore
from django_lockstep.stores.terms import Holder

_COLUMNS = ("key", "owner", "token", "state", "age", "remaining")


class Command(BaseCommand):
    """Exit code 0; 1 where the lease to release is not held, 2 on wrong usage."""

    help = "Lists leases and their holders. With --release KEY --yes, releases one by force."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="include leases that are not held")
        parser.add_argument("--format", choices=["table", "json"], default="table")
        parser.add_argument("--release", metavar="KEY", help="release this lease by force")
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")
        parser.add_argument("--store", help="a store of LOCKSTEP_STORES, instead of a database")

    def handle(self, *args: object, **options: Any) -> None:
        is_database = options["store"] is None
        if options["all"] and not is_database:
            raise CommandError("--all is for databases: a store lists what is held.", returncode=2)
        try:
            store = find_store(options["store"], using=options["database"])
            if options["release"] is not None:
                self._release(store, options["release"], sure=options["yes"])
                return
            leases = Lease.objects.db_manager(options["database"])
            rows = (leases.all() if options["all"] else leases.held()).with_times()
            listing = list(map(_describe_row, rows) if is_database else map(_describe_holder, store.list()))
        except (ImproperlyConfigured, StoreError, ValueError) as error:
            raise CommandError(str(error)) from error
        if options["format"] == "json":
            self.stdout.write(json.dumps(listing, indent=2))
            return
        lines = [list(_COLUMNS)]
        for lease in listing:
            values = [lease[column] for column in _COLUMNS]
            lines.append([f"{value:.1f} s" if isinstance(value, float) else str(value) for value in values])
        widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
        for line in lines:
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def _release(self, store: LeaseStore, key: str, *, sure: bool) -> None:
        holder = store.get(key)
        if holder is None:
            raise CommandError(f"Lease {key!r} is not held.")
        if not sure:
            raise CommandError(
                f"Lease {key!r} is held by {holder.owner} (token {holder.token}), whose work may still be running. "
                "Add --yes to release it.",
                returncode=2,
            )
        if isinstance(store, DatabaseLeases):
            rows = Lease.objects.db_manager(store.name).filter(key=key, token=holder.token)
            is_released = bool(rows.force_release())
        else:
            is_released = store.release(key, holder.token)
        if not is_released:
            raise CommandError(f"Lease {key!r} was released or taken over in the meantime; nothing was changed.")
        after = store.get(key)
        if after is not None and after.under_guard:
            text = f"A transaction guards lease {key!r} (token {holder.token}): it is not free before that one ends."
            self.stderr.write(text)
        text = f"Lease {key!r} was released; it was held by {holder.owner} (token {holder.token})."
        self.stdout.write(self.style.SUCCESS(text))


def _describe_row(row: Any) -> dict[str, Any]:
    """Return the lease as plain values; durations are seconds by the database's clock."""
    if row.remaining > timedelta():
        state = "kept" if row.released_at else "held"
    else:
        state = "expired" if row.under_guard else "free"
    state += ", under guard" if row.under_guard else ""
    return _describe(row, state, row.acquired_at, row.expires_at, age=row.age, remaining=row.remaining)


def _describe_holder(holder: Holder) -> dict[str, Any]:
    """Return the same for a lease of a store; times are by the holder's clock and by this process's."""
    state, left, now = "kept" if holder.released else "held", timedelta(seconds=holder.remaining), datetime.now(UTC)
    return _describe(holder, state, holder.since, now + left, age=now - holder.since, remaining=left)


def _describe(
    lease: Any, state: str, acquired_at: datetime, expires_at: datetime, *, age: timedelta, remaining: timedelta
) -> dict[str, Any]:
    return {
        "key": lease.key,
        "owner": lease.owner,
        "token": lease.token,
        "state": state,
        "acquired_at": acquired_at.isoformat(),
        "expires_at": expires_at.isoformat(),
        "age": round(age.total_seconds(), 3),
        "remaining": max(0.0, round(remaining.total_seconds(), 3)),
        "data": lease.data,
    }
