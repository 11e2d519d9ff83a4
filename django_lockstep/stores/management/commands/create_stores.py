"""``manage.py create_stores``: makes the tables of the DynamoDB stores."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from django_lockstep.stores.conf import configured_stores, get_store
from django_lockstep.stores.dynamodb.store import DynamoStore
from django_lockstep.stores.errors import StoreError


class Command(BaseCommand):
    """Create what is missing; tables that exist are left as they are."""

    help = "Creates the tables of the DynamoDB stores in LOCKSTEP_STORES, billed by request, unless they exist."
    # The check that the tables exist would stop the command that creates them.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="*", metavar="STORE", help="a store's name (default: all)")

    def handle(self, *args: object, **options: Any) -> None:
        for name in options["name"] or sorted(configured_stores()):
            try:
                store = get_store(name)
                if isinstance(store, DynamoStore):
                    outcome = "created" if store.create() else "exists"
                    if problem := store.problem():
                        raise CommandError(f"Store {name!r}: {problem}.")
                    self.stdout.write(f"Table {store.table!r} of store {name!r}: {outcome}.")
                elif options["name"]:
                    raise CommandError(f"Store {name!r} has no table to create: manage.py migrate does it.")
            except (ImproperlyConfigured, StoreError) as error:
                raise CommandError(str(error)) from error
