"""The admin shows who holds what; force release is for those who may, and logged."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_lockstep.leases import LeaseHandle, LeaseLost
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import expire
from tests.django_lockstep.leases.holding import acquired
from tests.support.factories import client_of_staff

PATH = "/admin/lockstep_leases/lease/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def handle(db: None) -> LeaseHandle:
    return acquired("nightly", owner="ada", data={"rows": 7})


def force(client: Client) -> bytes:
    form = {"action": "force_release", "_selected_action": [Lease.objects.get().pk]}
    return bytes(client.post(PATH, form, follow=True).content)


def test_the_list_and_the_page_say_who_holds_it(handle: LeaseHandle, admin_client: Client) -> None:
    page = admin_client.get(PATH).content.decode()
    for cell in ("nightly", "ada", "held", str(handle.token)):
        assert f">{cell}<" in page
    assert len(re.findall(r">0:0[01]:\d\d<", page)) == 2
    assert b"ada" in admin_client.get(f"{PATH}{Lease.objects.get().pk}/change/").content
    assert b"1 lease" in admin_client.get(f"{PATH}?q=night").content


def test_states(admin_client: Client) -> None:
    Lease.objects.acquire("free", 60)
    expire("free")
    acquired("kept", 60, at_least=600).release()
    page = admin_client.get(PATH).content.decode()
    assert ">free<" in page
    assert ">kept after release<" in page


def test_force_release_takes_it_and_is_logged(handle: LeaseHandle) -> None:
    client = client_of_staff("view_lease", "force_release_lease")
    assert b"1 lease was released." in force(client)
    with pytest.raises(LeaseLost):
        handle.refresh()
    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.user_id) == ("nightly", int(client.session["_auth_user_id"]))
    assert f"was held by ada, token {handle.token}" in entry.get_change_message()


def test_it_has_a_permission_of_its_own(handle: LeaseHandle) -> None:
    client = client_of_staff("view_lease")
    assert b"force_release" not in client.get(PATH).content
    force(client)
    handle.refresh()
    assert not LogEntry.objects.exists()


def test_what_nobody_holds_is_not_released_again(handle: LeaseHandle) -> None:
    handle.release()
    before = Lease.objects.get().released_at
    assert b"0 leases were released." in force(client_of_staff("view_lease", "force_release_lease"))
    assert Lease.objects.get().released_at == before
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("path", ["add/", "{}/delete/", "{}/change/"])
def test_rows_are_not_for_forms(handle: LeaseHandle, admin_client: Client, path: str) -> None:
    assert admin_client.post(PATH + path.format(Lease.objects.get().pk), {"post": "yes"}).status_code == 403
