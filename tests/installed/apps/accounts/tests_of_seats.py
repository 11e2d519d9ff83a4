"""What a project expects of its own versioned model."""

from typing import Any
from unittest import skipUnless

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import TestCase
from django.urls import reverse

from django_lockstep.locking import StaleVersionError, lock_row

from .models import Seat

User: Any = get_user_model()


class SeatTests(TestCase):
    def setUp(self) -> None:
        self.seat = Seat.objects.create(number="A1")

    def row(self) -> tuple[str, int]:
        seat = Seat.objects.get(number="A1")
        return seat.guest, seat.version

    def test_who_saves_first_has_the_seat(self) -> None:
        slower = Seat.objects.get(number="A1")
        self.seat.guest = "Ada"
        self.seat.save()
        slower.guest = "Bob"
        with self.assertRaises(StaleVersionError):
            slower.save()
        self.assertEqual(self.row(), ("Ada", 2))

    def test_a_seat_is_put_by_whoever_saw_it_last(self) -> None:
        self.assertEqual(Seat.objects.put_if_unchanged("B1", 0, guest="Ada"), 1)
        self.assertIsNone(Seat.objects.put_if_unchanged("B1", 0, guest="Bob"))
        self.assertEqual(Seat.objects.put_if_unchanged("B1", 1, guest="Cyd"), 2)
        self.assertIsNone(Seat.objects.put_if_unchanged("B1", 1, guest="Bob"))

    def test_of_many_changes_the_losers_are_named(self) -> None:
        other = Seat.objects.create(number="A2")
        other.update_if_unchanged(guest="Ada")
        changes = [("A1", 1, {"guest": "Bob"}), ("A2", 1, {"guest": "Bob"}), ("A3", 1, {"guest": "Bob"})]
        self.assertEqual(Seat.objects.update_many_if_unchanged(changes), ["A2", "A3"])
        self.assertEqual(self.row(), ("Bob", 2))

    @skipUnless(connection.vendor == "postgresql", "lock_timeout is PostgreSQL's")
    def test_a_lock_can_have_a_time_limit(self) -> None:
        with transaction.atomic():
            self.assertEqual(lock_row(Seat, "A1", timeout=1), self.seat)

    @skipUnless(connection.vendor == "postgresql", "triggers are PostgreSQL's")
    def test_sql_counts(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE accounts_seat SET guest = 'Ada'")
        self.assertEqual(self.row(), ("Ada", 2))

    def test_a_conflict_in_the_admin_is_a_page(self) -> None:
        self.client.force_login(User.objects.create_superuser("root"))
        address = reverse("admin:accounts_seat_change", args=["A1"])
        token = self.client.get(address).context["adminform"].form.initial["_seen"]
        self.seat.update_if_unchanged(guest="Ada")
        page = self.client.post(address, {"number": "A1", "guest": "Bob", "_seen": token})
        self.assertContains(page, 'name="choice-guest" value="mine"', status_code=409)
        self.assertEqual(self.row(), ("Ada", 2))
