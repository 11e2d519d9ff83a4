"""``manage.py leases``: lists leases, and releases one by force."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS

from django_lockstep.leases.listing import facts_of, facts_of_holders, print_table
from django_lockstep.leases.models import Lease
from django_lockstep.stores.conf import get_store
from django_lockstep.stores.errors import StoreError


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
        if options["store"] is not None:
            self._handle_store(options)
            return
        leases = Lease.objects.db_manager(options["database"])
        if options["release"] is not None:
            self._release(leases, options["release"], sure=options["yes"])
            return
        self._print(facts_of(leases.all() if options["all"] else leases.held()), options["format"])

    def _print(self, facts: list[dict[str, Any]], form: str) -> None:
        if form == "json":
            self.stdout.write(json.dumps(facts, indent=2))
        else:
            print_table(facts, self.stdout)  # type: ignore[arg-type]

    def _handle_store(self, options: dict[str, Any]) -> None:
        key = options["release"]
        if options["all"]:
            raise CommandError("--all is for databases: a store lists what is held.", returncode=2)
        try:
            store = get_store(options["store"])
            if key is None:
                self._print(facts_of_holders(store.list()), options["format"])
                return
            holder = store.get(key)
            self._require_sure(key, holder, sure=options["yes"])
            if holder is None or not store.release(key, holder.token):
                raise CommandError(f"Lease {key!r} was released or taken over in the meantime; nothing was changed.")
        except (ImproperlyConfigured, StoreError, ValueError) as error:
            raise CommandError(str(error)) from error
        self._report(key, holder)

    def _release(self, leases: Any, key: str, *, sure: bool) -> None:
        holder = leases.held().filter(key=key).first()
        self._require_sure(key, holder, sure=sure)
        if not leases.filter(key=key, token=holder.token).force_release():
            raise CommandError(f"Lease {key!r} was released or taken over in the meantime; nothing was changed.")
        if leases.with_times().filter(key=key, under_guard=True).exists():
            self.stderr.write(
                f"A transaction guards lease {key!r} (token {holder.token}): it is not free before that one ends."
            )
        self._report(key, holder)

    def _require_sure(self, key: str, holder: Any, *, sure: bool) -> None:
        if holder is None:
            raise CommandError(f"Lease {key!r} is not held.")
        if not sure:
            raise CommandError(
                f"Lease {key!r} is held by {holder.owner} (token {holder.token}), whose work may still be running. "
                "Add --yes to release it.",
                returncode=2,
            )

    def _report(self, key: str, holder: Any) -> None:
        self.stdout.write(
            self.style.SUCCESS(f"Lease {key!r} was released; it was held by {holder.owner} (token {holder.token}).")
        )
