"""What a project on SQLite is told, instead of getting less than it asked for."""

from decimal import Decimal
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.db import NotSupportedError
from django.test import TestCase, TransactionTestCase

from accounts.strategies import STRATEGIES
from django_lockstep.locking import isolated_transaction, lock_row

Wallet: Any = apps.get_model(settings.TELLER_MODEL)  # type: ignore[misc]


def make_wallet() -> Any:
    return Wallet.objects.create(user=User.objects.create_user("ada"), balance=Decimal(100))


class RowTests(TestCase):
    def test_a_lock_with_a_time_limit_is_refused(self) -> None:
        with self.assertRaisesMessage(NotSupportedError, "timeout needs PostgreSQL's lock_timeout"):
            lock_row(Wallet, make_wallet().pk, timeout=1)

    def test_advisory_locks_are_refused(self) -> None:
        wallet = make_wallet()
        with self.assertRaisesMessage(NotSupportedError, "PostgreSQL"):
            STRATEGIES["advisory"].bound(model=Wallet).deposit(wallet.pk, 1)
        wallet.refresh_from_db()
        self.assertEqual(wallet.balance, 100)


class TransactionTests(TransactionTestCase):
    def test_isolation_levels_are_refused(self) -> None:
        refused = self.assertRaisesMessage(NotSupportedError, "PostgreSQL only, not on sqlite")
        with refused, isolated_transaction(isolation_level="serializable"):
            self.fail("the block must not run")

    def test_a_plain_transaction_is_one(self) -> None:
        with isolated_transaction():
            wallet = make_wallet()
        self.assertEqual(Wallet.objects.get(), wallet)

    def test_the_serializable_strategy_is_refused(self) -> None:
        wallet = make_wallet()
        with self.assertRaisesMessage(NotSupportedError, "PostgreSQL only, not on sqlite"):
            STRATEGIES["serializable"].bound(model=Wallet).deposit(wallet.pk, 1)
