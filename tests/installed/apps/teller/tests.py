"""What a project expects of the account model that ``settings.TELLER_MODEL`` names."""

from decimal import Decimal
from typing import Any
from unittest import skipUnless

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection, transaction
from django.test import TestCase
from django.urls import reverse

from accounts.errors import InsufficientFunds
from accounts.strategies import STRATEGIES

Account: Any = apps.get_model(settings.TELLER_MODEL)  # type: ignore[misc]
Entry: Any = Account.entry_model()
User: Any = get_user_model()

needs_triggers = skipUnless(connection.vendor == "postgresql", "triggers are PostgreSQL's")


def admin_url(instance: Any) -> str:
    """Return the address of the instance's page in the admin."""
    return reverse(f"admin:{instance._meta.app_label}_{instance._meta.model_name}_change", args=[instance.pk])


class TellerTests(TestCase):
    def setUp(self) -> None:
        user = User.objects.create(**{User.USERNAME_FIELD: "ada@example.org"})
        self.account = Account.objects.create(user=user, balance=Decimal(100))
        self.savings = Account.objects.create(user=user)

    def balance(self) -> Decimal:
        return Decimal(Account.objects.get(pk=self.account.pk).balance)

    def test_a_deposit_is_booked_with_its_entry(self) -> None:
        account = Account.deposit(self.account.pk, "12.50")
        entry = Entry.objects.get()
        self.assertIsInstance(account, Account)
        self.assertEqual((account.balance, account.version, self.balance()), (Decimal("112.50"), 2, Decimal("112.50")))
        self.assertEqual((entry.account, entry.amount, entry.version_after), (account, Decimal("12.50"), 2))

    def test_many_changes_are_booked_at_once(self) -> None:
        answers = Account.apply_many([(self.account.pk, -60), (self.savings.pk, "60"), (self.account.pk, -40)])
        self.assertEqual([answer.balance_after for answer in answers], [40, 60, 0])
        self.assertEqual([answer.entry for answer in answers], list(Entry.objects.values_list("pk", flat=True)))
        with self.assertRaises(InsufficientFunds):
            Account.apply_many([(self.savings.pk, 1), (self.account.pk, -1)])
        self.assertEqual((self.balance(), Entry.objects.count()), (Decimal(0), 3))

    def test_it_is_booked_by_hand_once(self) -> None:
        self.client.force_login(User.objects.create_superuser("root@example.org"))
        address = admin_url(self.account).replace("/change/", "/deposit/")
        form = self.client.get(address).context["form"]
        for locking in ("pessimistic", "optimistic"):
            typed = {"amount": "5", "locking": locking, "idempotency_key": locking}
            answers = [self.client.post(address, {**typed, "_seen": form["_seen"].value()}) for _ in range(2)]
            form = self.client.get(address).context["form"]
            self.assertEqual([answer.status_code for answer in answers], [302, 302])
        self.assertEqual((self.balance(), Entry.objects.count()), (Decimal(110), 2))
        self.assertContains(self.client.get(admin_url(self.account)), "110")

    def test_a_transfer_moves_money_once(self) -> None:
        for _ in range(2):
            source, target = Account.transfer(self.account.pk, self.savings.pk, 30, idempotency_key="once")
        self.assertEqual((source.balance, target.balance), (70, 30))
        self.assertEqual(Entry.objects.count(), 2)

    def test_the_slower_of_two_is_told_so(self) -> None:
        slower = Account.objects.get(pk=self.account.pk)
        self.assertIs(self.account.try_deposit(50), True)
        self.assertIs(slower.try_withdraw(50), False)
        self.assertEqual(self.balance(), 150)

    def test_strategies_work_on_any_account_model(self) -> None:
        for name in ("pessimistic", "optimistic", "conditional_update", "django_concurrency"):
            STRATEGIES[name].bound(model=Account).deposit(self.account.pk, 1)
        self.assertEqual(self.balance(), 104)

    @needs_triggers
    def test_sql_cannot_change_entries(self) -> None:
        Account.deposit(self.account.pk, 1)
        with self.assertRaises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"UPDATE {connection.ops.quote_name(Entry._meta.db_table)} SET amount = 2")

    @needs_triggers
    def test_sql_raises_the_version_of_accounts(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {connection.ops.quote_name(Account._meta.db_table)} SET overdraft_limit = 2")
        self.assertEqual(Account.objects.get(pk=self.account.pk).version, 2)
