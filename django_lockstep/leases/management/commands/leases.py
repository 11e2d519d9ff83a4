"""``manage.py leases``: lists leases, and takes one from its holder."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS

from django_lockstep.leases.listing import as_json, facts_of, print_table
from django_lockstep.leases.models import Lease


class Command(BaseCommand):
    """Exit 0; 1 where nobody holds what was to be released, 2 on wrong usage."""

    help = "Lists who holds which lease. With --release KEY --yes, takes one from its holder."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare --all, --format, --release, --yes and --database."""
        parser.add_argument("--all", action="store_true", help="those that nobody holds, too")
        parser.add_argument("--format", choices=["table", "json"], default="table")
        parser.add_argument("--release", metavar="KEY", help="take this lease from whoever holds it")
        parser.add_argument("--yes", action="store_true", help="really")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")

    def handle(self, *args: Any, **options: Any) -> None:
        """List, or release."""
        leases = Lease.objects.db_manager(options["database"])
        if options["release"] is not None:
            self._release(leases, options["release"], sure=options["yes"])
            return
        facts = facts_of(leases.all() if options["all"] else leases.held())
        if options["format"] == "json":
            self.stdout.write(as_json(facts))
        else:
            print_table(facts, self.stdout)  # type: ignore[arg-type]

    def _release(self, leases: Any, key: str, *, sure: bool) -> None:
        holder = leases.held().filter(key=key).first()
        if holder is None:
            raise CommandError(f"Nobody holds lease {key!r}.")
        if not sure:
            raise CommandError(
                f"Lease {key!r} is held by {holder.owner} (token {holder.token}), whose work may go on without it. "
                "Add --yes to take it.",
                returncode=2,
            )
        if not leases.filter(key=key, token=holder.token).force_release():
            raise CommandError(f"Lease {key!r} has just been released or taken over; nothing was done.")
        if leases.with_times().filter(key=key, under_guard=True).exists():
            self.stderr.write(
                f"A transaction keeps lease {key!r} (token {holder.token}) under guard: nobody gets it before its end."
            )
        self.stdout.write(self.style.SUCCESS(f"Lease {key!r} was taken from {holder.owner} (token {holder.token})."))
