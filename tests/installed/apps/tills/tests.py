"""What a project expects of hot accounts: slots, a queue for its own accounts, and many changes at once."""

from decimal import Decimal
from io import StringIO

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from accounts.contrib.slotted.models import Slot, SlottedAccount
from accounts.engine.batches import BalanceChange
from accounts.errors import InsufficientFunds
from accounts.reconciliation import chain_breaks

from .models import Till, TillChange


class HotTests(TestCase):
    def setUp(self) -> None:
        self.user = get_user_model().objects.create(username="ada")
        self.tills = [Till.objects.create(user=self.user, balance=Decimal(100)) for _ in range(3)]

    def balances(self) -> list[int]:
        return [int(Till.objects.get(pk=till.pk).balance) for till in self.tills]

    def test_many_changes_at_once(self) -> None:
        changes = [BalanceChange(till.pk, amount, f"{amount}") for amount in (5, -105) for till in self.tills]
        with CaptureQueriesContext(connection) as captured:
            Till.apply_many(changes[:3])
        if connection.vendor == "postgresql":
            texts = [entry["sql"] for entry in captured if "SAVEPOINT" not in entry["sql"]]
            self.assertEqual(len(texts), 1, texts)
        answers = Till.apply_many(changes)
        self.assertEqual([answer.replayed for answer in answers], [True] * 3 + [False] * 3)
        self.assertEqual(self.balances(), [0, 0, 0])
        with self.assertRaises(InsufficientFunds):
            Till.apply_many([(self.tills[0].pk, 1), (self.tills[1].pk, -1)])
        self.assertFalse(list(chain_breaks(Till)))

    def test_the_queue(self) -> None:
        one, two, three = self.tills
        TillChange.transfer(one.pk, two.pk, 60)
        refused = TillChange.withdraw(one.pk, 50)
        again = [TillChange.deposit(three.pk, 1, idempotency_key="k") for _ in range(2)]
        call_command("apply_queued", "--once", "--model", "tills.TillChange", verbosity=0)
        self.assertEqual(self.balances(), [40, 160, 101])
        self.assertEqual(again[0].wait().pk, again[1].wait().pk)
        with self.assertRaises(InsufficientFunds):
            refused.wait()

    def test_what_was_decided_long_ago_is_purged(self) -> None:
        old, pending = (TillChange.deposit(self.tills[0].pk, amount) for amount in (1, 2))
        TillChange.objects.filter(pk=old.pk).update(state="refused", decided_at="2020-01-01T00:00Z")
        call_command("purge_queued", "--older-than", "1d", "--model", "tills.TillChange", stdout=StringIO())
        self.assertEqual(list(TillChange.objects.all()), [pending])

    def test_the_admin_shows_queue_and_slots(self) -> None:
        self.user.is_staff = self.user.is_superuser = True
        self.user.save()
        self.client.force_login(self.user)
        change = TillChange.transfer(self.tills[0].pk, self.tills[1].pk, "1.25")
        account = SlottedAccount.open(self.user, size=3, balance=61)
        changes, accounts = "/admin/tills/tillchange/", "/admin/accounts_slotted/slottedaccount/"
        self.assertContains(self.client.get(changes), "-1.25")
        self.assertContains(self.client.get(f"{changes}?q={self.tills[0].pk}"), "-1.25")
        self.assertContains(self.client.get(f"{changes}{change.pk}/change/"), "-1.25")
        self.assertContains(self.client.get(accounts), "61.00")
        self.assertContains(self.client.get(f"{accounts}{account.pk}/change/"), "20.34")

    def test_slots(self) -> None:
        one, two = (SlottedAccount.open(self.user, size=3, balance=60, overdraft_limit=6) for _ in range(2))
        SlottedAccount.withdraw(one.pk, 66)
        SlottedAccount.deposit(one.pk, 10)
        SlottedAccount.transfer(two.pk, one.pk, 65)
        SlottedAccount.resize(two.pk, size=5)
        self.assertEqual((one.balance, two.balance), (69, -5))
        with self.assertRaises(InsufficientFunds):
            SlottedAccount.withdraw(two.pk, 2)
        self.assertFalse(list(chain_breaks(Slot)))
