"""Where a router sends reads to a replica, everything that is written goes to the primary."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import InternalError, connection, connections
from django.test import Client

from django_lockstep.leases import LeaseHandle, LeaseLost
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import expire, steal
from tests.django_lockstep.leases.holding import acquired
from tests.django_lockstep.leases.test_admin import force
from tests.testapps.press.models import Report

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("replica")]


class ReadsElsewhere:
    """A router as Django's documentation has it."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"

    def allow_relation(self, instance: Any, another: Any, **hints: Any) -> bool:
        return True


@pytest.fixture
def replica(transactional_db: None, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    """The same rows under another alias, where nothing can be written."""
    options = connection.settings_dict["OPTIONS"] | {"options": "-c default_transaction_read_only=on"}
    monkeypatch.setitem(connections.settings, "replica", connection.settings_dict | {"OPTIONS": options})
    connections["replica"].connect()  # a test may not open connections that it does not declare
    settings.DATABASE_ROUTERS = [ReadsElsewhere()]
    yield
    connections["replica"].close()
    del connections["replica"]


@pytest.fixture
def handle(replica: None) -> LeaseHandle:
    return acquired(owner="ada")


def test_rows_are_read_from_the_replica(handle: LeaseHandle) -> None:
    assert Lease.objects.get().token == handle.token
    assert Lease.objects.all().db == "replica"


def test_a_purge(handle: LeaseHandle) -> None:
    expire("k")
    assert Lease.objects.purge(1e-6) == 1
    assert not Lease.objects.exists()


def test_a_purge_of_the_database_that_is_named(handle: LeaseHandle) -> None:
    expire("k")
    with pytest.raises(InternalError, match="read-only"):
        Lease.objects.using("replica").purge(1e-6)


def test_a_release_by_force(handle: LeaseHandle) -> None:
    assert Lease.objects.filter(key="k").force_release() == 1
    with pytest.raises(LeaseLost):
        handle.refresh()


def test_a_release_by_force_in_the_admin(handle: LeaseHandle, admin_client: Client) -> None:
    assert b"1 lease was released." in force(admin_client)
    with pytest.raises(LeaseLost):
        handle.refresh()
    assert LogEntry.objects.get().object_repr == "k"


def test_a_robbery(handle: LeaseHandle) -> None:
    assert steal("k").token > handle.token


def test_a_write_with_a_token() -> None:
    report = Report.objects.create(fencing_token=5)
    assert Report.objects.update_if_token(report.pk, 6, text="manager")
    read = Report.objects.get()
    assert read.update_if_token(7, text="instance")
    read.save()
    read.delete()
    assert not Report.objects.exists()
