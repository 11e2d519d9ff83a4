"""``manage.py purge_idempotency_keys``: deletes the keys whose time is over."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DEFAULT_DB_ALIAS
from django.db.models.functions import Now

from django_lockstep.idempotency.models import IdempotencyKey


class Command(BaseCommand):
    """Delete rows that no call reads any more."""

    help = "Deletes idempotency keys that have expired, with their results."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")

    def handle(self, *args: object, **options: Any) -> None:
        rows = IdempotencyKey._base_manager.using(options["database"])
        count, _ = rows.filter(expires_at__lte=Now()).delete()
        self.stdout.write(f"Idempotency keys deleted: {count}")
