"""``manage.py reconcile``: compares balances with their entries and prints every break."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, transaction

from accounts.binding import account_model
from accounts.contrib import dynamodb
from accounts.models import AbstractAccount
from accounts.reconciliation import ChainBreak, chain_breaks
from django_lockstep.stores import StoreError
from django_lockstep.stores.dynamodb.store import DynamoStore


class Command(BaseCommand):
    """Exit 0 if all balances match their entries, 1 if one does not, 2 on wrong usage."""

    help = "Compares every account's balance with its entries and prints every break; exits 1 if there is one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--model", default="accounts.Account", help="account model (default: accounts.Account)")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")
        parser.add_argument(
            "--store", metavar="NAME", help="check the accounts of accounts.contrib.dynamodb in this store instead"
        )
        parser.add_argument("--format", choices=["text", "json"], default="text", help="json: one break per line")

    def handle(self, *args: object, **options: Any) -> None:
        if options["store"] is None:
            self.check_migrations()
        try:
            if options["store"] is None:
                model = account_model(options["model"])
                what, breaks = model._meta.label, _breaks_in_database(model, using=options["database"])
            else:
                what = f"store {DynamoStore.named(options['store']).name!r}"
                breaks = dynamodb.chain_breaks(store=options["store"])
        except (ImproperlyConfigured, ValueError) as error:
            raise CommandError(str(error), returncode=2) from error
        number = 0
        # Printed as they are found: a large table need not fit into memory.
        try:
            for number, broken in enumerate(breaks, start=1):  # noqa: B007
                line = json.dumps(broken.as_dict(), default=str) if options["format"] == "json" else str(broken)
                self.stdout.write(line)
        except (ImproperlyConfigured, StoreError) as error:
            raise CommandError(str(error)) from error
        if number:
            self.stderr.write(self.style.ERROR(f"{number} break{'s' if number > 1 else ''} found."))
            sys.exit(1)
        self.stderr.write(self.style.SUCCESS(f"Every balance of {what} matches its entries."))


def _breaks_in_database(model: type[AbstractAccount], *, using: str) -> Iterator[ChainBreak]:
    # The rows' server-side cursor needs one session to its end, which a pooler grants to a transaction alone.
    with transaction.atomic(using=using):
        yield from chain_breaks(model, using=using)
