"""``manage.py leases``: lists leases, and releases one by force."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS

from django_lockstep.leases.listing import as_json, facts_of, print_table
from django_lockstep.leases.models import Lease


class Command(BaseCommand):
    """Exit code 0; 1 where the lease to release is not held, 2 on wrong usage."""

    help = "Lists leases and their holders. With --release KEY --yes, releases one by force."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="include leases that are not held")
        parser.add_argument("--format", choices=["table", "json"], default="table")
        parser.add_argument("--release", metavar="KEY", help="release this lease by force")
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")

    def handle(self, *args: object, **options: Any) -> None:
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
            raise CommandError(f"Lease {key!r} is not held.")
        if not sure:
            raise CommandError(
                f"Lease {key!r} is held by {holder.owner} (token {holder.token}), whose work may still be running. "
                "Add --yes to release it.",
                returncode=2,
            )
        if not leases.filter(key=key, token=holder.token).force_release():
            raise CommandError(f"Lease {key!r} was released or taken over in the meantime; nothing was changed.")
        if leases.with_times().filter(key=key, under_guard=True).exists():
            self.stderr.write(
                f"A transaction guards lease {key!r} (token {holder.token}): it is not free before that one ends."
            )
        self.stdout.write(
            self.style.SUCCESS(f"Lease {key!r} was released; it was held by {holder.owner} (token {holder.token}).")
        )
