"""What the project relies on: tests for Django's runner, and one for pytest."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import TestCase
from django.urls import reverse

from django_lockstep.editing import check_out
from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.leases import LeaseNotAcquired, lease
from django_lockstep.locking import StaleVersionError

from .models import Account
from .spending import is_not_overdrawn, open_account, spend

User: Any = get_user_model()


class AccountTests(TestCase):
    def setUp(self) -> None:
        self.account = Account.objects.create(customer="Ada", points=10)

    def test_the_second_save_is_refused(self) -> None:
        stale = Account.objects.get(pk=self.account.pk)
        spend(self.account.pk)
        stale.customer = "Countess Ada"
        with self.assertRaises(StaleVersionError):
            stale.save()

    def test_sql_raises_the_version(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE accounts_account SET points = 7")
        self.assertEqual(Account.objects.get(pk=self.account.pk).version, 2)

    def test_a_lease_has_one_holder(self) -> None:
        with lease("expire-points", ttl=60), self.assertRaises(LeaseNotAcquired), lease("expire-points", ttl=60):
            self.fail("must not run")

    def test_an_account_has_one_editor(self) -> None:
        ada, bob = User.objects.create_user("ada"), User.objects.create_user("bob")
        self.assertTrue(check_out(self.account, ada).lock_result)
        self.assertEqual(check_out(self.account, bob).holder, "ada")

    def test_a_conflict_in_the_admin_is_a_page(self) -> None:
        self.client.force_login(User.objects.create_superuser("root"))
        address = reverse("admin:accounts_account_change", args=[self.account.pk])
        token = self.client.get(address).context["adminform"].form.initial["_seen"]
        self.account.update_if_unchanged(customer="Countess Ada")
        page = self.client.post(address, {"customer": "Ada Lovelace", "points": 10, "_seen": token})
        self.assertContains(page, 'name="choice-customer" value="mine"', status_code=409)


@pytest.mark.django_db(transaction=True)
def test_points_are_spent_once(race: RaceFixture) -> None:
    race(spend, spend, set_up=open_account, invariant=is_not_overdrawn)
