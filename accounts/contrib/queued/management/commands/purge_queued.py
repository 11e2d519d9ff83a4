"""``manage.py purge_queued``: deletes queued changes that were decided long ago."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from accounts.contrib.queued.management.queues import add_queue_options, queue_model
from accounts.contrib.queued.querysets import PURGED_AT_ONCE, QueuedQuerySet
from django_lockstep.contrib.options import count, duration


class Command(BaseCommand):
    """Exit 0 after deleting, 2 on wrong usage."""

    help = (
        "Deletes queued changes that were applied or refused longer ago than --older-than, never pending or failed "
        "ones. Idempotency keys of applied changes stay used; those of refused changes can be used again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than", type=duration, required=True, metavar="30d", help="a number with s, m, h, d or w"
        )
        parser.add_argument("--dry-run", action="store_true", help="only count, delete nothing")
        parser.add_argument(
            "--batch-size",
            type=count,
            default=PURGED_AT_ONCE,
            help=f"changes in one transaction (default: {PURGED_AT_ONCE})",
        )
        add_queue_options(parser)

    def handle(self, *args: object, **options: Any) -> None:
        # Not the model's default manager, which the project may have replaced by one that hides rows.
        changes = QueuedQuerySet(queue_model(options["model"]), using=options["database"])
        if options["dry_run"]:
            self.stdout.write(f"Changes that would be deleted: {changes.decided(options['older_than']).count()}")
        else:
            deleted = changes.purge(options["older_than"], size=options["batch_size"])
            self.stdout.write(f"Changes deleted: {deleted}")
