"""Delete what nobody asks for any more."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DEFAULT_DB_ALIAS

from django_lockstep.editing.purging import purge


class Command(BaseCommand):
    """Ends expired check-outs and deletes old ones."""

    help = "End expired check-outs and delete those that ended long ago (LOCKSTEP_EDIT_HISTORY). Nothing waits for it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the database."""
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Say how many there were."""
        ended, deleted = purge(using=options["database"])
        self.stdout.write(f"Expired check-outs ended: {ended}; old ones deleted: {deleted}")
