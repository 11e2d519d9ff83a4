"""``manage.py purge_leases``: deletes rows of leases that ended long ago."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DEFAULT_DB_ALIAS

from django_lockstep.contrib.options import duration
from django_lockstep.leases.models import Lease


class Command(BaseCommand):
    """Delete old rows; tokens are never used again."""

    help = (
        "Deletes leases that expired or were released longer ago than --older-than. Their tokens are never used again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than", type=duration, required=True, metavar="30d", help="age: an integer with s, m, h, d or w"
        )
        parser.add_argument("--dry-run", action="store_true", help="only count them")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")

    def handle(self, *args: object, **options: Any) -> None:
        leases = Lease.objects.db_manager(options["database"])
        if options["dry_run"]:
            self.stdout.write(f"Leases that would be deleted: {leases.ended(options['older_than']).count()}")
        else:
            self.stdout.write(f"Leases deleted: {leases.purge(options['older_than'])}")
