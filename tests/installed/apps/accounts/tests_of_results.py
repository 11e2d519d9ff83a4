"""What a project may expect of leases that installs nothing else of ours, on any database."""

from datetime import timedelta

from django.db import NotSupportedError, connection
from django.test import TestCase, TransactionTestCase

from django_lockstep.leases import LeaseHandle, LeaseLost, LeaseNotAcquired, lease
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import steal

from .models import Result


def acquired(key: str) -> LeaseHandle:
    handle = Lease.objects.acquire(key, 60)
    assert handle is not None
    return handle


class LeaseTests(TestCase):
    """In the transaction of a test."""

    def test_one_holder_at_a_time(self) -> None:
        with lease("k", ttl=60, owner="ada", data={"a": [1]}) as handle:
            with self.assertRaisesMessage(LeaseNotAcquired, "held by ada"), lease("k", ttl=60):
                self.fail("must not run")
            handle.refresh(120)
            self.assertGreater(handle.remaining, 100)
            holder = Lease.objects.holder("k")
            assert holder is not None
            self.assertEqual((holder.owner, holder.data, holder.token), ("ada", {"a": [1]}, handle.token))
        self.assertIsNone(Lease.objects.holder("k"))

    def test_who_was_robbed_finds_out(self) -> None:
        handle = acquired("k")
        thief = steal("k")
        self.assertGreater(thief.token, handle.token)
        self.assertRaises(LeaseLost, handle.refresh)
        self.assertFalse(handle.release())
        self.assertTrue(thief.release())

    def test_tokens_do_not_return_after_a_purge(self) -> None:
        first = acquired("k")
        first.release()
        Lease.objects.update(expires_at="2020-01-01T00:00:00Z")
        Lease.objects.purge(timedelta(days=1))
        self.assertGreater(acquired("k").token, first.token)

    def test_rows_refuse_lower_tokens(self) -> None:
        result = Result.objects.create(text="new", fencing_token=5)
        self.assertFalse(result.update_if_token(4, text="late"))
        self.assertTrue(result.update_if_token(6, text="newer"))
        self.assertEqual(Result.objects.get().text, "newer")

    def test_a_guard_is_postgresqls_and_elsewhere_says_so(self) -> None:
        handle = acquired("k")
        if connection.vendor == "postgresql":
            handle.guard()
            steal("k")
            self.assertRaises(LeaseLost, handle.guard)
        else:
            with self.assertRaisesMessage(NotSupportedError, "update_if_token"):
                handle.guard()


class TransactionTests(TransactionTestCase):
    """On committed data."""

    def test_a_wait_has_an_end(self) -> None:
        with lease("k", ttl=60):
            self.assertIsNone(Lease.objects.acquire("k", 60, wait=0.05))
        self.assertIsNotNone(Lease.objects.acquire("k", 60, wait=60))
