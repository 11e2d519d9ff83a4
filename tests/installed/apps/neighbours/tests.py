"""A save through each neighbour."""

from datetime import timedelta

import pglock
from concurrency.exceptions import RecordModifiedError
from django.db import DatabaseError, connection, transaction
from django.test import TestCase
from django.utils import timezone
from django_fsm import TransitionNotAllowed

from django_lockstep.admin.history import changes_since
from django_lockstep.locking import StaleVersionError, lock_row

from .models import Badge, Contract, Memo, Parcel


class HistoryTests(TestCase):
    def setUp(self) -> None:
        self.contract = Contract.objects.create(title="Rent")

    def recorded(self) -> list[tuple[str, str, int]]:
        return list(self.contract.history.order_by("history_id").values_list("history_type", "title", "version"))

    def test_each_save_is_recorded_once_with_its_version(self) -> None:
        self.contract.title = "Lease"
        self.contract.save()
        self.assertEqual(self.recorded(), [("+", "Rent", 1), ("~", "Lease", 2)])

    def test_a_save_without_a_change_is_recorded_under_the_version_that_it_leaves(self) -> None:
        self.contract.save()
        self.assertEqual(self.recorded(), [("+", "Rent", 1), ("~", "Rent", 1)])

    def test_the_admin_tells_what_was_recorded(self) -> None:
        opened = timezone.now()
        self.contract.title = "Lease"
        self.contract.save()
        (change,) = changes_since(Contract, self.contract.pk, opened)
        self.assertEqual((change.who, change.what), ("", "Changed"))

    def test_a_delete_is_recorded_and_a_stale_one_is_not(self) -> None:
        stale = Contract.objects.get()
        self.contract.title = "Lease"
        self.contract.save()
        with self.assertRaises(StaleVersionError):
            stale.delete()
        self.contract.delete()
        history = Contract.history.order_by("history_id")
        self.assertEqual(list(history.values_list("history_type", "version")), [("+", 1), ("~", 2), ("-", 2)])


class StateTests(TestCase):
    def setUp(self) -> None:
        self.parcel = Parcel.objects.create()

    def test_a_transition_is_a_change(self) -> None:
        self.parcel.send()
        self.parcel.save()
        self.assertEqual(Parcel.objects.values_list("state", "version").get(), ("sent", 2))

    def test_of_two_transitions_the_second_is_stale(self) -> None:
        slower = Parcel.objects.get()
        self.parcel.send()
        self.parcel.save()
        slower.lose()
        with self.assertRaises(StaleVersionError):
            slower.save()
        slower.refresh_from_db()
        with self.assertRaises(TransitionNotAllowed):
            slower.lose()


class BadgeTests(TestCase):
    def setUp(self) -> None:
        self.badge = Badge.objects.create(name="ADA")

    def test_both_triggers_do_their_work(self) -> None:
        self.badge.name = "BOB"
        self.badge.save()
        self.assertEqual(Badge.objects.values_list("slug", "version").get(), ("bob", 2))
        Badge.objects.update(name="CYD")
        self.assertEqual(Badge.objects.values_list("slug", "version").get(), ("cyd", 3))

    def test_a_protected_row_stays(self) -> None:
        with self.assertRaises(DatabaseError), transaction.atomic():
            self.badge.delete()
        self.assertTrue(Badge.objects.exists())

    def test_a_row_is_locked_inside_of_an_advisory_lock(self) -> None:
        with pglock.advisory("badges"), transaction.atomic():
            self.assertEqual(lock_row(Badge, self.badge.pk), self.badge)

    def test_the_neighbours_time_limit_is_left_alone(self) -> None:
        with transaction.atomic(), pglock.timeout(timedelta(seconds=7)), connection.cursor() as cursor:
            lock_row(Badge, self.badge.pk, timeout=1)
            cursor.execute("SHOW lock_timeout")
            self.assertEqual(cursor.fetchone(), ("7s",))


class MemoTests(TestCase):
    def test_django_concurrency_goes_on_as_before(self) -> None:
        memo = Memo.objects.create(text="a")
        stale = Memo.objects.get()
        memo.text = "b"
        memo.save()
        with self.assertRaises(RecordModifiedError) as caught:
            stale.save()
        self.assertNotIsInstance(caught.exception, StaleVersionError)
