"""``manage.py reconcile``: compares balances with their entries and prints every break."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, transaction

from accounts.binding import account_model
from accounts.reconciliation import chain_breaks


class Command(BaseCommand):
    """Exit 0 if all balances match their entries, 1 if one does not, 2 on wrong usage."""

    help = "Compares every account's balance with its entries and prints every break; exits 1 if there is one."
    requires_migrations_checks = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--model", default="accounts.Account", help="account model (default: accounts.Account)")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")
        parser.add_argument("--format", choices=["text", "json"], default="text", help="json: one break per line")

    def handle(self, *args: object, **options: Any) -> None:
        try:
            model = account_model(options["model"])
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        found = 0
        # Printed as they are found, by a server-side cursor: a large table need not fit into memory. A cursor needs one
        # session to its end, which a pooler grants to a transaction alone.
        with transaction.atomic(using=options["database"]):
            for found, broken in enumerate(chain_breaks(model, using=options["database"]), start=1):  # noqa: B007
                line = json.dumps(broken.as_dict(), default=str) if options["format"] == "json" else str(broken)
                self.stdout.write(line)
        if found:
            self.stderr.write(self.style.ERROR(f"{found} break{'s' if found > 1 else ''} found."))
            sys.exit(1)
        self.stderr.write(self.style.SUCCESS(f"Every balance of {model._meta.label} matches its entries."))
