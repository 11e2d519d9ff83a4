"""``manage.py purge_check_outs``: deletes old check-outs."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DEFAULT_DB_ALIAS

from django_lockstep.editing.holds import purge


class Command(BaseCommand):
    """Ends expired check-outs and deletes old ones."""

    help = "End expired check-outs, and delete those that ended long ago (LOCKSTEP_EDIT_HISTORY)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS)

    def handle(self, *args: object, **options: Any) -> None:
        ended, deleted = purge(using=options["database"])
        self.stdout.write(f"Expired check-outs ended: {ended}; old check-outs deleted: {deleted}")
