"""``manage.py purge_queued``: deletes queued changes that were decided long ago."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from accounts.contrib.queued.management.queues import add_queue, queue_named
from accounts.contrib.queued.querysets import PURGED_AT_ONCE, QueuedQuerySet
from django_lockstep.contrib.options import count, duration


class Command(BaseCommand):
    """Delete what was decided longer ago than asked; nothing that is pending. Exit 2 on wrong usage."""

    help = (
        "Deletes queued changes that were applied or refused longer ago than --older-than, never pending ones. Keys of "
        "applied changes stay used; keys of refused ones are forgotten."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare --older-than, --dry-run, --batch-size, --model and --database."""
        parser.add_argument(
            "--older-than", type=duration, required=True, metavar="30d", help="number with s, m, h, d, w"
        )
        parser.add_argument("--dry-run", action="store_true", help="count only")
        parser.add_argument(
            "--batch-size",
            type=count,
            default=PURGED_AT_ONCE,
            help=f"changes in one transaction (default: {PURGED_AT_ONCE})",
        )
        add_queue(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Delete, or count."""
        # Not the model's own manager, which may be the project's and leave rows out.
        changes = QueuedQuerySet(queue_named(options["model"]), using=options["database"])
        if options["dry_run"]:
            self.stdout.write(f"Changes that would be deleted: {changes.decided(options['older_than']).count()}")
        else:
            deleted = changes.purge(options["older_than"], size=options["batch_size"])
            self.stdout.write(f"Changes deleted: {deleted}")
