"""``manage.py purge_leases``: deletes rows of leases that ended long ago."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DEFAULT_DB_ALIAS

from django_lockstep.leases.models import Lease
from django_lockstep.locking.durations import seconds

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Command(BaseCommand):
    """Delete old rows; tokens are never used again."""

    help = (
        "Deletes leases that expired or were released longer ago than --older-than. Their tokens are never used again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than", type=_duration, required=True, metavar="30d", help="age: an integer with s, m, h, d or w"
        )
        parser.add_argument("--dry-run", action="store_true", help="only count them")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")

    def handle(self, *args: object, **options: Any) -> None:
        leases = Lease.objects.db_manager(options["database"])
        if options["dry_run"]:
            self.stdout.write(f"Leases that would be deleted: {leases.ended(options['older_than']).count()}")
        else:
            self.stdout.write(f"Leases deleted: {leases.purge(options['older_than'])}")


def _duration(text: str) -> timedelta:
    """Return a duration greater than zero, and of at most a century: an integer with s, m, h, d or w."""
    match = re.fullmatch(r"(\d+)([smhdw])", text)
    if match is None or int(match[1]) == 0:
        raise ArgumentTypeError(f"{text!r}: must be a duration such as 90s, 15m, 12h, 30d or 4w")
    try:
        return timedelta(seconds=seconds(timedelta(**{_UNITS[match[2]]: int(match[1])}), name="the duration"))
    except (OverflowError, ValueError) as error:
        raise ArgumentTypeError(f"{text!r}: the duration is too long") from error
