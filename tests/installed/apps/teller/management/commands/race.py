"""``manage.py race``: four threads deposit at the same time; prints the balance and the number of entries."""

from decimal import Decimal
from threading import Thread
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand
from django.db import connections

from django_lockstep.locking import retry_on_conflict


def deposit_often(model: Any, pk: object) -> None:
    """Make 25 deposits of 1.00."""
    deposit = retry_on_conflict(attempts=100)(model.deposit)
    for _ in range(25):
        deposit(pk, 1)
    connections.close_all()


class Command(BaseCommand):
    """Races for a new account."""

    def handle(self, **options: Any) -> None:
        """Start the threads and wait for them."""
        wallets: Any = apps.get_model(settings.TELLER_MODEL)  # type: ignore[misc]
        user = get_user_model()._default_manager.create(username="racer")
        wallet = wallets.objects.create(user=user, balance=Decimal(0))
        threads = [Thread(target=deposit_often, args=(wallets, wallet.pk)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wallet.refresh_from_db()
        self.stdout.write(f"{wallet.balance} in {wallet.entries.count()} entries")
